"""A run that is looked at, part by part: what was found, and what could not be looked at."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from corral.envs.core import plays_as_arrays, with_limit
from corral.errors import CorralError, EnvNeededError, MissingExtraError, UnknownNameError
from corral.lab.doctor.audit import Audit, audit
from corral.lab.doctor.audit.critics import audit_critics
from corral.lab.doctor.audit.findings import against_truth
from corral.lab.doctor.causes import RAISED, cannot_imitate, raised
from corral.lab.doctor.evidence.gathering import gather
from corral.lab.doctor.evidence.record import Evidence
from corral.lab.doctor.facts import Played, Trend, played, trend_of
from corral.lab.doctor.findings.credited import credited
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.rules import RULES
from corral.lab.doctor.imitation import Imitation, imitate
from corral.lab.doctor.watching.columns import column_findings, gather_columns, has_columns
from corral.lab.doctor.watching.progress import progress_findings
from corral.progress import Progress
from corral.trainers.cloning.trainer import Clone
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.runs.run import Run

__all__ = ["Looking"]

UPDATES, MOST_STEPS = 3, 60_000
"""Updates that are watched from the beginning; fewer, where they are of more env steps than that
together."""

OF_CLONING = (
    *("networks", "scales", "stored_masks", "stored_obs", "stored_rewards", "not_finite"),
    *("mask_lies", "greedy_legal", "same_after_reload", "reported_returns"),
)
"""Modules of rules, and rules, that say something of a run that clones: its teacher plays, and it
has no use for advantages."""

ASKED_FOR = (EnvNeededError, MissingExtraError, UnknownNameError)
"""Errors that a user mends by giving something again: nothing is looked at before."""


class Looking:
    """A run that is looked at, part by part: what was found, and what could not be looked at."""

    def __init__(self, run: Run, seed: int, progress: Progress) -> None:
        self.run, self.seed, self.progress = run, seed, progress
        self.found: list[Finding] = []
        self.rank: dict[str, int] = {}  # cause -> how near to the root
        self.looked: list[str] = []
        self.left: list[str] = []
        self.made: list[Any] = []  # trainers, to be closed
        self.parts = 0
        self.beginning: Evidence | None = None
        self.latest: Evidence | None = None
        self.steps = ""
        self.trend: Trend | None = None
        self.played: Played | None = None
        self.imitation: Imitation | None = None
        self.audit: Audit | None = None

    def look(self, audited: bool, cloned: bool) -> None:
        """Look at everything, from what is certain and cheap to what takes longer."""
        in_house = False
        with self.part("its trainer"):
            first = self.begun()
            in_house = isinstance(first, OnPolicyTrainer)
        if in_house:
            with self.part("its first updates"):
                self.at_its_beginning(first)
            with self.part("ends and time limits"):
                self.at_ends()
        elif self.made and has_columns(self.made[0]):
            with self.part("its first updates"):
                self.in_columns(self.made[0])
        elif self.made:
            self.left.append(f"updates: {self.run.config.trainer} lets nobody watch them")
        has_checkpoint = False
        if self.made:
            with self.part("its checkpoint"):
                has_checkpoint = self.at_its_checkpoint(in_house)
        with self.part("progress.csv"):
            self.in_progress()
        if has_checkpoint:
            with self.part("greedy and sampled play"):
                self.in_play()
        if has_checkpoint and audited and not self.clones:
            with self.part("the truth"):
                self.against_the_truth(in_house)
        if in_house and cloned and not self.clones:
            with self.part("whether its network can play as a reference team"):
                self.by_imitation()
        self.progress("", PARTS, PARTS)

    @contextlib.contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Look at one part; an error in it is the reason why it was not looked at."""
        self.progress(what, self.parts, PARTS)
        self.parts += 1
        try:
            yield
        except ASKED_FOR:
            raise
        except Exception as error:  # one's own environment, network or trainer may raise anything
            self.left.append(f"{what}: {_said(error)}")

    def begun(self, config: Any = None) -> Any:
        """Return the trainer of the run, or of another ``config``, as it begins."""
        made: Any = self.run.begun() if config is None else config.make_trainer()
        self.made.append(made)
        return made

    def trained(self) -> Any:
        """Return the trainer of the run, as it stands at its checkpoint."""
        trained: Any = self.run._trained()
        self.made.append(trained)
        return trained

    @property
    def clones(self) -> bool:
        """Whether a teacher plays, so that rewards are no matter."""
        return isinstance(self.made[0], Clone)

    def close(self) -> None:
        for each in self.made:
            with contextlib.suppress(Exception):
                each.close()

    # --- Parts -----------------------------------------------------------------------------------

    def at_its_beginning(self, first: Any) -> None:
        """Watch three updates from the run's beginning."""
        updates = max(1, min(UPDATES, MOST_STEPS // first.rollout_steps))
        evidence = self.watched(first, "its first updates", updates)
        if evidence is None:
            return
        self.beginning = evidence
        count = max((len(each.metrics) for each in evidence.policies.values()), default=0)
        self.looked.append(f"{count} update{'s' * (count != 1)} from its beginning")
        self.by_rules(evidence)

    def in_columns(self, first: Any) -> None:
        """Watch updates of Stable-Baselines3 through its rollout buffers."""
        updates = max(1, min(UPDATES, MOST_STEPS // first.rollout_steps))
        self.beginning = evidence = gather_columns(first, updates=updates)
        self.looked.append(f"{updates} updates from its beginning, through their rollout buffers")
        if evidence.error:
            self.fail(evidence.error_kind, evidence.error)
        self.found += column_findings(evidence)

    def at_ends(self) -> None:
        """Watch an update with a time limit that ends within it, and whom advantages credit."""
        if self.clones:
            return
        evidence = self.beginning
        config = _shortened(self.run, self.made[0])
        if config is not None:
            evidence = self.watched(self.begun(config), "ends and time limits", 1, config)
        if evidence is None:
            return
        if config is not None:
            self.looked.append("an update with a time limit of a few steps")
            self.by_rules(evidence)
        if not evidence.error:
            found = list(credited(evidence))
            self.rank |= {one.cause: ADVANTAGES for one in found}
            self.found += found

    def at_its_checkpoint(self, in_house: bool) -> bool:
        """Watch an update from the checkpoint; return that there is one to play by.

        Raises CheckpointError where there is none.
        """
        trained = self.trained()
        if not in_house or not trained.env_steps:
            return True
        evidence = self.watched(trained, "its checkpoint", 1)
        if evidence is not None:
            self.latest = evidence
            self.looked.append("an update from its checkpoint")
            known = {(one.cause, one.policy) for one in self.found}
            before = len(self.found)
            self.by_rules(evidence)
            # What is annealed ends at 0: that is no fault.
            self.found[before:] = [
                one
                for one in self.found[before:]
                if (one.cause, one.policy) in known or one.cause not in ANNEALED
            ]
        return True

    def watched(self, trainer: Any, what: str, updates: int, config: Any = None) -> Evidence | None:
        """Return the evidence of some updates; where training raises, that is a finding."""
        try:
            trainer.check()
            evidence = gather(
                trainer,
                lambda: self.begun(config),
                updates=updates,
                seed=self.seed,
                twins=trainer is self.made[0],
            )
        except ASKED_FOR:
            raise
        except Exception as error:
            self.left.append(f"{what}: {_said(error)}")
            if (own := self.raised_unwatched(config)) is not None:
                self.fail(type(own).__name__, _said(own, named=False))
            return None
        return evidence

    def fail(self, kind: str, message: str) -> None:
        """Note that training raises: nothing is nearer to the root."""
        self.found.append(raised(kind, message))
        self.rank[self.found[-1].cause] = -1

    def raised_unwatched(self, config: Any) -> Exception | None:
        """Return what training raises when nobody watches: None, where watching is the fault."""
        if any(one.cause in RAISES for one in self.found):
            return None  # once is enough
        try:
            next(iter(self.begun(config).learn()))
        except Exception as error:  # whatever a user's functions raise
            return error
        return None

    def by_rules(self, evidence: Evidence) -> None:
        """Ask every rule; where training broke off, what it did not come to is no evidence."""
        found: list[Finding] = []
        for number, rule in enumerate(RULES):
            module = rule.__module__.rpartition(".")[2]
            foreign = self.clones and not {module, rule.__name__} & set(OF_CLONING)
            if foreign or module in _cut_off(evidence):
                continue
            for policy in evidence.policies.values():
                try:
                    one = rule(policy, evidence)
                except Exception as error:
                    if not evidence.error:
                        self.left.append(f"{rule.__name__.replace('_', ' ')}: {_said(error)}")
                    continue
                if one is not None:
                    found.append(one)
                    self.rank.setdefault(one.cause, number)
        told = any(evidence.error in one.measured for one in found)
        if evidence.error and not told:
            self.fail(evidence.error_kind, evidence.error)
        self.found += found

    def in_progress(self) -> None:
        """Read progress.csv."""
        progress = self.run.progress
        if len(progress) and "env_steps" in progress:
            played, asked = int(progress["env_steps"].iloc[-1]), self.run.config.steps
            of = f" of {asked:,}" if played < asked else ""
            self.steps = f": {played:,}{of} env steps in {len(progress):,} updates"
        self.trend = trend_of(progress)
        self.looked.append(f"{len(progress):,} rows of progress.csv")
        self.found += progress_findings(self.run)

    def in_play(self) -> None:
        env_config = self.run.config.env_config
        held = env_config.validation or env_config.held_out
        rules = env_config.rules(**held)
        episodes = min(32, int(getattr(self.made[0].settings, "num_envs", 8)))
        policies = self.trained().policies
        learners = tuple(self.run.config.learners) or tuple(rules.agents)
        self.played = played(rules, policies, learners, seed=self.seed, episodes=episodes)
        where = " of rows not trained on" if held else ""
        self.looked.append(f"{episodes} episodes{where}, greedily and sampled")

    def against_the_truth(self, in_house: bool) -> None:
        trained = self.trained()
        if not trained.env_steps:
            raise ValueError("nothing is learned yet")
        if in_house:
            self.audit = audit(trained, seed=self.seed)
        elif hasattr(trained, "values"):
            self.audit = audit_critics(trained, self.run.config.policies, seed=self.seed)
        else:
            raise ValueError(f"{self.run.config.trainer} does not tell its values")
        self.looked.append(f"{self.audit.env_steps:,} env steps of forked moments")
        self.found += against_truth(self.audit)

    def by_imitation(self) -> None:
        self.imitation = imitate(self.run.config, self.made[0], seed=self.seed)
        self.looked.append(f"its network, taught to play as {self.imitation.teacher}")
        if (one := cannot_imitate(self.imitation)) is not None:
            self.found.append(one)


PARTS = 8
"""Parts of a diagnosis, for the progress bar."""

OF_UPDATES = ("networks", "play", "updates", "losses")
"""Modules of rules over what goes into an update and comes out of it."""

ANNEALED = ("learning-rate-zero",)
ADVANTAGES = next(k for k, rule in enumerate(RULES) if rule.__name__ == "zero_advantages")
"""Rank of what is wrong with advantages."""

RAISES = tuple(cause for cause, *_ in RAISED.values())


def _cut_off(evidence: Evidence) -> tuple[str, ...]:
    """Return the modules of rules that have half of their evidence, where training broke off."""
    # A network is refused at an update's end; an illegal action ends a rollout, after whole ones.
    whole = {"": (), "ModelError": (), "IllegalActionError": OF_UPDATES[:1]}
    return whole.get(evidence.error_kind, OF_UPDATES)


def _said(error: BaseException, *, named: bool = True) -> str:
    """Return an error in a line; its kind, where the line alone would not tell."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    if not text:
        return kind
    ours = isinstance(error, CorralError) or type(error) is ValueError
    return text if ours or not named else f"{kind}: {text}"


def _shortened(run: Run, trainer: Any) -> Any:
    """Return the run's configuration with a time limit within a rollout; None: it has one, or the
    environment's time limit is its own."""
    rules = trainer.rules
    if not plays_as_arrays(rules) or rules.max_cycles is None:
        return None
    limit = max(2, trainer.settings.n_steps // 3)
    if rules.max_cycles <= limit:
        return None
    env_config = dataclasses.replace(
        run.config.env_config, own_rules=with_limit(run.config.env_config.rules(), limit)
    )
    return dataclasses.replace(run.config, env_config=env_config)
