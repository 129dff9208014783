"""The ``Comparison`` that ``corral.compare`` returns: verdict, scores and files."""

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
from corral.results import Result, csv_text, filled, json_text, plain
from corral.text import visible

__all__ = ["FILES", "Comparison"]

FILES = ("report.html", "compare.json", "curves.csv", "marl_eval.json")
PICTURES = ("curves.svg", "profile.svg", "intervals.svg")
POINTS = 50  # of a learning curve


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Groups of runs with one score per run. Higher is better."""

    json_file, indent = "compare.json", 1

    env: str
    metric: str  # description of the score
    groups: Mapping[str, Group]
    notes: Sequence[str] = ()  # remarks on the comparison
    agents: int = 1  # number of agents that the returns of the curves sum over
    seed: int = 0  # of episodes and resamples
    versions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.groups)} on {self.env}>"

    def text(self, width: int = 80) -> str:
        """Return the verdict, and a table, which may be wider than ``width``."""
        return (
            f"{filled([self.verdict], width)}\n{self.table.to_string(float_format='{:.4g}'.format)}"
        )

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        """Group -> scores of its runs."""
        return {name: [run.score for run in group] for name, group in self.groups.items()}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Comparisons of all pairs of groups."""
        return pairs_of(self.scores, seed=self.seed)

    @property
    def verdict(self) -> str:
        """Sentences on the group with the highest interquartile mean."""
        verdict = in_words(self.pairs, [*self.table.index])
        values = {score for scores in self.scores.values() for score in scores}
        return f"All runs scored {values.pop():.4g}. {verdict}" if len(values) == 1 else verdict

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per group, sorted by interquartile mean. ``low`` and ``high`` are its 95 %
        interval, NaN below five runs."""
        rows = {}
        for name, scores in self.scores.items():
            low = high = None
            if len(scores) >= MIN_SEEDS:
                low, high = bootstrap_interval(scores, seed=self.seed)
            summary = {"runs": len(scores), "iqm": float(iqm(scores)), "low": low, "high": high}
            summary |= {"mean": float(np.mean(scores)), "median": float(median(scores))}
            rows[name] = {**summary, "min": min(scores), "max": max(scores)}
        table = pd.DataFrame.from_dict(rows, orient="index")
        numbers = table.columns.drop("runs")
        table[numbers] = table[numbers].astype(float)
        return table.sort_values("iqm", ascending=False, kind="stable")

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per run: group, run, seed, env_steps, score."""
        return pd.DataFrame(
            [
                {
                    "group": visible(name),  # pyarrow, if installed, refuses undecoded names
                    "run": visible(run.name),
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
        """Env steps that the curves of all runs cover; empty if some run has no curve."""
        runs = [run for group in self.groups.values() for run in group]
        if any(len(run.steps) < 2 for run in runs):
            return np.zeros(0)
        low, high = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
        return np.linspace(low, high, POINTS) if low < high else np.zeros(0)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Training returns at common env steps: group, env_steps, iqm, low, high, runs.

        ``low`` and ``high`` are pointwise 95 % intervals, NaN below five runs.
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
        """Return the comparison as JSON values."""
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
        marl_eval = marl_eval_json(self.env, self.groups, self.grid, over=self.agents)
        return {
            "report.html": comparison_page(self),
            **super().texts(),
            "curves.csv": csv_text(self.curves),
            "marl_eval.json": json_text(marl_eval, self.indent),
        }

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write report.html, compare.json, curves.csv, marl_eval.json and pictures into ``folder``.

        A missing folder is created. Return file name -> path.
        """
        folder = Path(folder)
        written = super().write(folder)
        drawn = pictures(self)
        for name in (picture for picture in PICTURES if picture not in drawn):
            (folder / name).unlink(missing_ok=True)  # from an earlier comparison
        return written | {
            name: write_file(folder / name, drawn[name]) for name in PICTURES if name in drawn
        }


def _number(value: Any) -> Any:
    """Return a number for JSON, 1 for 1.0; None for NaN, infinity and None."""
    if isinstance(value, str):
        return value
    if value is None or not np.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(value)
