"""Evaluation while training, and ``best`` by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from corral.envs.arguments import nonnegative_int
from corral.envs.core import Rules, generator
from corral.trainers.callbacks.protocol import Callback
from corral.trainers.runs.env_config import EnvConfig

if TYPE_CHECKING:
    from corral.trainers.session import Session

__all__ = ["Evaluate", "validation"]


def validation(env_config: EnvConfig) -> tuple[Rules[Any], int]:
    """Return what a run is validated on: rules, and the seed of its episodes.

    The seed is of purpose "eval", and none that ``corral.evaluate`` takes by itself.
    """
    return env_config.rules(), int(generator(0, "eval", 1).integers(2**31))


class Evaluate(Callback):
    """Evaluates the team every so many env steps; the best checkpoint is the best by it.

    Its means become columns: ``validation_return_team``, ``validation_return_<agent>``,
    ``validation_length`` and ``validation_kpi_<name>``; empty where an update has no evaluation.
    All evaluations of all runs play the same episodes.
    """

    order: ClassVar[int] = -1

    def __init__(self, every: int, episodes: int = 20, *, deterministic: bool = True) -> None:
        """``every``: env steps from one to the next, in whole updates; ``deterministic``: greedy
        play, else actions are sampled."""
        self.every = nonnegative_int("every", every, least=1)
        self.episodes = nonnegative_int("episodes", episodes, least=1)
        self.deterministic = bool(deterministic)

    def on_start(self, session: Session) -> None:
        agents = [f"return_{agent}" for agent in session.config.policies]
        names = ["return_team", *agents, "length"]
        self.columns = tuple(f"validation_{name}" for name in names)
        self._before = session.env_steps

    def on_update(self, session: Session, row: dict[str, Any]) -> None:
        row |= dict.fromkeys(self.columns)
        before, self._before = self._before, session.env_steps
        if session.env_steps // self.every == before // self.every:
            return
        evaluation = session.evaluate(episodes=self.episodes, deterministic=self.deterministic)
        score = evaluation[0]
        found = {"return_team": score.return_team, "length": score.mean_length}
        found |= {f"return_{agent}": value for agent, value in score.returns.items()}
        found |= {f"kpi_{name}": value for name, value in score.kpis.items()}
        row |= {f"validation_{name}": value for name, value in found.items()}
        learned = sum(score.returns[agent] for agent in session.statistics.learned)
        session.statistics.validate(
            learned,
            f"the learners' mean return in {self.episodes} {score.mode} validation episodes",
        )
