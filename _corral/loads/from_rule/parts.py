"""The parts of a job of ``from_rule``, one after the other: clone, team, recommendation."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from corral.errors import RunError
from corral.loads.from_rule.plan import Plan, clone_folder, write_plan
from corral.loads.from_rule.recommend import RECOMMENDATION, recommend
from corral.loads.from_rule.validation import History, Validated
from corral.trainers import driver
from corral.trainers.callbacks.protocol import Callback
from corral.trainers.cloning.trainer import CloneSettings
from corral.trainers.planning import Minutes, one_thread
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.run_config import CONFIG

__all__ = ["Kept", "Parts"]

TEAM_ALONE = ("learning_rate", "n_epochs", *CloneSettings.unused)
"""Settings of the team that the clone has under the same name, but with another meaning."""


class Parts:
    """Makes the missing parts of a plan (from_rule.json): clone, team and recommendation."""

    def __init__(self, plan: Plan, limit: Minutes, progress: bool | None) -> None:
        self.plan, self.limit, self.progress = plan, limit, progress
        self.out = Path(plan["out"])
        self.preset = plan["preset"]

    def run(self, env_kwargs: dict[str, Any] | None = None) -> Run:
        """Make the missing parts; return the team's run. A new job needs ``env_kwargs``."""
        if not (self.out / RECOMMENDATION).is_file():
            with one_thread():
                clone = self._clone(env_kwargs)
                team = load_run(self.out) if self.plan["trained"] else self._team(clone)
                self.plan["trained"] = True
                self.keep(self.out)
                self._recommend(team)
        return load_run(self.out)

    def _clone(self, env_kwargs: dict[str, Any] | None) -> Run:
        folder = clone_folder(self.out)
        if self.plan["cloned"]:
            return load_run(folder)
        clone = self._cloned(folder, env_kwargs)
        self.plan["cloned"] = True
        self.keep(folder)
        return clone

    def _cloned(self, folder: Path, env_kwargs: dict[str, Any] | None) -> Run:
        plan, preset = self.plan, self.preset
        keep = Kept(self.keep)
        if _is_begun(folder):
            return driver.resume(folder, callbacks=[keep], progress=self.progress)
        if env_kwargs is None:
            raise RunError(f"{folder} is missing: start from_rule again")
        length: dict[str, Any] = {"steps": max(1, int(preset.cloning * (plan["steps"] or 0)))}
        if plan[
            "minutes"
        ]:  # a planned number of steps, so that the learning rate decays to its end
            minutes, maximum = preset.cloning * plan["minutes"], preset.cloned // plan["nodes"]
            length = {"minutes": Minutes(minutes, time.monotonic(), maximum)}
        clone_names = {setting.name for setting in dataclasses.fields(CloneSettings)}
        clone_settings = {
            k: v for k, v in plan["settings"].items() if k in clone_names.difference(TEAM_ALONE)
        }
        return driver.train(
            "dfaas_v0",
            trainer="clone",
            teacher=plan.get("teacher", plan["rule"]),
            env_kwargs={**env_kwargs, "rows": tuple(plan["rows"])},
            out=folder,
            callbacks=[keep],
            **length,
            **self._common({**preset.clone_settings(plan["nodes"]), **clone_settings}),
        )

    def _team(self, clone: Run) -> Run:
        plan = self.plan
        watch = Validated(plan["rule"], plan["window"], self.keep)
        if _is_begun(self.out):
            return driver.resume(self.out, callbacks=[watch], progress=self.progress)
        timed = plan["minutes"] is not None
        seconds_left = self.limit.left - (1 - self.preset.usable) * 60 * self.limit.minutes
        share = watch.begin_with(clone, self.preset, seconds_left if timed else None)
        seconds_left = self.limit.left - (1 - self.preset.usable) * 60 * self.limit.minutes
        length: dict[str, Any] = {"minutes": max(1.0, (1 - share) * seconds_left) / 60}
        if not timed:
            length = {"steps": max(1, int((1 - self.preset.cloning) * (plan["steps"] or 0)))}
        arguments = {**clone.config.env_config.env_kwargs, "rows": tuple(plan["rows"])}
        return driver.train(
            "dfaas_v0",
            trainer="policy_iteration",
            init=clone,
            init_critic=False,  # the clone's critic is of another kind, and unused
            env_kwargs=arguments,
            out=self.out,
            callbacks=[watch],
            **length,
            **self._common({**self.preset.team_settings(plan["nodes"]), **plan["settings"]}),
        )

    def _common(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with the arguments that both runs share."""
        plan, kept = self.plan, self.plan["validation"]
        rows: dict[str, Any] = {"held_out": tuple(plan["held_out"])}
        rows["validation"] = tuple(kept) if kept else 0
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        return {**rows, "seed": plan["seed"], "progress": self.progress, **plain}

    def keep(self, folder: Path) -> None:
        """Write the plan into a folder, with the time spent so far."""
        self.plan["spent"] = time.monotonic() - self.limit.began
        write_plan(self.plan, folder)

    def _recommend(self, team: Run) -> None:
        history = History.read(team.folder)
        recommendation = recommend(
            self.plan["rule"],
            self.plan["runner_up"],
            np.array(history.rule),
            np.array(history.arrivals),
            {steps: np.array(costs) for steps, costs in history.costs.items()},
        )
        recommendation.write(team.folder)


class Kept(Callback):
    """Writes the plan into the clone's folder."""

    keeps_plan = True

    def __init__(self, keep: Callable[[Path], None]) -> None:
        self.keep = keep

    def on_start(self, session: Any) -> None:
        self.keep(session.run.folder)


def _is_begun(folder: Path) -> bool:
    return (folder / CONFIG).is_file()
