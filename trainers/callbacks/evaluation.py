"""Evaluate during training, and choose the ``best`` checkpoint by it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from corral.envs.arguments import nonnegative_int
from corral.envs.core import generator, plays_as_arrays, shares_of
from corral.trainers.callbacks.protocol import Callback
from corral.trainers.evaluation.validate import EPISODES

__all__ = ["Evaluate"]


class Evaluate(Callback):
    """Evaluates the team at intervals; the best checkpoint is the one with the best evaluation.

    It plays the validation data, see ``corral.trainers.evaluation.validate``: the same windows or
    episodes each time and in every run. The results become columns:
    ``validation_return_learned``, ``validation_return_team``, ``validation_return_<agent>``,
    ``validation_kpi_<name>``, and for loads ``validation_served``. They are empty in updates
    without an evaluation.
    """

    order: ClassVar[int] = -1

    def __init__(
        self, every: int, episodes: int | None = None, *, deterministic: bool = True
    ) -> None:
        """``every``: env steps between evaluations, rounded to whole updates. ``episodes``: maximum
        number of episodes, default 64. ``deterministic``: greedy play; False: sampled actions.
        The best checkpoint, RUN@best, then plays in this mode."""
        self.every = nonnegative_int("every", every, least=1)
        self.episodes = EPISODES if episodes is None else nonnegative_int("episodes", episodes, 1)
        self.deterministic = bool(deterministic)

    def on_start(self, session: Any) -> None:
        """Raises ValueError if the run has no rows for validation."""
        session.config.env_config.validation_rules()
        agents = [f"return_{agent}" for agent in session.config.policies]
        names = ["return_learned", "return_team", *agents, "mean_length"]
        names += _infos(session.config.env_config.rules())
        self.columns = tuple(f"validation_{name}" for name in names)
        self._before = session.env_steps

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        row |= dict.fromkeys(self.columns)
        before, self._before = self._before, session.env_steps
        if session.env_steps // self.every == before // self.every:
            return
        evaluation = session.evaluate(self.episodes, deterministic=self.deterministic)
        row |= {
            f"validation_{_column(name)}": value
            for name, value in evaluation.figures.items()
            if not name.endswith((".low", ".high")) and name not in ("low", "high", "episodes")
        }
        first = evaluation.rows[0]
        episodes = f"{first.episodes} {first.mode} validation episodes"
        compared = f"the learners' mean return in {episodes}"
        session.statistics.validate(evaluation.value, compared, first.mode)


def _infos(rules: Any) -> list[str]:
    """Return the columns of a game's infos and shares, such as kpi_lost and served.

    Those of third-party games are only known after the first evaluation.
    """
    if not plays_as_arrays(rules):
        return []
    info = rules.info(rules.start([generator(0, "env")]))
    sums = {name: np.zeros(1) for name in info}
    return [*(f"kpi_{name}" for name in info), *shares_of(rules, sums)]


def _column(name: str) -> str:
    """Return the column name of a figure: kpi_lost for kpis.lost."""
    return name.replace("kpis.", "kpi_").replace("returns.", "return_").replace(".", "_")
