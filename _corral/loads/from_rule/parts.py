"""The parts of a job of ``from_rule``, one after the other: team, recommendation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from corral.errors import RunError
from corral.loads.from_rule.plan import Plan, write_plan
from corral.loads.from_rule.recommend import RECOMMENDATION, recommend
from corral.loads.from_rule.validation import History, Validated
from corral.progress import Progress
from corral.trainers import driver
from corral.trainers.planning import Minutes, one_thread
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.run_config import CONFIG

__all__ = ["Parts"]


class Parts:
    """Makes the missing parts of a plan (from_rule.json): team and recommendation."""

    def __init__(
        self,
        plan: Plan,
        limit: Minutes | None,
        began: float,
        progress: bool | None,
        show: Progress | None = None,
    ) -> None:
        """``began``: ``time.monotonic()`` at the start of the job; ``show``: called with the env
        steps of the training."""
        self.plan, self.limit, self.progress, self.began = plan, limit, progress, began
        self.show = show
        self.out = Path(plan["out"])
        self.preset = plan["preset"]

    def run(self, env_kwargs: dict[str, Any] | None = None, *, overwrite: bool = False) -> Run:
        """Make the missing parts; return the team's run. A new job needs ``env_kwargs``.

        With ``overwrite``, a new job replaces a run in its folder.
        """
        if env_kwargs is not None or not (self.out / RECOMMENDATION).is_file():
            with one_thread():
                if env_kwargs is not None:
                    team = self._new_team(env_kwargs, overwrite)
                else:
                    team = load_run(self.out) if self.plan["trained"] else self._resumed()
                self.plan["trained"] = True
                self.keep(self.out)
                self._recommend(team)
        return load_run(self.out)

    def _watch(self) -> Validated:
        plan = self.plan
        window, preset = plan["window"], self.preset
        return Validated(plan["rule"], window, self.keep, preset, self.limit, self.show)

    def _resumed(self) -> Run:
        if not (self.out / CONFIG).is_file():
            raise RunError(f"{self.out} is missing: start from_rule again")
        return driver.resume(self.out, callbacks=[self._watch()], progress=self.progress)

    def _new_team(self, env_kwargs: dict[str, Any], overwrite: bool) -> Run:
        plan = self.plan
        settings: dict[str, Any] = {**self.preset.team_settings(plan["nodes"]), **plan["settings"]}
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        return driver.train(
            "dfaas_v0",
            trainer="policy_iteration",
            env_kwargs={**env_kwargs, "rows": tuple(plan["rows"])},
            held_out=plan["held_out"],
            validation=plan["validation"],
            steps=plan["steps"],
            seed=plan["seed"],
            out=self.out,
            overwrite=overwrite,
            callbacks=[self._watch()],
            progress=self.progress,
            **settings,
        )

    def keep(self, folder: Path) -> None:
        """Write the plan into a folder, with the time spent so far."""
        self.plan["spent"] = time.monotonic() - self.began
        write_plan(self.plan, folder)

    def _recommend(self, team: Run) -> None:
        history = History.read(team.folder)
        recommendation = recommend(
            self.plan["rule"],
            self.plan["runner_up"],
            np.array(history.rule),
            np.array(history.arrivals),
            {steps: np.array(costs) for steps, costs in history.costs.items()},
            self.plan["residual"],
        )
        recommendation.write(team.folder)
