"""Say why a run does not learn: a verdict, and what was measured.

    diagnosis = corral.diagnose("runs/mine")
    print(diagnosis.healthy, diagnosis.findings[0].title)

The run itself stays as it is: what is played and learned here is thrown away.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.adapters.sources import EnvLike
from corral.envs.core import with_limit
from corral.errors import CheckpointError
from corral.trainers.doctor.audit import Audit, audit
from corral.trainers.doctor.evidence import gather
from corral.trainers.doctor.findings import Finding, findings
from corral.trainers.doctor.findings.credited import credited
from corral.trainers.doctor.findings.truth import against_truth
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
    looked: list[str] = []
    left: list[str] = []
    first = fresh()
    if not hasattr(first, "algorithm"):
        left.append(f"{loaded.config.trainer} is another library's: its updates cannot be watched")
        return Diagnosis(loaded.name, (), None, tuple(looked), tuple(left))
    found: list[Finding] = []
    progress("its beginning")
    looked.append("three updates from its beginning")
    evidence = gather(first, fresh, seed=seed, twins=True)
    found += findings(evidence)
    progress("ends and time limits")
    if (shorter := _shortened(loaded, first)) is not None:
        looked.append("an update with a time limit of a few steps")
        short = gather(shorter(), shorter, updates=1, seed=seed)
        found += findings(short)
        found += credited(short)
    else:
        found += credited(evidence)
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
                found += list(against_truth(report))
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
