"""Say why a run does not learn: a verdict, and what was measured.

    diagnosis = corral.diagnose("runs/mine")
    print(diagnosis.healthy, diagnosis.findings[0].title)

The run itself stays as it is: what is played and learned here is thrown away. Whatever cannot be
looked at is told with the reason, and the rest is.
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
    """What is wrong with a run, most likely cause first; and what was looked at."""

    json_file, csv_file, indent = "diagnosis.json", "diagnosis.csv", 1

    run: str
    about: str  # in words: trainer, environment, env steps
    findings: tuple[Finding, ...]
    facts: tuple[Fact, ...]
    trend: Trend | None  # of progress.csv
    played: Played | None
    imitation: Imitation | None
    audit: Audit | None
    looked_at: tuple[str, ...]  # in words
    not_looked_at: tuple[str, ...]  # with the reason
    seconds: float

    @property
    def healthy(self) -> bool:
        """True where nothing was found that is surely, or most likely, wrong."""
        return all(each.certainty < 2 for each in self.findings)

    def text(self, width: int = 80) -> str:
        """Return all of it, verdict first, in lines of at most ``width``."""
        from corral.lab.doctor.text import diagnosis_text

        return diagnosis_text(self, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each finding, with the fields of ``Finding`` as columns."""
        columns = [each.name for each in fields(Finding)]
        return pd.DataFrame([vars(each) for each in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values, with what follows from it: "healthy"."""
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
    """Look for what keeps a run from learning, in about a minute.

    The folder of the run stays as it is, and so do the global random generators.

    Args:
        run: a run, or its folder.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``.
        audited: compare values and advantages with the truth, where moments can be forked.
        cloned: try whether its network can play as the best reference team.
        seed: of what is drawn for it.
        progress: is called with what is looked at, how many parts are done, and of how many.

    Raises what ``load_run`` raises, and UnknownNameError, EnvNeededError or MissingExtraError for
    what must be given or installed first.
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
            by_cause(looking.found, looking.rank),
            facts_of(looking.beginning, looking.latest),
            looking.trend,
            looking.played,
            looking.imitation,
            looking.audit,
            tuple(looking.looked),
            tuple(dict.fromkeys(looking.left)),
            time.perf_counter() - began,
        )
    finally:
        looking.close()
