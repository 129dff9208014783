"""Diagnose a run that does not learn: a verdict and its measurements.

    diagnosis = corral.diagnose("runs/mine")
    print(diagnosis.healthy, diagnosis.findings[0].title)

The run itself does not change: the played and learned steps are discarded. If a part of the run
cannot be examined, the diagnosis states the reason and examines the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.registry import Api
from corral.errors import concise
from corral.lab.doctor.audit import Audit
from corral.lab.doctor.causes import by_cause
from corral.lab.doctor.facts import Fact, facts_of
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation
from corral.lab.doctor.looking import SECONDS, Looking
from corral.lab.doctor.verdict.commands import Step, next_steps
from corral.lab.doctor.verdict.learning import Learning
from corral.progress import Progress, cell_progress
from corral.results import Result
from corral.trainers.rng import GlobalGenerators
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.trends import Change

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """Whether a run learns, its faults, most likely cause first, and the examined parts.

    ``verdict`` is one of three:

    | | |
    |---|---|
    | "learns" | better than random play, and than the untrained policies or optimal: the sum of |
    |  | returns or, if rewards differ between agents, each agent alone among random players |
    | "fault" | it does not learn; ``findings`` state why |
    | "no fault" | it does not learn, or that is unknown; ``next_steps`` are commands |
    """

    json_file, csv_file, indent = "diagnosis.json", "diagnosis.csv", 1

    run: str
    about: str  # a description: trainer, environment, env steps
    learning: Learning | None  # None: it cannot be played
    findings: tuple[Finding, ...]
    next_steps: tuple[Step, ...]  # without a fault; else empty
    facts: tuple[Fact, ...]
    changes: dict[str, dict[str, Change]]  # policy -> quantity -> its change over the run
    imitation: Imitation | None
    audit: Audit | None
    looked_at: tuple[str, ...]  # descriptions of the examined parts
    not_looked_at: tuple[str, ...]  # parts that could not be examined, with the reason
    seconds: float

    @property
    def verdict(self) -> str:
        """Return "learns", "fault" or "no fault"; see the class."""
        if self.learning is not None and self.learning.learns:
            return "learns"
        return "fault" if self.faulty else "no fault"

    @property
    def healthy(self) -> bool:
        """True if the run learns; ``corral doctor`` then exits with status 0."""
        return self.verdict == "learns"

    @property
    def faulty(self) -> bool:
        """True if a finding is certain or most likely."""
        return any(finding.certainty >= 2 for finding in self.findings)

    def text(self, width: int = 80) -> str:
        """Return the whole diagnosis, verdict first, in lines of at most ``width``."""
        from corral.lab.doctor.text import diagnosis_text

        return diagnosis_text(self, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per finding, with the fields of ``Finding`` as columns."""
        columns = [field.name for field in fields(Finding)]
        return pd.DataFrame([vars(finding) for finding in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, plus "healthy" and "verdict"."""
        return {"healthy": self.healthy, "verdict": self.verdict, **super().to_json()}


@concise
def diagnose(
    run: str | Path | Run,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
    audited: bool = True,
    cloned: bool = True,
    checked: bool = True,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Progress = cell_progress,
) -> Diagnosis:
    """Judge whether a run learns, and find the reasons why not, in about a minute.

    The run folder and the global random generators do not change.

    Args:
        run: a run, or its folder.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``.
        audited: compare values and advantages with true returns, if the environment can be forked.
        cloned: test whether the run's network can imitate the best reference team.
        checked: if the run does not learn, check its environment and test if choices matter.
        seconds: approximate time, without waiting for a CPU. A part that
            needs more examines less, or is left out; ``not_looked_at`` says so.
        seed: seed of the doctor's random numbers.
        progress: called with the name of the current part, the number done, and the total.

    Raises the errors of ``load_run``; ValueError if ``seconds`` is not above 0; also
    UnknownNameError, EnvNeededError or MissingExtraError if an argument or a package is missing.
    """
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: pass a number above 0")
    if not isinstance(run, Run):
        run = load_run(run, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
    began = time.perf_counter()
    looking = Looking(run, seed, progress, seconds)
    try:
        with GlobalGenerators(seed):
            looking.look(audited, cloned, checked)
        findings = by_cause(looking.findings, looking.rank)
        return Diagnosis(
            run.name,
            f"{run.config.trainer} on {run.config.env_config.env}{looking.steps}",
            looking.learning,
            findings,
            steps_without_fault(looking, findings),
            facts_of(looking.beginning, looking.latest),
            looking.changes,
            looking.imitation,
            looking.audit,
            tuple(looking.examined),
            tuple(dict.fromkeys(looking.skipped)),
            time.perf_counter() - began,
        )
    finally:
        looking.close()


def steps_without_fault(looking: Looking, findings: Sequence[Finding]) -> tuple[Step, ...]:
    """Return the next steps for a run that does not learn without a fault; else none."""
    if looking.learns or any(finding.certainty >= 2 for finding in findings):
        return ()
    choices = None if looking.environment is None else looking.environment.choices
    return tuple(next_steps(looking.run, looking.learning, choices))
