"""Diagnose a run that does not learn: a verdict and its measurements.

    diagnosis = corral.diagnose("runs/mine")
    print(diagnosis.healthy, diagnosis.findings[0].title)

The run itself does not change: the played and learned steps are discarded. If a part of the run
cannot be examined, the diagnosis states the reason and examines the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.registry import Api
from corral.lab.doctor.audit import Audit
from corral.lab.doctor.causes import by_cause
from corral.lab.doctor.facts import Fact, Played, Trend, facts_of
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation
from corral.lab.doctor.looking import Looking
from corral.progress import Progress
from corral.results import Result
from corral.trainers.rng import GlobalGenerators
from corral.trainers.runs.run import Run, load_run

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis(Result):
    """Faults of a run, most likely cause first, and the examined parts."""

    json_file, csv_file, indent = "diagnosis.json", "diagnosis.csv", 1

    run: str
    about: str  # a description: trainer, environment, env steps
    findings: tuple[Finding, ...]
    facts: tuple[Fact, ...]
    trend: Trend | None  # of progress.csv
    played: Played | None
    imitation: Imitation | None
    audit: Audit | None
    looked_at: tuple[str, ...]  # descriptions of the examined parts
    not_looked_at: tuple[str, ...]  # parts that could not be examined, with the reason
    seconds: float

    @property
    def healthy(self) -> bool:
        """True if no finding is certain or most likely."""
        return all(finding.certainty < 2 for finding in self.findings)

    def text(self, width: int = 80) -> str:
        """Return the whole diagnosis, verdict first, in lines of at most ``width``."""
        from corral.lab.doctor.text import diagnosis_text

        return diagnosis_text(self, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per finding, with the fields of ``Finding`` as columns."""
        columns = [field.name for field in fields(Finding)]
        return pd.DataFrame([vars(finding) for finding in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, plus "healthy"."""
        return {"healthy": self.healthy, **super().to_json()}


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
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Find the reasons why a run does not learn, in about a minute.

    The run folder and the global random generators do not change.

    Args:
        run: a run, or its folder.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``.
        audited: compare values and advantages with true returns, if the environment can be forked.
        cloned: test whether the run's network can imitate the best reference team.
        seed: seed of the doctor's random numbers.
        progress: called with the name of the current part, the number done, and the total.

    Raises the errors of ``load_run``; also UnknownNameError, EnvNeededError or MissingExtraError if
    an argument or a package is missing.
    """
    if not isinstance(run, Run):
        run = load_run(run, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
    began = time.perf_counter()
    looking = Looking(run, seed, progress or (lambda what, done, total: None))
    try:
        with GlobalGenerators(seed):
            looking.look(audited, cloned)
        return Diagnosis(
            run.name,
            f"{run.config.trainer} on {run.config.env_config.env}{looking.steps}",
            by_cause(looking.findings, looking.rank),
            facts_of(looking.beginning, looking.latest),
            looking.trend,
            looking.played,
            looking.imitation,
            looking.audit,
            tuple(looking.examined),
            tuple(dict.fromkeys(looking.skipped)),
            time.perf_counter() - began,
        )
    finally:
        looking.close()
