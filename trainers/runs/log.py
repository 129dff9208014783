"""Records of training: rows for progress.csv, and a line in the terminal.

A row of progress.csv is one update:

| column | meaning |
|---|---|
| ``env_steps`` | played since the run began, by all environments together |
| ``wall_s`` | seconds of training, without pauses between resumed parts |
| ``episodes`` | that ended since the run began |
| ``return_team`` | sum of all agents' returns, mean of the last 100 episodes; empty before one |
| ``reward_per_step`` | sum of all agents' rewards, mean of the env steps of this update |
| ``return_<agent>`` | the same of one agent, whoever played it |
| ``return_of_<policy>`` | the same of a policy's agents, 0 where a snapshot played them |
| ``return_of_past``, ``points_past`` | with a pool: of who played from it; points won of it |
| ``length`` | steps of an episode, mean of the last 100 |
| ``kpi_<name>`` | the environment's info, summed over an episode and its agents, mean of them |
| ``env_steps_per_s`` | in this update |
| ``share_env``, ``share_inference``, ``share_learning`` | where its time went |
| ``warnings`` | how many were given so far; a column warning_<cause> is 1 from each on |
| others | metrics of the trainer: losses, KL divergence, entropy, ... |

Metrics of one's own, evaluations and callbacks add columns, and sinks are where rows go: see
corral.trainers.callbacks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from corral.trainers.base import Episode, Update

__all__ = ["Bar", "Statistics"]

RECENT = 100
"""Episodes that a mean is taken over."""

LATEST = {"own_steps": "being the latest, as nothing was evaluated (--evaluate-every)"}
"""Metrics that only ever rise -> what is said of a checkpoint that is the best by one."""

Row = dict[str, float | int | None]


class Statistics:
    """Means of the last episodes, and the clock of a run; goes into its checkpoints."""

    SAVED = ("updates", "episodes", "wall_s", "best")

    def __init__(
        self,
        policies: Mapping[str, str],
        opponents: Collection[str] = (),
        *,
        self_play: bool = False,
        best_by: str | None = None,
        pool: bool = False,
    ) -> None:
        """``policies`` names each agent's; ``opponents`` are agents that do not learn.

        ``best_by`` names the metric that the best checkpoint has most of; None: returns.

        ``self_play``: all agents of a zero-sum game learn, so that their returns add up to 0.
        ``pool``: in some episodes snapshots play, see ``corral.Pool``.
        """
        self.policies, self.self_play, self.pool = policies, self_play, pool
        self.metric = best_by
        self.latest_metric: float | None = None
        self.learned = [agent for agent in policies if agent not in opponents]
        self.updates = 0
        self.episodes = 0
        self.wall_s = 0.0
        self.best: float | None = None  # return_learned at the best checkpoint so far
        self.best_by: dict[str, Any] | None = None  # what that is, in words, and where
        self.env_steps = 0
        self.rewards: Mapping[str, float] | None = None  # of the last update
        self.recent: deque[Episode] = deque(maxlen=RECENT)
        self.stopped: str | None = None  # why a callback ended training
        self._validated: tuple[float, str] | None = None  # since the last checkpoint
        self._duelled: tuple[bool, str, float] | None = None  # the same, by duels
        self.warnings: dict[str, int] = {}  # <policy>/<cause> -> updates in a row; < 0: said

    def improved(self) -> bool:
        """Return whether a checkpoint of this moment is the best yet; then remember it.

        The best has the highest recent return of those that learn; of equal ones the latest, if
        episodes have ended since.
        In self-play of a zero-sum game returns say nothing, and the latest is the best. Once a
        run is validated, validations alone decide, and the best is the first of equals.
        """
        if self._duelled is not None:
            (better, compared, points), self._duelled = self._duelled, None
            self._validated = None  # duels alone decide
            if better:
                self.best_by = {"env_steps": self.env_steps, "compared": compared, "value": points}
                self.best_by |= {"episodes": self.episodes, "duels": True}
            return better
        if (self.best_by or {}).get("duels"):
            self._validated = None
            return False  # until this moment duels, too
        if self._validated is not None or (self.best_by or {}).get("validated"):
            better, validated = self.better_validated, self._validated
            self._validated = None
            if better and validated is not None:
                self.best, compared = validated
                self.best_by = {"env_steps": self.env_steps, "compared": compared}
                self.best_by |= {"value": self.best, "episodes": self.episodes, "validated": True}
            return better
        now = self.return_learned if self.metric is None else self.latest_metric
        if not self.self_play or self.metric is not None:
            if now is None:
                return False
            since = self.episodes > (self.best_by or {}).get("episodes", 0)
            equal = self.best is not None and math.isclose(now, self.best, abs_tol=1e-6)
            if self.best is not None and not (now > self.best or (equal and since)):
                return False
        self.best = now
        over = f"the last {RECENT} episodes"
        if self.episodes < RECENT:
            over = "one episode" if self.episodes == 1 else f"the first {self.episodes} episodes"
        compared = f"the learners' mean return over {over}"
        if self.metric is not None:
            compared = LATEST.get(self.metric, self.metric.replace("_", " "))
        elif self.self_play:
            compared = "being the latest, as in self-play the learners' returns add up to 0"
        latest = self.self_play if self.metric is None else self.metric in LATEST
        value = None if latest else now
        self.best_by = {"env_steps": self.env_steps, "compared": compared, "value": value}
        self.best_by["episodes"] = self.episodes
        return True

    def validate(self, value: float, compared: str) -> None:
        """Let checkpoints be compared by ``value`` of this moment, which ``compared`` describes."""
        if not self.self_play:
            self._validated = value, compared

    def duelled(self, better: bool, compared: str, points: float) -> None:
        """Let a checkpoint of this moment be the best, or not, by duels: it won ``points`` of
        them, a share, in ``compared``."""
        self._duelled = better, compared, points

    @property
    def better_validated(self) -> bool:
        """Whether the team was validated since the last checkpoint, and is the best yet."""
        if self._validated is None:
            return False
        if (self.best_by or {}).get("duels"):
            return False
        first = self.best is None or not (self.best_by or {}).get("validated")
        return first or self._validated[0] > float(self.best or 0.0)

    @property
    def headline(self) -> str:
        """The recent return of those that learn, in words; before an episode ended, their reward
        in the last update. In self-play both are 0: how long episodes last."""
        if (points := self.points_past) is not None:
            return f"{points:.0%} against its pool"
        if self.self_play:
            length = self._mean([episode.length for episode in self.recent])
            return "self-play" if length is None else f"self-play, {length:.3g} steps an episode"
        if (mean := self.return_learned) is not None:
            return f"return {mean:.4g}"
        if self.rewards is None:
            return "return -"
        return f"reward per step {sum(self.rewards[agent] for agent in self.learned):.4g}"

    @property
    def columns(self) -> list[str]:
        """The columns that every row has, whatever the trainer."""
        agents = [f"return_{agent}" for agent in self.policies]
        policies = [f"return_of_{name}" for name in dict.fromkeys(self.policies.values())]
        first = ["env_steps", "wall_s", "updates", "episodes", "return_team", "reward_per_step"]
        policies += ["return_of_past", "points_past"] if self.pool else []
        return [*first, *agents, *policies, "length", "env_steps_per_s", "warnings"]

    @property
    def return_team(self) -> float | None:
        """Return the mean over the last episodes; None before the first."""
        return self._mean([sum(episode.returns.values()) for episode in self.recent])

    @property
    def return_learned(self) -> float | None:
        """Return the same without the opponents: a learner cares for its own return. Each agent's
        is of the episodes in which it learned, however few they are with a pool."""
        if not self.pool:
            return self._mean([sum(e.returns[a] for a in self.learned) for e in self.recent])
        own = [[e.returns[a] for e in self.recent if a not in e.players] for a in self.learned]
        return float(sum(np.mean(each) for each in own if each)) if any(own) else None

    @property
    def points_past(self) -> float | None:
        """Return the share of points that learners won in the last episodes in which snapshots, or
        others in their place, played: 1 for a return above theirs, 1/2 for the same."""
        return self._mean([points for episode in self.recent for points in self._points(episode)])

    def row(self, update: Update, env_steps: int, seconds: float) -> Row:
        """Return the row of an ``update`` that took ``seconds`` for ``env_steps`` more steps."""
        self.updates += 1
        self.env_steps, self.rewards = update.env_steps, update.rewards
        metrics: Row = {name: float(value) for name, value in update.metrics.items()}
        if self.metric is not None and math.isnan(metrics.get(self.metric) or 0.0):
            metrics[self.metric] = None  # not measured in this update: the latest one stands
        elif self.metric is not None:
            self.latest_metric = metrics.get(self.metric)
        self.wall_s += seconds
        self.episodes += len(update.episodes)
        self.recent.extend(update.episodes)
        row: Row = {
            "env_steps": update.env_steps,
            "wall_s": round(self.wall_s, 3),
            "updates": self.updates,
            "episodes": self.episodes,
            "return_team": self.return_team,
        }
        row["reward_per_step"] = None if self.rewards is None else sum(self.rewards.values())
        for agent in self.policies:
            row[f"return_{agent}"] = self._mean([e.returns[agent] for e in self.recent])
        for policy in dict.fromkeys(self.policies.values()):
            own = [agent for agent, name in self.policies.items() if name == policy]
            sums = [sum(e.returns[a] for a in own if a not in e.players) for e in self.recent]
            row[f"return_of_{policy}"] = self._mean(sums)
        if self.pool:
            sums = [sum(e.returns[agent] for agent in e.players) for e in self.recent]
            row |= {"return_of_past": self._mean(sums), "points_past": self.points_past}
        row["length"] = self._mean([episode.length for episode in self.recent])
        for key in self.recent[-1].kpis if self.recent else ():
            row[f"kpi_{key}"] = self._mean([episode.kpis[key] for episode in self.recent])
        row["env_steps_per_s"] = round(env_steps / max(seconds, 1e-9), 1)
        row["warnings"] = sum(count <= -2 for count in self.warnings.values())
        spent = max(sum(update.seconds.values()), 1e-9)
        for part, value in update.seconds.items():
            row[f"share_{part}"] = round(value / spent, 4)
        return row | metrics

    @staticmethod
    def _mean(values: Sequence[float]) -> float | None:
        return float(np.mean(values)) if values else None

    def _points(self, episode: Episode) -> list[float]:
        """Return the points of those that learned in an episode against each of its players."""
        own = [episode.returns[agent] for agent in self.learned if agent not in episode.players]
        ahead = [float(np.mean(own)) - episode.returns[agent] for agent in episode.players]
        return [0.5 if abs(each) < 1e-9 else float(each > 0) for each in ahead]

    # --- For checkpoints -------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        recent = [
            [e.returns, e.length, e.kpis, *([e.players] if e.players else [])] for e in self.recent
        ]
        saved = {name: getattr(self, name) for name in self.SAVED}
        why: dict[str, Any] = {} if self.stopped is None else {"stopped": self.stopped}
        if self.metric is not None:
            why["latest_metric"] = self.latest_metric
        if self.warnings:
            why["warnings"] = dict(self.warnings)
        return {**saved, "best_by": self.best_by, "recent": recent, **why}

    def load(self, saved: Mapping[str, Any]) -> None:
        for name in self.SAVED:
            setattr(self, name, saved[name])
        self.best_by = saved.get("best_by")
        self.latest_metric = saved.get("latest_metric")
        self.warnings = {str(k): int(v) for k, v in saved.get("warnings", {}).items()}
        self.recent = deque((Episode(*each) for each in saved["recent"]), maxlen=RECENT)


# --- The terminal --------------------------------------------------------------------------------


class Bar:
    """A bar on stderr: env steps, speed, recent return or reward, and time left.

    Where stderr is no terminal, a plain line at every tenth of the way.
    """

    def __init__(self, steps: int, *, visible: bool) -> None:
        self.steps = steps
        self._tenth = 0
        self._began: tuple[int, float] | None = None  # env steps and time of the first row
        self._console = Console(stderr=True, highlight=False)
        self._bar = None
        self._visible = visible
        if visible and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} env steps"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[speed]}/s, {task.fields[shown]}, left"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=steps, speed="-", shown="return -")
            self._bar.start()

    def show(self, row: Row, shown: str) -> None:
        """Show a ``row`` of progress.csv, and ``Statistics.headline`` with it."""
        done = int(row["env_steps"] or 0)
        self.steps = max(self.steps, done)  # a rollout may be longer than all that was asked for
        speed = f"{row['env_steps_per_s']:,.0f}"
        self._began = self._began or (done, time.monotonic())
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self.steps, speed=speed, shown=shown)
        elif self._visible and (tenth := 10 * done // self.steps) > self._tenth:
            self._tenth = tenth
            line = f"{done:,} of {self.steps:,} env steps, {speed}/s, {shown}{self._left(done)}"
            self._console.print(line, soft_wrap=True)

    def _left(self, done: int) -> str:
        """Return how long the rest takes if it goes on as it went; "" before that is known."""
        assert self._began is not None
        first, began = self._began
        if not first < done < self.steps:
            return ""
        seconds = (time.monotonic() - began) * (self.steps - done) / (done - first)
        return f", about {seconds:,.0f} s left"

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
