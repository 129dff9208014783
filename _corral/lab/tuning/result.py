"""The result of ``corral.tune``: trials, the best of them, and which settings matter."""

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
from corral.lab.tuning.judging import Beside
from corral.lab.tuning.phrases import counted
from corral.lab.tuning.plan import Plan, optuna, quiet
from corral.lab.tuning.space import Parameters, text_of
from corral.results import Result, csv_text, plain
from corral.trainers.runs.run_config import RunConfig

__all__ = ["CURVES", "Best", "Study", "Trial"]

ENOUGH = 10
"""Complete trials from which on the importance of a searched setting is stated."""

INTERACTION = "interaction of settings"
"""What settings explain together, beyond each alone."""

CURVES = "curves.svg"


@dataclass(frozen=True)
class Trial:
    """A trial: parameters, and what became of it."""

    number: int
    parameters: Parameters
    state: str  # "complete", "pruned", "failed"; "running" where it is not over
    values: Mapping[int, float]  # seed -> value of its run, as far as they were judged
    env_steps: Mapping[int, int]  # seed -> env steps that its run played
    runs: Mapping[int, Path]  # seed -> folder
    reason: str = ""  # why it failed, or where it was pruned

    @property
    def value(self) -> float | None:
        """Mean over the seeds; None where it is not complete."""
        return statistics.fmean(self.values.values()) if self.state == "complete" else None


@dataclass(frozen=True)
class Best:
    """The best trial, and how to repeat it."""

    number: int
    params: Parameters
    value: float  # mean over seeds, of validation: flattered by choosing
    values: Mapping[int, float]
    command: str  # trains all its seeds anew, for a POSIX shell
    run: Path  # of the first seed
    runs: Mapping[int, Path]


@dataclass(frozen=True)
class Study(Result):
    """All trials of a study; more is better."""

    json_file = "trials.json"

    folder: Path
    plan: Plan
    measure: str  # what values are, in words
    learners: tuple[str, ...]
    trials: Sequence[Trial]
    known: Any = None  # the trials as Optuna has them
    played: int = 0  # trials that ended in this call: 0 where all was done before
    config: RunConfig | None = None  # of one of the runs
    beside: Beside | None = None  # random play, and the best trial's by chance; None: none is best

    def __repr__(self) -> str:
        return f"<Study {str(self.folder)!r}: {self.counted()}>"

    @property
    def counts(self) -> dict[str, int]:
        """State -> trials."""
        states = [trial.state for trial in self.trials]
        return {state: states.count(state) for state in ("complete", "pruned", "failed", "running")}

    def counted(self) -> str:
        """Return how many trials there are of each state, in words."""
        found = [f"{n} {state}" for state, n in self.counts.items() if n or state == "complete"]
        return f"{counted(len(self.trials))}: {', '.join(found)}"

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first; those without a value are the last."""
        return sorted(
            self.trials, key=lambda t: (t.value is None, -(t.value or 0.0), t.state, t.number)
        )

    @property
    def best(self) -> Best | None:
        """The complete trial with the highest value, of equal ones the first; None: none is."""
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
        """Numbers of the trials that share the highest value; empty where one alone has it."""
        first = self.ranked[0].value if self.trials else None
        found = [t.number for t in self.trials if first is not None and t.value == first]
        return found if len(found) > 1 else []

    def command(self, trial: Trial) -> str:
        """Return what to type to train a trial again, every seed of it."""
        seeds = self.plan.seeds
        job = self.plan.job(self.folder, trial.number, trial.parameters, seeds[0])
        if len(seeds) == 1:
            return job.command(self.plan.threads)
        one = Job(job.folder, job.arguments[:-2]).command(self.plan.threads)
        return f"for seed in {' '.join(map(str, seeds))}; do {one} --seed $seed; done"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each trial, in their order: trial, state, value, each parameter, value
        and env steps of each seed, reason."""
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
        """Return the trials, the best of them, and what matters, as JSON values."""
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
        # Without the noise of returns, which are sums of float32.
        table[values] = table[values].astype(float).map("{:.7g}".format, na_action="ignore")
        return {"trials.csv": csv_text(table), **super().texts()}

    def write(self, folder: str | Path | None = None) -> dict[str, Path]:
        """Write trials.csv, trials.json and pictures into a folder (default: that of the study);
        return their paths by name."""
        folder = self.folder if folder is None else Path(folder)
        written = super().write(folder)
        if pictures.curves(self, folder / CURVES) is None:
            (folder / CURVES).unlink(missing_ok=True)  # of what was there before
        else:
            written[CURVES] = folder / CURVES
        if self.importance:
            path = pictures.importance(self, folder / "importance.svg")
            written[path.name] = path
        return written

    # --- Which settings matter -------------------------------------------------------------------

    @cached_property
    def importance(self) -> dict[str, float]:
        """Setting -> how much of what differs between trials it explains; they sum to 1.

        Of a whole grid: shares of the variance of all runs, with what is due to "seeds", and
        ``INTERACTION`` as what is left. Of a search: Optuna's PED-ANOVA. Empty where there are too
        few trials.
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
            found = optuna().importance.get_param_importances(
                self.plan.history(self.known), evaluator=evaluator, params=names
            )
        return {name: float(share) for name, share in found.items()}

    def about_importance(self) -> str:
        """Return in words how it was found, or why it was not."""
        if self.importance and not self.plan.space.search:
            return "Shares of the variance of all runs of the grid"
        if self.importance:
            complete = self.counts["complete"]
            return f"Importance by PED-ANOVA over {complete} complete trials"
        if self.plan.space.search:
            return f"Too few complete trials to say which setting matters: {ENOUGH} are needed"
        return "Which setting matters is said of whole grids of two settings or more"

    def _of_grid(self) -> dict[str, float]:
        """Return shares of the variance over all runs of a whole grid: a balanced ANOVA."""
        grid = {name: each for name, each in self.plan.space.grid.items() if len(each.values) > 1}
        size = int(np.prod([len(each.values) for each in self.plan.space.grid.values()] or [0]))
        cells = [
            trial
            for trial in self.trials
            if trial.state == "complete"
            and all(trial.parameters.get(name) in each for name, each in grid.items())
        ]
        if len(grid) < 2 or len(cells) != size:
            return {}
        values = np.array([[*trial.values.values()] for trial in cells])  # [cells, seeds]
        total = float(((values - values.mean()) ** 2).sum())
        if total <= 0.0:
            return {}
        found = {name: _between(cells, name, values) / total for name in grid}
        found = dict(sorted(found.items(), key=lambda item: -item[1]))
        if values.shape[1] > 1:
            within = float(((values - values.mean(axis=1, keepdims=True)) ** 2).sum())
            found["seeds"] = within / total
        rest = 1.0 - sum(found.values())
        return {**found, INTERACTION: max(0.0, rest)}


def _between(cells: Sequence[Trial], name: str, values: np.ndarray[Any, Any]) -> float:
    """Return the sum of squares between the values of one setting; values [cells, seeds]."""
    chosen = [str(trial.parameters[name]) for trial in cells]
    groups = [values[[each == one for each in chosen]] for one in dict.fromkeys(chosen)]
    return float(sum(group.size * (group.mean() - values.mean()) ** 2 for group in groups))
