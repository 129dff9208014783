"""Records of training: rows of progress.csv, and a progress line in the terminal.

Each update has one row in progress.csv:

| column | meaning |
|---|---|
| ``env_steps`` | env steps since the start of the run, over all environment copies |
| ``wall_s`` | seconds of training, without pauses between resumed parts |
| ``episodes`` | finished episodes since the start of the run |
| ``return_team`` | sum of all agents' returns, mean of the last 100 episodes; empty before one |
| ``reward_per_step`` | sum of all agents' rewards, mean over the env steps of this update |
| ``return_<agent>`` | mean return of one agent, including episodes of other players |
| ``return_of_<policy>`` | mean return of a policy's agents, without those played by snapshots |
| ``return_of_past``, ``points_past`` | with a pool: return of its players, points against them |
| ``length`` | steps per episode, mean of the last 100 |
| ``kpi_<name>`` | environment's info, summed over an episode and its agents, mean of the last 100 |
| ``env_steps_per_s`` | env steps per second in this update |
| ``share_env``, ``share_inference``, ``share_learning`` | shares of the update's time |
| ``warnings`` | number of warnings so far; a column warning_<cause> is 1 after each |
| others | metrics of the trainer: losses, KL divergence, entropy, ... |

Custom metrics, evaluations and callbacks add columns, and sinks are destinations of rows: see
corral.trainers.callbacks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from corral.progress import INTERVAL_S, in_notebook, remaining_time
from corral.trainers.base import Episode, Update

if TYPE_CHECKING:
    from corral.notebook import NotebookBar

__all__ = ["Bar", "Statistics"]

RECENT = 100
"""Number of recent episodes in a mean."""

LATEST = {"own_steps": "being the latest, because no evaluation was done (--evaluate-every)"}
"""Metrics that only increase -> description of the best checkpoint by such a metric."""

Row = dict[str, float | int | None]


class Statistics:
    """Statistics of recent episodes, and the training time; stored in checkpoints."""

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
        """Store the arguments.

        Args:
            policies: agent -> name of its policy.
            opponents: untrained agents.
            self_play: all agents of a zero-sum game learn, so their returns sum to 0.
            best_by: metric that is maximal for the best checkpoint; None: returns.
            pool: snapshots play in some episodes, see ``corral.Pool``.
        """
        self.policies, self.self_play, self.pool = policies, self_play, pool
        self.metric = best_by
        self.latest_metric: float | None = None
        self.learned = [agent for agent in policies if agent not in opponents]
        self.updates = 0
        self.episodes = 0
        self.wall_s = 0.0
        self.best: float | None = None  # return_learned at the best checkpoint
        self.best_by: dict[str, Any] | None = None  # description and env steps of ``best``
        self.env_steps = 0
        self.rewards: Mapping[str, float] | None = None  # mean rewards in the last update
        self.recent: deque[Episode] = deque(maxlen=RECENT)
        self.stopped: str | None = None  # reason why a callback ended training
        # Value, description and mode of play of the validation since the last checkpoint.
        self._validated: tuple[float, str, str] | None = None
        self._duelled: tuple[bool, str, float] | None = None  # duels since the last checkpoint
        self.warnings: dict[str, int] = {}  # <policy>/<cause> -> consecutive updates; < 0: printed

    def improved(self) -> bool:
        """Return True if a checkpoint of the current state is the best so far, and record it.

        The best has the highest recent return of the trained agents. Of equal ones the latest is
        the best, if episodes have ended since. In self-play of a zero-sum game returns carry no
        information, so the latest is the best. After the first validation only validations count,
        and the first of equals is the best.
        """
        if self._duelled is not None:
            (better, compared, points), self._duelled = self._duelled, None
            self._validated = None  # only duels count
            if better:
                self.best_by = {"env_steps": self.env_steps, "compared": compared, "value": points}
                self.best_by |= {"episodes": self.episodes, "duels": True}
            return better
        if (self.best_by or {}).get("duels"):
            self._validated = None
            return False  # only until the next duels
        if self._validated is not None or (self.best_by or {}).get("validated"):
            better, validated = self.better_validated, self._validated
            self._validated = None
            if better and validated is not None:
                self.best, compared, mode = validated
                self.best_by = {"env_steps": self.env_steps, "compared": compared, "mode": mode}
                self.best_by |= {"value": self.best, "episodes": self.episodes, "validated": True}
            return better
        now = self.return_learned if self.metric is None else self.latest_metric
        if not self.self_play or self.metric is not None:
            if now is None:
                return False
            new_episodes = self.episodes > (self.best_by or {}).get("episodes", 0)
            equal = self.best is not None and math.isclose(now, self.best, abs_tol=1e-6)
            if self.best is not None and not (now > self.best or (equal and new_episodes)):
                return False
        self.best = now
        over = f"the last {RECENT} episodes"
        if self.episodes < RECENT:
            over = "one episode" if self.episodes == 1 else f"the first {self.episodes} episodes"
        compared = f"the learners' mean return over {over}"
        if self.metric is not None:
            compared = LATEST.get(self.metric, self.metric.replace("_", " "))
        elif self.self_play:
            compared = "being the latest, because in self-play the learners' returns sum to 0"
        elif self._sums_to_zero:
            compared = "being the latest, because so far the learners' returns sum to 0"
        uninformative = self.self_play or self._sums_to_zero
        latest = uninformative if self.metric is None else self.metric in LATEST
        value = None if latest else now
        self.best_by = {"env_steps": self.env_steps, "compared": compared, "value": value}
        self.best_by["episodes"] = self.episodes
        return True

    @property
    def _sums_to_zero(self) -> bool:
        """True if all agents learn and their returns add up to 0 in every recent episode, as in
        self-play of a third-party zero-sum game."""
        if self.pool or len(self.learned) < max(2, len(self.policies)):
            return False
        largest = max((abs(r) for e in self.recent for r in e.returns.values()), default=0.0)
        sums = (abs(sum(episode.returns.values())) for episode in self.recent)
        return largest > 0 and max(sums, default=0.0) <= 1e-6 * largest

    def validate(self, value: float, compared: str, mode: str) -> None:
        """Set the validation ``value`` of the current state; ``compared`` describes it, and
        ``mode``, "greedy" or "sampled", is how the team played."""
        if not self.self_play:
            self._validated = value, compared, mode

    def duelled(self, better: bool, compared: str, points: float) -> None:
        """Set the result of duels: whether the current state is the best, and its share of
        ``points`` in the duels that ``compared`` describes."""
        self._duelled = better, compared, points

    @property
    def better_validated(self) -> bool:
        """True if the team was validated since the last checkpoint, and is the best so far."""
        if self._validated is None:
            return False
        if (self.best_by or {}).get("duels"):
            return False
        first = self.best is None or not (self.best_by or {}).get("validated")
        return first or self._validated[0] > float(self.best or 0.0)

    @property
    def headline(self) -> str:
        """The recent return of the trained agents as text; before the first episode has ended,
        their reward in the last update. In self-play, where both are 0, the episode length."""
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
        """The columns of every row, for any trainer."""
        agents = [f"return_{agent}" for agent in self.policies]
        policies = [f"return_of_{name}" for name in dict.fromkeys(self.policies.values())]
        first = ["env_steps", "wall_s", "updates", "episodes", "return_team", "reward_per_step"]
        policies += ["return_of_past", "points_past"] if self.pool else []
        return [*first, *agents, *policies, "length", "env_steps_per_s", "warnings"]

    @property
    def return_team(self) -> float | None:
        """The mean team return of recent episodes; None before the first."""
        return self._mean([sum(episode.returns.values()) for episode in self.recent])

    @property
    def return_learned(self) -> float | None:
        """The mean return of recent episodes without opponents. With a pool, an agent's return
        counts only in episodes in which it learns."""
        if not self.pool:
            return self._mean([sum(e.returns[a] for a in self.learned) for e in self.recent])
        returns = [[e.returns[a] for e in self.recent if a not in e.players] for a in self.learned]
        return float(sum(np.mean(values) for values in returns if values)) if any(returns) else None

    @property
    def points_past(self) -> float | None:
        """The learners' share of points in recent episodes against snapshots or other pool players:
        1 for a higher return, 1/2 for an equal one."""
        return self._mean([points for episode in self.recent for points in self._points(episode)])

    def row(self, update: Update, env_steps: int, seconds: float) -> Row:
        """Return the row of an ``update`` with ``env_steps`` more steps in ``seconds``."""
        self.updates += 1
        self.env_steps, self.rewards = update.env_steps, update.rewards
        metrics: Row = {name: float(value) for name, value in update.metrics.items()}
        if self.metric is not None and math.isnan(metrics.get(self.metric) or 0.0):
            metrics[self.metric] = None  # not measured in this update; keep the previous value
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
            agents = [agent for agent, name in self.policies.items() if name == policy]
            sums = [sum(e.returns[a] for a in agents if a not in e.players) for e in self.recent]
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
        """Return the learners' points in an episode against each of its pool players."""
        learned = [episode.returns[agent] for agent in self.learned if agent not in episode.players]
        leads = [float(np.mean(learned)) - episode.returns[agent] for agent in episode.players]
        return [0.5 if abs(lead) < 1e-9 else float(lead > 0) for lead in leads]

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
        self.recent = deque((Episode(*entry) for entry in saved["recent"]), maxlen=RECENT)


# --- The terminal --------------------------------------------------------------------------------


class Bar:
    """A progress bar on stderr: env steps, speed, recent return or reward, and remaining time.

    In a notebook, the bar is in the output of the cell. If stderr is neither, prints a plain line
    after every tenth of the run and every 30 seconds.
    """

    def __init__(self, steps: int, *, visible: bool) -> None:
        self.steps = steps
        self._tenth = 0
        self._printed = time.monotonic()
        self._began: tuple[int, float] | None = None  # env steps and time at the first row
        self._ended = (0, "")  # env steps and text of the latest row
        self._console = Console(stderr=True, highlight=False)
        self._bar = None
        self._cell: NotebookBar | None = None
        if visible and in_notebook():
            from corral import notebook  # late: only for notebooks

            self._cell = notebook.NotebookBar()
        self._visible = visible and self._cell is None
        if self._visible and self._console.file.isatty():  # not a log with FORCE_COLOR
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
        """Show a ``row`` of progress.csv with the text of ``Statistics.headline``."""
        done = int(row["env_steps"] or 0)
        self.steps = max(self.steps, done)  # a single rollout may exceed the requested steps
        speed = f"{row['env_steps_per_s']:,.0f}"
        self._began = self._began or (done, time.monotonic())
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self.steps, speed=speed, shown=shown)
            return
        self._ended = done, f"{done:,} env steps, {speed}/s, {shown}"
        line = f"{done:,} of {self.steps:,} env steps, {speed}/s, {shown}{self._remaining(done)}"
        if self._cell is not None:
            self._cell.show(done, self.steps, line)
        elif self._visible and self._is_due(10 * done // self.steps):
            self._console.print(line, soft_wrap=True)

    def _is_due(self, tenth: int) -> bool:
        """Whether to print a line now; ``tenth`` counts the tenths of the run so far."""
        now = time.monotonic()
        if tenth <= self._tenth and now - self._printed < INTERVAL_S:
            return False
        self._tenth, self._printed = tenth, now
        return True

    def _remaining(self, done: int) -> str:
        assert self._began is not None
        first, began = self._began
        return remaining_time(time.monotonic() - began, done - first, self.steps - first)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        done, text = self._ended
        if self._cell is not None and done:
            self._cell.show(done, done, text)
