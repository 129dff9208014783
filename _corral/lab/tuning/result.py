"""The result of ``corral.tune``: trials, the best trial, and the importance of settings."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corral.lab.jobs import Job
from corral.lab.tuning import pictures
from corral.lab.tuning.judging import ReferencePlay
from corral.lab.tuning.phrases import counted
from corral.lab.tuning.plan import Plan, optuna, quiet
from corral.lab.tuning.space import Parameters, text_of
from corral.results import Result, csv_text, plain
from corral.trainers.runs.run_config import RunConfig

__all__ = ["CURVES", "Best", "Study", "Trial"]

ENOUGH = 10
"""Minimum number of complete trials to state the importance of searched settings."""

INTERACTION = "interaction of settings"
"""Variance explained by combinations of settings, beyond the single settings."""

CURVES = "curves.svg"


@dataclass(frozen=True)
class Trial:
    """A trial: its parameters and its outcome."""

    number: int
    parameters: Parameters
    state: str  # "complete", "pruned", "failed"; "running" if it is not finished
    values: Mapping[int, float]  # seed -> value of its run, for the judged runs
    env_steps: Mapping[int, int]  # seed -> env steps of its run
    runs: Mapping[int, Path]  # seed -> folder
    reason: str = ""  # reason of a failure, or env steps of pruning

    @property
    def value(self) -> float | None:
        """Mean over the seeds; None if the trial is not complete."""
        return statistics.fmean(self.values.values()) if self.state == "complete" else None


@dataclass(frozen=True)
class Best:
    """The best trial, and how to repeat it."""

    number: int
    params: Parameters
    value: float  # mean validation value over seeds, biased upward by the selection
    values: Mapping[int, float]
    command: str  # trains all its seeds again, in a POSIX shell
    run: Path  # of the first seed
    runs: Mapping[int, Path]


@dataclass(frozen=True)
class Study(Result):
    """All trials of a study. A higher value is better."""

    json_file = "trials.json"

    folder: Path
    plan: Plan
    measure: str  # description of the values
    learners: tuple[str, ...]
    trials: Sequence[Trial]
    optuna_trials: Any = None  # Optuna's trials
    played: int = 0  # trials that ended in this call; 0 if the study was complete
    config: RunConfig | None = None  # configuration of one of the runs
    reference_play: ReferencePlay | None = (
        None  # values for comparison with the best trial; None: no best trial
    )

    def __repr__(self) -> str:
        return f"<Study {str(self.folder)!r}: {self.counted()}>"

    @property
    def counts(self) -> dict[str, int]:
        """State -> number of trials."""
        states = [trial.state for trial in self.trials]
        return {state: states.count(state) for state in ("complete", "pruned", "failed", "running")}

    def counted(self) -> str:
        """Return the number of trials in each state, in words."""
        counts = [f"{n} {state}" for state, n in self.counts.items() if n or state == "complete"]
        return f"{counted(len(self.trials))}: {', '.join(counts)}"

    @property
    def ranked(self) -> list[Trial]:
        """The trials, best first; trials without a value come last."""
        return sorted(
            self.trials, key=lambda t: (t.value is None, -(t.value or 0.0), t.state, t.number)
        )

    @property
    def best(self) -> Best | None:
        """The first complete trial with the highest value; None if no trial is complete."""
        first = self.ranked[0] if self.trials else None
        if first is None or first.value is None:
            return None
        return Best(
            first.number,
            dict(first.parameters),
            first.value,
            dict(first.values),
            self.command(first),
            first.runs[self.plan.seeds[0]],
            dict(first.runs),
        )

    @property
    def equal(self) -> list[int]:
        """Numbers of all trials with the highest value; empty if only one trial has it."""
        first = self.ranked[0].value if self.trials else None
        numbers = [t.number for t in self.trials if first is not None and t.value == first]
        return numbers if len(numbers) > 1 else []

    def command(self, trial: Trial) -> str:
        """Return the command that trains a trial again, with all its seeds."""
        seeds = self.plan.seeds
        job = self.plan.job(self.folder, trial.number, trial.parameters, seeds[0])
        if len(seeds) == 1:
            return job.command(self.plan.threads)
        one = Job(job.folder, job.arguments[:-2]).command(self.plan.threads)
        return f"for seed in {' '.join(map(str, seeds))}; do {one} --seed $seed; done"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each trial: trial, state, value, parameters, value and env steps of each
        seed, reason."""
        rows = []
        for trial in self.trials:
            row: dict[str, Any] = {
                "trial": trial.number,
                "state": trial.state,
                "value": trial.value,
            }
            for name, value in trial.parameters.items():
                row[name] = text_of(value) if isinstance(value, tuple) else value
            row |= {f"value_seed{seed}": trial.values.get(seed) for seed in self.plan.seeds}
            row |= {f"env_steps_seed{seed}": trial.env_steps.get(seed) for seed in self.plan.seeds}
            rows.append({**row, "reason": trial.reason})
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the trials, the best trial and the importance of settings as JSON values."""
        return {
            "measure": self.measure,
            "learners": [*self.learners],
            "best": plain(self.best),
            "importance": dict(self.importance),
            "trials": plain(self.trials),
        }

    def texts(self) -> dict[str, str]:
        table = self.to_dataframe()
        values = [name for name in map(str, table) if name.startswith("value")]
        # Rounded, because returns are sums of float32.
        table[values] = table[values].astype(float).map("{:.7g}".format, na_action="ignore")
        return {"trials.csv": csv_text(table), **super().texts()}

    def write(self, folder: str | Path | None = None) -> dict[str, Path]:
        """Write trials.csv, trials.json and pictures into a folder; default: the study's folder.

        Return file name -> path.
        """
        folder = self.folder if folder is None else Path(folder)
        written = super().write(folder)
        if pictures.curves(self, folder / CURVES) is None:
            (folder / CURVES).unlink(missing_ok=True)  # from an earlier call
        else:
            written[CURVES] = folder / CURVES
        if self.importance:
            path = pictures.importance(self, folder / "importance.svg")
            written[path.name] = path
        return written

    # --- Importance of settings ------------------------------------------------------------------

    @cached_property
    def importance(self) -> dict[str, float]:
        """Setting -> share of the differences between trials that it explains. The sum is 1.

        For a complete grid: shares of the variance of all runs, including "seeds", and the rest as
        ``INTERACTION``. For a search: Optuna's PED-ANOVA. Empty if there are too few trials.
        """
        if not self.plan.space.search:
            return self._of_grid()
        complete = [trial for trial in self.trials if trial.state == "complete"]
        names = [
            n for n in self.plan.space.names if len({str(t.parameters[n]) for t in complete}) > 1
        ]
        if len(complete) < ENOUGH or len(names) < 2 or len({t.value for t in complete}) < 2:
            return {}
        evaluator = optuna().importance.PedAnovaImportanceEvaluator()
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importances = optuna().importance.get_param_importances(
                self.plan.history(self.optuna_trials), evaluator=evaluator, params=names
            )
        return {name: float(share) for name, share in importances.items()}

    def about_importance(self) -> str:
        """Return a sentence on the method of the importance, or on why it is missing."""
        if self.importance and not self.plan.space.search:
            return "Shares of the variance of all runs of the grid"
        if self.importance:
            complete = self.counts["complete"]
            return f"Importance by PED-ANOVA over {complete} complete trials"
        if self.plan.space.search:
            return f"Too few complete trials for the importance of settings: {ENOUGH} are needed"
        return "The importance of settings needs a complete grid of two settings or more"

    def _of_grid(self) -> dict[str, float]:
        """Return shares of the variance over all runs of a complete grid: a balanced ANOVA."""
        grid = {
            name: choices
            for name, choices in self.plan.space.grid.items()
            if len(choices.values) > 1
        }
        size = int(
            np.prod([len(choices.values) for choices in self.plan.space.grid.values()] or [0])
        )
        cells = [
            trial
            for trial in self.trials
            if trial.state == "complete"
            and all(trial.parameters.get(name) in choices for name, choices in grid.items())
        ]
        if len(grid) < 2 or len(cells) != size:
            return {}
        values = np.array([[*trial.values.values()] for trial in cells])  # [cells, seeds]
        total = float(((values - values.mean()) ** 2).sum())
        if total <= 0.0:
            return {}
        shares = {name: _between(cells, name, values) / total for name in grid}
        shares = dict(sorted(shares.items(), key=lambda item: -item[1]))
        if values.shape[1] > 1:
            within = float(((values - values.mean(axis=1, keepdims=True)) ** 2).sum())
            shares["seeds"] = within / total
        remainder = 1.0 - sum(shares.values())
        return {**shares, INTERACTION: max(0.0, remainder)}


def _between(cells: Sequence[Trial], name: str, values: np.ndarray[Any, Any]) -> float:
    """Return the sum of squares between the values of a setting; values are [cells, seeds]."""
    values_of_cells = [str(trial.parameters[name]) for trial in cells]
    groups = [
        values[[value == group_value for value in values_of_cells]]
        for group_value in dict.fromkeys(values_of_cells)
    ]
    return float(sum(group.size * (group.mean() - values.mean()) ** 2 for group in groups))
