"""Say why a run does not learn: a verdict, and what was measured.

    diagnosis = corral.diagnose("runs/mine")
    print(diagnosis.healthy, diagnosis.findings[0].title)

The run itself stays as it is: what is played and learned here is thrown away.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike
from corral.envs.core import with_limit
from corral.errors import CheckpointError
from corral.trainers.doctor.audit import Audit, audit
from corral.trainers.doctor.credit import Credit, credit
from corral.trainers.doctor.evidence import Evidence, gather
from corral.trainers.doctor.findings import Finding, findings
from corral.trainers.runs.run import Run, load_run

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, most likely cause first; and what was looked at."""

    run: str
    findings: tuple[Finding, ...]
    audit: Audit | None
    looked_at: tuple[str, ...]  # in words
    not_looked_at: tuple[str, ...]  # with the reason
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """True where nothing was found that is surely, or most likely, wrong."""
        return all(each.certainty < 2 for each in self.findings)


def diagnose(
    run: str | Path | Run,
    env: EnvLike | None = None,
    *,
    audited: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
    **given: Any,
) -> Diagnosis:
    """Look for what keeps a run from learning.

    Args:
        run: a run, or its folder.
        env: and ``given``, see ``corral.load_run``.
        audited: compare values and advantages with the truth, where moments can be forked.
        seed: of what is drawn for it.
        progress: is called with what is looked at.
    """
    began = time.perf_counter()
    loaded = run if isinstance(run, Run) else load_run(run, env, **given)
    fresh = loaded.begun
    looked, left = [], []
    first = fresh()
    if not hasattr(first, "algorithm"):
        left.append(f"{loaded.config.trainer} is another library's: its updates cannot be watched")
        return Diagnosis(loaded.name, (), None, tuple(looked), tuple(left))
    found: list[Finding] = []
    progress("its beginning")
    looked.append("three updates from its beginning")
    evidence = gather(first, fresh, seed=seed)
    found += findings(evidence)
    progress("ends and time limits")
    if (shorter := _shortened(loaded, first)) is not None:
        looked.append("an update with a time limit of a few steps")
        short = gather(shorter(), shorter, updates=1, seed=seed)
        found += findings(short)
        found += _credited(short)
    else:
        found += _credited(evidence)
    try:
        trained = loaded._trained()
    except CheckpointError as error:
        left.append(f"no checkpoint: {error}")
        trained = None
    report = None
    if trained is not None and trained.env_steps:
        progress("its latest checkpoint")
        looked.append("an update from its latest checkpoint")
        found += [
            one
            for one in findings(gather(trained, fresh, updates=1, seed=seed))
            if one.cause != "learning-rate-zero"
        ]  # what is annealed ends at 0
        if audited:
            progress("the truth")
            try:
                report = audit(loaded._trained(), seed=seed)
                looked.append(f"{report.env_steps:,} env steps of forked moments")
                found += list(_against_truth(report))
            except ValueError as error:
                left.append(f"the truth: {error}")
    return Diagnosis(
        loaded.name,
        tuple(_once(found)),
        report,
        tuple(looked),
        tuple(left),
        time.perf_counter() - began,
    )


def _once(found: list[Finding]) -> list[Finding]:
    """Return each cause of a policy once, the surest first."""
    kept: dict[tuple[str, str], Finding] = {}
    for one in found:
        kept.setdefault((one.cause, one.policy), one)
    return sorted(kept.values(), key=lambda one: -one.certainty)


def _shortened(run: Run, trainer: Any) -> Callable[[], Any] | None:
    """Return what makes the run's trainer with a time limit within a rollout; None: it has one."""
    rules = trainer.rules
    if hasattr(rules, "make_batch") or rules.max_cycles is None:
        return None
    limit = max(2, trainer.settings.n_steps // 3)
    if rules.max_cycles <= limit:
        return None
    env_config = dataclasses.replace(
        run.config.env_config, own_rules=with_limit(run.config.env_config.rules(), limit)
    )
    config = dataclasses.replace(run.config, env_config=env_config)
    return config.make_trainer


# --- From credit and audit to findings -----------------------------------------------------------


def _credited(evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with the advantages, as functions of rewards and values."""
    trainer = evidence.trainer
    for found in evidence.policies.values():
        for given, terminated, truncated in zip(
            found.trajectories, found.terminated, found.truncated, strict=False
        ):
            if not given.valid.any():
                continue
            told = credit(
                trainer.algorithm.advantages, given, trainer.settings, terminated, truncated
            )
            yield from _of_credit(told, found.policy)
            break


def _of_credit(told: Credit, policy: str) -> Iterator[Finding]:
    if told.opposite:
        yield Finding(
            "advantage-sign",
            "Advantages have the wrong sign: what pays is made rarer.",
            "a larger reward lowers the advantage of the decision before it",
            "a larger reward raises it",
            "advantage = return - value; the loss is minimized, so it has -advantage * log_prob",
            3,
            policy,
        )
    elif told.own is False:
        yield Finding(
            "advantage-elsewhere",
            "A reward does not reach the decision that earned it.",
            "a reward that is made huge raises other decisions' advantages, or none",
            "the advantage of the decision that it followed rises most",
            "look for shuffled or reshaped arrays: [T, B] read as [B, T], a permutation applied "
            "to one array alone, advantages that are all the same",
            3,
            policy,
        )
    if told.past_end:
        yield Finding(
            "end-ignored",
            "Rewards of the next episode are credited to decisions before the end.",
            "a reward after an end changes advantages before it",
            "advantages stop where an episode ends",
            "cut the trace where done = terminated | truncated",
            3,
            policy,
        )
    elif told.from_reset:
        yield Finding(
            "bootstraps-from-reset",
            "The value of the next episode's first observation counts as what follows an end.",
            "V of the observation after a reset changes advantages before it",
            "V(final observation) where truncated, 0 where terminated",
            "bootstrap from the final observation, which autoreset replaces",
            3,
            policy,
        )
    elif told.limit is False and told.own:
        yield Finding(
            "limit-taken-for-end",
            "A time limit is taken for an end: what would follow counts nothing.",
            "V of the last observation before a time limit changes no advantage",
            "reward + gamma V(final observation) where truncated",
            "bootstrap where truncated; let only terminated set V(next) to 0",
            3,
            policy,
        )


def _against_truth(report: Audit) -> Iterator[Finding]:
    """Yield what the audit says is wrong, where its noise allows to say it."""
    for each in report.policies:
        signal = float(np.std(each.value))
        noise = float(np.sqrt(np.mean(each.value_error**2)))
        correlation = each.value_correlation
        # Given one future, the truth holds what no critic can know: no alarm.
        if not report.given_this_future and correlation is not None and signal > 5 * noise:
            if correlation < 0.1:
                yield Finding(
                    "critic-blind",
                    "The critic does not see what its values depend on.",
                    f"values correlate {correlation:.2f} with the true ones of {each.moments} "
                    "moments",
                    "0.5 or more after training, where true values differ",
                    "look at what the critic is given, its learning rate, and its targets",
                    2,
                    each.policy,
                )
