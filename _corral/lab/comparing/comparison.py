"""The ``Comparison`` that ``corral.compare`` returns: a verdict, numbers, and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array
from corral.files import write_file
from corral.lab.comparing.groups import Group
from corral.lab.comparing.marl_eval import marl_eval_json
from corral.lab.comparing.page import comparison_page
from corral.lab.comparing.plots import pictures
from corral.lab.comparing.statistics import (
    MIN_SEEDS,
    bootstrap_band,
    bootstrap_interval,
    iqm,
    median,
)
from corral.lab.comparing.verdict import Pair, in_words, pairs_of
from corral.results import Result, csv_text, json_text, plain

__all__ = ["FILES", "Comparison"]

FILES = ("report.html", "compare.json", "curves.csv", "marl_eval.json")
PICTURES = ("curves.svg", "profile.svg", "intervals.svg")
POINTS = 50  # of a learning curve


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Groups of runs, and one score for each run: higher is better."""

    json_file, indent = "compare.json", 1

    env: str
    metric: str  # what a score is, in words
    groups: Mapping[str, Group]
    notes: Sequence[str] = ()  # what is to be known when reading it
    agents: int = 1  # whose returns the curves sum
    seed: int = 0  # of episodes and resamples
    versions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.groups)} on {self.env}>"

    def __str__(self) -> str:
        return f"{self.verdict}\n{self.table.to_string(float_format='{:.4g}'.format)}"

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        """Scores of the runs of each group."""
        return {name: [run.score for run in group] for name, group in self.groups.items()}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every two groups: which is better, by how much, how surely."""
        return pairs_of(self.scores, seed=self.seed)

    @property
    def verdict(self) -> str:
        """What is known of the group with the highest interquartile mean."""
        said = in_words(self.pairs, [*self.table.index])
        values = {score for scores in self.scores.values() for score in scores}
        return f"All runs scored {values.pop():.4g}. {said}" if len(values) == 1 else said

    @cached_property
    def table(self) -> pd.DataFrame:
        """A line for each group, the highest interquartile mean first; ``low`` and ``high`` are its
        95 % interval, NaN below five runs."""
        rows = {}
        for name, scores in self.scores.items():
            low = high = None
            if len(scores) >= MIN_SEEDS:
                low, high = bootstrap_interval(scores, seed=self.seed)
            summary = {"runs": len(scores), "iqm": float(iqm(scores)), "low": low, "high": high}
            summary |= {"mean": float(np.mean(scores)), "median": float(median(scores))}
            rows[name] = {**summary, "min": min(scores), "max": max(scores)}
        found = pd.DataFrame.from_dict(rows, orient="index")
        numbers = found.columns.drop("runs")
        found[numbers] = found[numbers].astype(float)
        return found.sort_values("iqm", ascending=False, kind="stable")

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each run: group, run, seed, env_steps, score."""
        return pd.DataFrame(
            [
                {
                    "group": name,
                    "run": run.name,
                    "seed": run.seed,
                    "env_steps": run.env_steps,
                    "score": run.score,
                }
                for name, group in self.groups.items()
                for run in group
            ]
        )

    # --- Learning curves -------------------------------------------------------------------------

    @cached_property
    def grid(self) -> Array:
        """Env steps that the curves of all runs cover; empty where some have no curve."""
        runs = [run for group in self.groups.values() for run in group]
        if any(len(run.steps) < 2 for run in runs):
            return np.zeros(0)
        low, high = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
        return np.linspace(low, high, POINTS) if low < high else np.zeros(0)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Returns of training at common env steps: group, env_steps, iqm, low, high, runs.

        ``low`` and ``high`` are 95 % intervals at each point alone, NaN below five runs.
        """
        columns = ["group", "env_steps", "iqm", "low", "high", "runs"]
        parts = []
        for name, group in self.groups.items() if len(self.grid) else ():
            values = np.stack([np.interp(self.grid, r.steps, r.returns) for r in group], axis=1)
            low = high = np.full(len(self.grid), np.nan)
            if len(group) >= MIN_SEEDS:
                low, high = bootstrap_band(values, seed=self.seed, resamples=2000)
            part = {"group": name, "env_steps": self.grid, "iqm": iqm(values)}
            parts.append(pd.DataFrame({**part, "low": low, "high": high, "runs": len(group)}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)

    # --- Files -----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return all that was found as JSON values."""
        return {
            "environment": self.env,
            "verdict": self.verdict,
            "metric": self.metric,
            "seed": self.seed,
            "notes": list(self.notes),
            "versions": dict(self.versions),
            "groups": {
                str(name): {key: _number(value) for key, value in row.items()}
                for name, row in self.table.iterrows()
            },
            "pairs": plain(self.pairs),
            "runs": [
                {key: _number(value) for key, value in row.items()}
                for row in self.to_dataframe().to_dict("records")
            ],
        }

    as_json = to_json

    def texts(self) -> dict[str, str]:
        theirs = marl_eval_json(self.env, self.groups, self.grid, over=self.agents)
        return {
            "report.html": comparison_page(self),
            **super().texts(),
            "curves.csv": csv_text(self.curves),
            "marl_eval.json": json_text(theirs, self.indent),
        }

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write report.html, compare.json, curves.csv, marl_eval.json and pictures into ``folder``
        (made if missing); return their paths by name."""
        folder = Path(folder)
        written = super().write(folder)
        drawn = pictures(self)
        for name in (each for each in PICTURES if each not in drawn):
            (folder / name).unlink(missing_ok=True)  # of what was there before
        return written | {
            name: write_file(folder / name, drawn[name]) for name in PICTURES if name in drawn
        }


def _number(value: Any) -> Any:
    """Return a number as JSON knows it, 1 for 1.0; None for what is none."""
    if isinstance(value, str):
        return value
    if value is None or not np.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(value)
