"""Examine a run part by part, and collect the findings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from corral.clock import Clock
from corral.envs.core import plays_as_arrays, with_limit
from corral.errors import CorralError, EnvNeededError, MissingExtraError, UnknownNameError
from corral.lab.doctor.audit import Audit, audit
from corral.lab.doctor.audit.critics import audit_critics
from corral.lab.doctor.audit.findings import against_truth
from corral.lab.doctor.causes import RAISED, cannot_imitate, raised
from corral.lab.doctor.evidence.gathering import gather
from corral.lab.doctor.evidence.record import Evidence
from corral.lab.doctor.findings.credited import credited
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.rules import RULES
from corral.lab.doctor.findings.signals import avoided_goal
from corral.lab.doctor.imitation import Imitation, imitate
from corral.lab.doctor.verdict.checks import BESIDE_PLAY, Examined, examined
from corral.lab.doctor.verdict.learning import Learning, judge, judge_clone
from corral.lab.doctor.verdict.notes import play_findings, progress_changes
from corral.lab.doctor.watching.columns import column_findings, gather_columns, has_columns
from corral.lab.doctor.watching.progress import progress_findings
from corral.progress import Progress
from corral.trainers.cloning.trainer import Clone
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.runs.run import Run
from corral.trainers.runs.trends import Change

__all__ = ["Looking"]

UPDATES, MAX_STEPS = 3, 60_000
"""Number of recorded updates from the start, and the maximum of their env steps together."""

SECONDS, LEAST = 45.0, 2.0
"""CPU time of a diagnosis, which updates and then its parts share; and the least of a part."""

PART_SECONDS = {"play": 10.0, "truth": 15.0, "imitation": 10.0, "check": 15.0, "choices": 8.0}
"""CPU time of each part, in their order, of ``SECONDS``. If little is left, all get less, in
proportion."""

OF_CLONING = (
    *("networks", "scales", "stored_masks", "misplaced_obs", "stored_rewards", "not_finite"),
    *("nothing_moves", "mask_lies", "greedy_legal", "same_after_reload", "reported_returns"),
)
"""Rules, or modules of rules, that apply to runs that clone a teacher.

The teacher plays, and cloning does not use advantages.
"""

ASKED_FOR = (EnvNeededError, MissingExtraError, UnknownNameError)
"""Errors that the user can correct with another argument; they end the diagnosis."""


class Looking:
    """Examines a run part by part, and collects findings and skipped parts."""

    def __init__(self, run: Run, seed: int, progress: Progress, seconds: float = SECONDS) -> None:
        self.run, self.seed, self.progress, self.seconds = run, seed, progress, seconds
        self.findings: list[Finding] = []
        self.rank: dict[str, int] = {}  # cause -> distance from the root
        self.examined: list[str] = []
        self.skipped: list[str] = []
        self.trainers: list[Any] = []  # closed at the end
        self.clock = Clock()
        self.parts = 0
        self.beginning: Evidence | None = None
        self.latest: Evidence | None = None
        self.steps = ""
        self.learning: Learning | None = None
        self.environment: Examined | None = None
        self.changes: dict[str, dict[str, Change]] = {}
        self.imitation: Imitation | None = None
        self.audit: Audit | None = None

    def look(self, audited: bool, cloned: bool, checked: bool) -> None:
        """Examine every part, from cheap and certain to slow."""
        in_house = False
        with self.part("trainer"):
            first = self.begun()
            in_house = isinstance(first, OnPolicyTrainer)
        if in_house:
            with self.part("first updates"):
                self.at_its_beginning(first)
            with self.part("ends and time limits"):
                self.at_ends()
        elif self.trainers and has_columns(self.trainers[0]):
            with self.part("first updates"):
                self.in_columns(self.trainers[0])
        elif self.trainers:
            self.skipped.append(
                f"updates: the trainer {self.run.config.trainer} does not support observers"
            )
        has_checkpoint = False
        if self.trainers:
            with self.part("checkpoint"):
                has_checkpoint = self.at_its_checkpoint(in_house)
        with self.part("progress.csv"):
            self.in_progress()
        if has_checkpoint:
            with self.part("play against random play and the start"):
                self.in_play()
        if not self.clones:
            with self.part("the run's trends"):
                self.over_time()
        if has_checkpoint and audited and not self.clones:
            with self.part("true returns"):
                self.against_the_truth(in_house)
        if in_house and cloned and not self.clones:
            with self.part("imitation of a reference team"):
                self.by_imitation()
        if checked and not self.clones:
            with self.part("the environment"):
                self.at_the_environment()
        self.progress("", PARTS, PARTS)

    def seconds_for(self, part: str) -> float:
        """Return the CPU time of a part. Later parts keep their shares of the rest."""
        names = list(PART_SECONDS)
        later = sum(PART_SECONDS[name] for name in names[names.index(part) :])
        scale = (self.seconds - self.clock.seconds()) / later
        return max(LEAST, PART_SECONDS[part] * min(self.seconds / SECONDS, scale))

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Examine one part; if it raises, record the error as the reason for skipping it."""
        self.progress(name, self.parts, PARTS)
        self.parts += 1
        try:
            yield
        except ASKED_FOR:
            raise
        except Exception as error:  # custom environments, networks and trainers may raise anything
            self.skipped.append(f"{name}: {_message(error)}")

    def begun(self, config: Any = None) -> Any:
        """Return the untrained trainer of the run, or of another ``config``."""
        made: Any = self.run.begun() if config is None else config.make_trainer()
        self.trainers.append(made)
        return made

    def trained(self) -> Any:
        """Return the run's trainer, loaded from its checkpoint."""
        trained: Any = self.run._trained()
        self.trainers.append(trained)
        return trained

    def at_its_last_rate(self, trained: Any) -> Any:
        """Put a trainer at the end of its plan back by an update: an annealed rate would be 0."""
        if trained.env_steps >= trained.steps:
            trained.env_steps -= min(trained.rollout_steps, trained.env_steps)
        return trained

    @property
    def clones(self) -> bool:
        """True if the run clones a teacher, so that rewards do not matter."""
        return bool(self.trainers) and isinstance(self.trainers[0], Clone)

    @property
    def learns(self) -> bool:
        """True if play shows that the run learns."""
        return self.learning is not None and self.learning.learns

    def close(self) -> None:
        for item in self.trainers:
            with contextlib.suppress(Exception):
                item.close()

    # --- Parts -----------------------------------------------------------------------------------

    def at_its_beginning(self, first: Any) -> None:
        """Record the first updates, repeated from the run's start."""
        updates = max(1, min(UPDATES, MAX_STEPS // first.rollout_steps))
        evidence = self.watched(first, "first updates", updates)
        if evidence is None:
            return
        self.beginning = evidence
        count = max((len(policy.metrics) for policy in evidence.policies.values()), default=0)
        self.examined.append(f"{count} update{'s' * (count != 1)} from the start")
        self.by_rules(evidence)

    def in_columns(self, first: Any) -> None:
        """Record updates of Stable-Baselines3 through its rollout buffers."""
        updates = max(1, min(UPDATES, MAX_STEPS // first.rollout_steps))
        self.beginning = evidence = gather_columns(
            first, updates=updates, seed=self.seed, twins=True
        )
        self.examined.append(f"{updates} updates from the start, through their rollout buffers")
        if evidence.error:
            self.fail(evidence.error_kind, evidence.error)
        self.findings += column_findings(evidence)

    def at_ends(self) -> None:
        """Record an update with a time limit shorter than the rollout, and test the advantages."""
        if self.clones:
            return
        evidence = self.beginning
        config = _shortened(self.run, self.trainers[0])
        if config is not None:
            evidence = self.watched(self.begun(config), "ends and time limits", 1, config)
        if evidence is None:
            return
        if config is not None:
            self.examined.append("an update with a time limit of a few steps")
            self.by_rules(evidence)
        if not evidence.error:
            findings = list(credited(evidence))
            self.rank |= {finding.cause: ADVANTAGES for finding in findings}
            self.findings += findings

    def at_its_checkpoint(self, in_house: bool) -> bool:
        """Record an update from the checkpoint; return True if the checkpoint can play.

        Raises CheckpointError if the run has no checkpoint.
        """
        trained = self.trained()
        if not in_house or not trained.env_steps:
            return True
        evidence = self.watched(self.at_its_last_rate(trained), "checkpoint", 1, checkpoint=True)
        if evidence is not None:
            self.latest = evidence
            self.examined.append("an update from the checkpoint")
            earlier = {(finding.cause, finding.policy) for finding in self.findings}
            before = len(self.findings)
            self.by_rules(evidence)
            # A schedule that ends at 0 is no fault.
            self.findings[before:] = [
                finding
                for finding in self.findings[before:]
                if (finding.cause, finding.policy) in earlier or finding.cause not in ANNEALED
            ]
        return True

    def watched(
        self,
        trainer: Any,
        name: str,
        updates: int,
        config: Any = None,
        *,
        checkpoint: bool = False,
    ) -> Evidence | None:
        """Return the evidence of some updates; an exception in training becomes a finding.

        An exception is the training's only if the same updates raise unobserved.
        """

        def again() -> Any:
            return self.at_its_last_rate(self.trained()) if checkpoint else self.begun(config)

        try:
            trainer.check()
            evidence = gather(
                trainer,
                lambda: self.begun(config),
                updates=updates,
                seed=self.seed,
                twins=trainer is self.trainers[0],
            )
        except ASKED_FOR:
            raise
        except Exception as error:
            self.skipped.append(f"{name}: {_message(error)}")
            if any(finding.cause in RAISES for finding in self.findings):
                return None  # already reported
            if (unobserved := _raised_unobserved(again, updates)) is not None:
                self.fail(type(unobserved).__name__, _message(unobserved, named=False))
            return None
        if evidence.error:
            unobserved = _raised_unobserved(again, updates)
            if unobserved is None:
                self.skipped.append(f"{name}: {evidence.error_kind}: {evidence.error}")
                return None
            evidence.error, evidence.error_kind = str(unobserved), type(unobserved).__name__
        return evidence

    def fail(self, kind: str, message: str) -> None:
        """Record that training raises; this finding is nearest to the root."""
        self.findings.append(raised(kind, message))
        self.rank[self.findings[-1].cause] = -1

    def by_rules(self, evidence: Evidence) -> None:
        """Apply every rule; skip rules with incomplete evidence if training raised."""
        findings: list[Finding] = []
        for number, rule in enumerate(RULES):
            module = rule.__module__.rpartition(".")[2]
            foreign = self.clones and not {module, rule.__name__} & set(OF_CLONING)
            if foreign or module in _cut_off(evidence):
                continue
            for policy in evidence.policies.values():
                try:
                    finding = rule(policy, evidence)
                except Exception as error:
                    if not evidence.error:
                        self.skipped.append(f"{rule.__name__.replace('_', ' ')}: {_message(error)}")
                    continue
                if finding is not None:
                    findings.append(finding)
                    self.rank.setdefault(finding.cause, number)
        reported = any(evidence.error in finding.measured for finding in findings)
        if evidence.error and not reported:
            self.fail(evidence.error_kind, evidence.error)
        self.findings += findings

    def in_progress(self) -> None:
        """Read progress.csv."""
        progress = self.run.progress
        if len(progress) and "env_steps" in progress:
            played, planned = int(progress["env_steps"].iloc[-1]), self.run.config.steps
            of = f" of {planned:,}" if played < planned else ""
            self.steps = f": {played:,}{of} env steps in {len(progress):,} updates"
        self.examined.append(f"{len(progress):,} rows of progress.csv")
        self.findings += progress_findings(self.run)

    def in_play(self) -> None:
        """Play the checkpoint, random play, reference teams and the untrained policies."""
        team = self.trained().policies
        if self.clones:
            self.learning = judge_clone(self.run, team, self.begun().policies, seed=self.seed)
            return
        start = Run(self.run.folder, self.run.config, "0")._trained()
        self.trainers.append(start)
        self.learning = learning = judge(
            self.run, team, start.policies, seed=self.seed, seconds=self.seconds_for("play")
        )
        self.skipped += learning.skipped
        self.examined.append(learning.described)
        entropy = bool(self.run.config.settings.get("ent_coef"))
        self.findings += play_findings(learning, ent_coef=entropy)

    def over_time(self) -> None:
        """Compare the return, episodes, entropy and masks with the run's own beginning."""
        changes, findings = progress_changes(
            self.run, self.beginning, self.latest, learns=self.learns
        )
        self.changes = changes
        self.findings += findings
        if self.beginning is not None and self.latest is not None:
            pairs = [
                (record, self.latest.policies[name])
                for name, record in self.beginning.policies.items()
                if name in self.latest.policies
            ]
            avoided = (avoided_goal(first, last) for first, last in pairs)
            self.findings += [finding for finding in avoided if finding is not None]
        if self.learns:  # play shows more than the noisy progress
            self.findings = [one for one in self.findings if one.cause not in DENIED]

    def at_the_environment(self) -> None:
        """Check the environment; if the run does not learn, also test if choices matter in it."""
        self.environment = examined(
            self.run.config.env_config.rules(),
            self.seconds_for,
            seed=self.seed,
            learns=self.learns,
        )
        self.findings += self.environment.findings
        # An error of the check is exact: it is the first note, too, unless play does not meet it.
        beside = {f"check-{name}" for name in (*BESIDE_PLAY, "other-seeds")}
        self.rank |= {
            one.cause: -1
            for one in self.environment.findings
            if one.certainty >= 2 or one.cause not in beside
        }
        self.examined += self.environment.descriptions
        self.skipped += self.environment.skipped

    def against_the_truth(self, in_house: bool) -> None:
        trained = self.trained()
        if not trained.env_steps:
            raise ValueError("the checkpoint has 0 env steps, so nothing is trained")
        seconds = self.seconds_for("truth")
        if in_house:
            self.audit = audit(trained, seed=self.seed, seconds=seconds)
        elif hasattr(trained, "values"):
            policies = self.run.config.policies
            self.audit = audit_critics(trained, policies, seed=self.seed, seconds=seconds)
        else:
            raise ValueError(f"the trainer {self.run.config.trainer} does not provide values")
        self.examined.append(f"{self.audit.env_steps:,} env steps of forked episodes")
        if self.audit.copied is not None:
            self.examined.append(self.audit.copied.text())
        if self.audit.cut:
            self.skipped.append("better actions in some forked states, for lack of time")
        self.findings += against_truth(self.audit)

    def by_imitation(self) -> None:
        self.imitation = imitate(
            self.run.config,
            self.trainers[0],
            seed=self.seed,
            seconds=self.seconds_for("imitation"),
        )
        self.examined.append(f"the network, trained to imitate {self.imitation.teacher}")
        if self.imitation.cut:
            self.skipped.append("later updates of this imitation, for lack of time")
        if (finding := cannot_imitate(self.imitation)) is not None:
            self.findings.append(finding)


PARTS = 10
"""Number of parts of a diagnosis, for the progress bar."""

OF_UPDATES = ("networks", "play", "updates", "losses")
"""Modules of rules about the inputs and results of an update."""

ANNEALED = ("learning-rate-zero", "policy-unchanged")
ADVANTAGES = next(k for k, rule in enumerate(RULES) if rule.__name__ == "zero_advantages")
"""Rank of findings about advantages."""

DENIED = ("returns-flat", "entropy-flat")
"""Causes that contradict the verdict that the run learns."""

RAISES = tuple(cause for cause, *_ in RAISED.values())


def _raised_unobserved(again: Callable[[], Any], updates: int) -> Exception | None:
    """Return the exception of unobserved ``updates`` of another such trainer; None if all work."""
    try:
        trainer = again()
        trainer.begin()
        for _ in range(updates):
            trainer.learn_from(*trainer.collect())
    except Exception as error:  # user functions may raise anything
        return error
    return None


def _cut_off(evidence: Evidence) -> tuple[str, ...]:
    """Return the modules of rules with incomplete evidence after an exception in training."""
    # ModelError ends an update; IllegalActionError ends a rollout after complete updates.
    whole = {"": (), "ModelError": (), "IllegalActionError": OF_UPDATES[:1]}
    return whole.get(evidence.error_kind, OF_UPDATES)


def _message(error: BaseException, *, named: bool = True) -> str:
    """Return an error in one line, with its class if the message alone is unclear."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    if not text:
        return kind
    ours = isinstance(error, CorralError) or type(error) is ValueError
    return text if ours or not named else f"{kind}: {text}"


def _shortened(run: Run, trainer: Any) -> Any:
    """Return the run's configuration with a time limit shorter than a rollout.

    Return None if the time limit is already that short or belongs to a third-party environment.
    """
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
