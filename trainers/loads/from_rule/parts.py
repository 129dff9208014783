"""The parts of a run that begins with a rule, one after the other: team, recommendation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from corral.errors import RunError
from corral.trainers import driver
from corral.trainers.loads.from_rule.plan import PLAN
from corral.trainers.loads.from_rule.preset import FromRule
from corral.trainers.loads.from_rule.recommend import RECOMMENDATION, recommend
from corral.trainers.loads.from_rule.validation import History, Validated
from corral.trainers.planning import Minutes
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.files import replace_text
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.run_config import CONFIG

__all__ = ["Parts"]


class Parts:
    """Team and recommendation of a plan (from_rule.json), as far as they are missing."""

    def __init__(self, plan: dict[str, Any], limit: Minutes, progress: bool | None) -> None:
        self.plan, self.limit, self.progress = plan, limit, progress
        self.out = Path(plan["out"])
        self.preset = FromRule(**plan["preset"])
        settings = {**self.preset.team, **plan["settings"]}
        self.settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}

    def run(self, env_kwargs: dict[str, Any] | None = None) -> Run:
        """Do what is missing; return the team's run. ``env_kwargs`` are needed to begin."""
        if not (self.out / RECOMMENDATION).is_file():
            team = load_run(self.out) if self.plan["trained"] else self._team(env_kwargs)
            self.plan["trained"] = True
            self.keep(self.out)
            self._recommend(team)
        return load_run(self.out)

    def _team(self, env_kwargs: dict[str, Any] | None) -> Run:
        plan = self.plan
        watch = Validated(plan["rule"], plan["window"], self.keep)
        if (self.out / CONFIG).is_file():
            return driver.resume(self.out, callbacks=[watch], progress=self.progress)
        if env_kwargs is None:
            raise RunError(f"{self.out} was not begun: begin it again")
        kept = plan["validation"]
        rows: dict[str, Any] = {"held_out": tuple(plan["held_out"])}
        rows["validation"] = tuple(kept) if kept else 0
        config = EnvConfig.of("dfaas_v0", env_kwargs, rows["held_out"], None, rows["validation"])
        timed = plan["minutes"] is not None
        left = self.limit.left - (1 - self.preset.usable) * 60 * self.limit.minutes
        share = watch.begin_with(config, self.preset, left if timed else None)
        length = (
            {"minutes": max(1.0, (1 - share) * left) / 60} if timed else {"steps": plan["steps"]}
        )
        return driver.train(
            "dfaas_v0",
            trainer="policy_iteration",
            teacher=plan["rule"],
            env_kwargs=env_kwargs,
            out=self.out,
            callbacks=[watch],
            seed=plan["seed"],
            progress=self.progress,
            **{**length, **rows, **self.settings},
        )

    def keep(self, folder: Path) -> None:
        """Write the plan into a folder, with the time that was spent."""
        self.plan["spent"] = time.monotonic() - self.limit.began
        replace_text(folder / PLAN, json.dumps(self.plan, indent=2, default=list) + "\n")

    def _recommend(self, team: Run) -> None:
        history = History.read(team.folder)
        found = recommend(
            self.plan["rule"],
            self.plan["runner_up"],
            np.array(history.rule),
            np.array(history.arrivals),
            {steps: np.array(costs) for steps, costs in history.costs.items()},
        )
        found.write(team.folder)
