"""The parts of a run that begins with a rule, one after the other: clone, team, recommendation."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.errors import RunError
from corral.trainers import driver
from corral.trainers.callbacks.protocol import Callback
from corral.trainers.cloning.trainer import CloneSettings
from corral.trainers.loads.from_rule.plan import PLAN, clone_folder
from corral.trainers.loads.from_rule.preset import FromRule
from corral.trainers.loads.from_rule.recommend import RECOMMENDATION, recommend
from corral.trainers.loads.from_rule.validation import History, Validated
from corral.trainers.planning import Deadline, Minutes
from corral.trainers.runs.files import replace_text
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.run_config import CONFIG

__all__ = ["Parts"]

NETWORK = ("memory", "net_arch", "activation", "agent_id")
"""Settings of mappo in which a team must be like the clone that it starts from."""


class Parts:
    """Clone, team and recommendation of a plan (from_rule.json), as far as they are missing."""

    def __init__(self, plan: dict[str, Any], limit: Minutes, progress: bool | None) -> None:
        self.plan, self.limit, self.progress = plan, limit, progress
        self.out = Path(plan["out"])
        self.preset = FromRule(**plan["preset"])
        self._take_settings()

    def _take_settings(self) -> None:
        settings = {**self.preset.team, **self.plan["settings"]}
        self.settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}

    def run(self, env_kwargs: dict[str, Any] | None = None) -> Run:
        """Do what is missing; return the team's run. ``env_kwargs`` are needed to begin."""
        if not (self.out / RECOMMENDATION).is_file():
            clone = self._clone(env_kwargs)
            if len(self.preset.candidates) > 1 and not _is_begun(self.out):
                clone = self._tried(clone)
            team = load_run(self.out) if self.plan["trained"] else self._team(clone)
            self.plan["trained"] = True
            self.keep(self.out)
            self._recommend(team)
        return load_run(self.out)

    def _clone(self, env_kwargs: dict[str, Any] | None) -> Run:
        folder = clone_folder(self.out)
        if self.plan["cloned"]:
            return load_run(folder)
        found = self._cloned(folder, env_kwargs)
        self.plan["cloned"] = True
        self.keep(folder)
        return found

    def _cloned(self, folder: Path, env_kwargs: dict[str, Any] | None) -> Run:
        keep: Callback = _Keep(self.keep)
        if _is_begun(folder):
            return driver.resume(folder, callbacks=[keep], progress=self.progress)
        if env_kwargs is None:
            raise RunError(f"{folder} was not begun: begin it again")
        known = {each.name for each in dataclasses.fields(CloneSettings)}
        known -= {"learning_rate", "n_epochs", *CloneSettings.unused}  # the team's own
        shared = {k: v for k, v in self.settings.items() if k in known}
        given = {k: v for k, v in shared.items() if k in self.plan["settings"]}
        part, minutes, callbacks = self.preset.cloning, self.plan["minutes"], [keep]
        if minutes:  # so many decisions need no more time to be timed
            steps = self.preset.cloned // self.plan["nodes"]
            callbacks.append(Deadline(60 * part * minutes, "the time for it is over"))
        else:
            steps = int(part * self.plan["steps"])
        return driver.train(
            "dfaas_v0",
            trainer="clone",
            teacher=self.plan["rule"],
            env_kwargs=env_kwargs,
            out=folder,
            callbacks=callbacks,
            steps=max(1, steps),
            **{**self._common(), **shared, **self.preset.clone, **given},
        )

    def _tried(self, clone: Run) -> Run:
        """Train each candidate for a while. Take the settings of that which costs least in
        validation, and return the clone that it started from: the team starts there again."""
        plan, candidates = self.plan, self.preset.candidates
        share = self.preset.trials / len(candidates)
        found: list[tuple[float, Mapping[str, Any], Run]] = []
        for number, settings in enumerate(candidates, 1):
            own = {**settings, **plan["settings"]}
            once = {**plan["preset"], "candidates": [{}]}
            trial = {**plan, "out": f"{self.out}-{number}", "settings": own, "preset": once}
            minutes = share * self.limit.left / 60
            trial |= {"minutes": minutes} if plan["minutes"] else {"steps": share * plan["steps"]}
            part = Parts(trial, Minutes(minutes, time.monotonic()), self.progress)
            start = clone
            if any(part.settings.get(name) != self.settings.get(name) for name in NETWORK):
                part.plan["cloned"] = _is_begun(clone_folder(part.out))
                start = part._clone(_arguments(clone))
            history = History.read(part._team(start).folder)
            plan["tried"][str(number)] = {str(k): costs for k, costs in history.costs.items()}
            least = min((sum(costs) for costs in history.costs.values()), default=0.0)
            found.append((least, own, start))
        _, plan["settings"], start = min(found, key=lambda each: each[0])
        self._take_settings()
        return start

    def _team(self, clone: Run) -> Run:
        plan = self.plan
        watch = Validated(plan["rule"], plan["window"], self.keep)
        if _is_begun(self.out):
            return driver.resume(self.out, callbacks=[watch], progress=self.progress)
        timed = plan["minutes"] is not None
        left = self.limit.left - (1 - self.preset.usable) * 60 * self.limit.minutes
        share = watch.begin_with(clone, self.preset, left if timed else None)
        length: dict[str, Any] = {"minutes": max(1.0, (1 - share) * left) / 60}
        if not timed:
            length = {"steps": max(1, int((1 - self.preset.cloning) * plan["steps"]))}
        return driver.train(
            "dfaas_v0",
            trainer="mappo",
            init=clone,
            env_kwargs=_arguments(clone),
            out=self.out,
            callbacks=[watch],
            **{**length, **self._common(), **self.settings},
        )

    def _common(self) -> dict[str, Any]:
        """Return arguments of both runs."""
        plan, kept = self.plan, self.plan["validation"]
        rows = {"held_out": tuple(plan["held_out"]), "validation": tuple(kept) if kept else 0}
        return {**rows, "seed": plan["seed"], "preset": "none", "progress": self.progress}

    def keep(self, folder: Path) -> None:
        """Write the plan into a folder, with the time that was spent."""
        self.plan["spent"] = time.monotonic() - self.limit.began
        replace_text(folder / PLAN, json.dumps(self.plan, indent=2, default=list) + "\n")

    def _recommend(self, team: Run) -> None:
        history = History.read(team.folder)
        tried = self.plan["tried"].values()
        found = recommend(
            self.plan["rule"],
            self.plan["runner_up"],
            np.array(history.rule),
            np.array(history.arrivals),
            {steps: np.array(costs) for steps, costs in history.costs.items()},
            sum(len(own) for own in tried),
        )
        found.write(team.folder)


class _Keep(Callback):
    """Keeps the plan with the clone."""

    def __init__(self, keep: Callable[[Path], None]) -> None:
        self.keep = keep

    def on_start(self, session: Any) -> None:
        self.keep(session.run.folder)


def _arguments(clone: Run) -> dict[str, Any]:
    """Return the arguments of its environment: which rows are for what is said besides."""
    return {k: v for k, v in clone.config.env_config.env_kwargs.items() if k != "rows"}


def _is_begun(folder: Path) -> bool:
    return (folder / CONFIG).is_file()
