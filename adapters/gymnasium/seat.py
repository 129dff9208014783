"""One agent of an environment as a gymnasium.Env.

    import gymnasium
    import corral.adapters  # registers corral/arena-v0, corral/dfaas-v0, ... in gymnasium

    env = gymnasium.make("corral/arena-v0", seat="agent_1", opponents="random/still")
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=64)

In ``SeatEnv`` a learner plays one agent of any game, simultaneous or turn-based. Given policies
play the other agents. It is for libraries without support for turns or for different agents.
``BatchVectorEnv`` is a gymnasium VectorEnv over Batch: agents with equal spaces as columns, or one
seat in every copy.

Observations are one level of Dict, including ``action_mask``, see ``corral.adapters.spaces``. Both
classes have ``action_masks()``, for sb3-contrib's MaskablePPO.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from corral.adapters.seats import Opponents, other_seats, reseed, seat_of
from corral.adapters.sources import EnvLike, rules_with
from corral.adapters.spaces import ColumnCodec, refuse_masks
from corral.envs.core import Array, Outcome, Rules, third_party
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.envs.shells import TurnShell
from corral.errors import ActionError, CorralError, ResetNeededError

__all__ = ["SeatEnv"]

IDLE_EPISODES = 1000
"""Maximum number of consecutive episodes without a decision of the seat in ``reset``."""


class SeatEnv(gymnasium.Env[Any, Any]):
    """One agent of an environment as a gymnasium.Env: each step is one decision of the agent.

    The other agents play automatically between two decisions. The agent's rewards between two
    decisions are summed, undiscounted, into the reward of the first decision. Rewards before its
    first decision are only in ``episode_return``, because no decision caused them. The episode ends
    when the agent ends: ``terminated`` by the rules, ``truncated`` by the time limit. Episodes
    without a decision are skipped.

    ``info`` holds, at reset and in each step, ``episode_return`` and the agent's numbers in the
    environment's info, summed since its last decision.

    ``reset(seed=s)`` begins the same episode as ``reset(seed=s)`` of the PettingZoo environment.
    The opponent with index i draws from ``generator(s, "policy", i)``.

    Args:
        env: a name, a function, or an environment, see ``corral.adapters.sources``. In a
            third-party environment without masks, all Discrete actions are legal. MultiDiscrete and
            Box actions have no masks, and are passed on unchanged.
        seat: the learner's agent; default: the first.
        opponents: see ``corral.adapters.seats.Opponents``.
        deterministic: whether the opponents play their most probable action; else they sample.
        render_mode: a render mode of the environment; passed to the ``make_env`` of a third-party
            environment if it has this argument.
        env_kwargs: arguments of the environment, by name.

    Raises:
        UnknownNameError: no environment, agent or team with that name.
        UnsupportedSpaceError: an observation that does not fit into one level of Dict.
        ValueError: an opponent without a policy, or an unknown render_mode.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        env: EnvLike,
        seat: str | None = None,
        opponents: Opponents = None,
        *,
        deterministic: bool = False,
        render_mode: str | None = None,
        **env_kwargs: Any,
    ) -> None:
        rules: Any = rules_with(type(self), env, env_kwargs)
        self.rules: Rules[Any] = rules
        self.seat = seat_of(self.rules, seat)
        self.layout = ColumnCodec.of(
            self.rules, self.rules.name, [self.seat], agent_id=False, any_actions=True
        )
        self.observation_space = self.layout.observation_space
        self.action_space = self.layout.action_space
        self._shell: Any = (
            rules.make_turns(self.seat, render_mode)
            if third_party(rules)
            else _SummedInfo(self.rules, render_mode, self.seat)
        )
        metadata = self._shell.metadata
        self.metadata = {
            **self.metadata,
            "render_modes": list(metadata.get("render_modes", ())),
            "render_fps": metadata.get("render_fps", self.rules.render_fps),
        }
        self._others = other_seats(self.rules, self.seat, opponents, 1, deterministic)
        self._mask: Array | None = None  # bool [A]; None before the first reset
        self._over = True
        self._return = 0.0

    @property
    def max_cycles(self) -> int | None:
        """The time limit of future episodes, in steps of the environment."""
        limit: int | None = self._shell.max_cycles
        return limit

    @max_cycles.setter
    def max_cycles(self, value: int | None) -> None:
        self._shell.max_cycles = value

    @property
    def render_mode(self) -> str | None:
        """The mode of ``render``: one of the environment's modes, or None."""
        mode: str | None = self._shell.render_mode
        return mode

    @render_mode.setter
    def render_mode(self, value: str | None) -> None:
        self._shell.render_mode = value

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode, and play until the seat's first decision."""
        super().reset(seed=seed)
        if seed is not None:
            reseed(self.rules, self._others, seed)
        for _ in range(IDLE_EPISODES):
            self._shell.reset(seed=seed)
            seed = None  # later episodes continue the random streams
            for other in self._others.values():
                other.forget(np.array([0]))
            self._play_others()
            if not self._ended():
                break
        else:
            raise CorralError(
                f"{self.rules.name}: {self.seat} had no decision in {IDLE_EPISODES} episodes in a "
                "row; pass another seat"
            )
        self._return = float(self._shell._cumulative_rewards[self.seat])
        self._over = False
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Play ``action``, then the other agents until the seat's next decision.

        Raises ActionError or IllegalActionError before anything changes, and ResetNeededError.
        """
        if self._over:
            raise ResetNeededError(f"{self.rules.name}: call reset() before step()")
        sums, self._shell.sums = self._shell.sums, {}
        try:
            self._shell.step(action)
        except ActionError:
            self._shell.sums = sums
            raise
        self._play_others()
        reward = float(self._shell._cumulative_rewards[self.seat])
        self._return += reward
        self._over = self._ended()
        terminated = bool(self._shell.terminations[self.seat])
        truncated = bool(self._shell.truncations[self.seat])
        return self._observe(), reward, terminated, truncated, self._info()

    def action_masks(self) -> Array:
        """Return the current legal actions: bool [A].

        Raises UnsupportedSpaceError if actions have no masks.
        """
        refuse_masks(self.rules.name, self.action_space)
        if self._mask is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._mask.copy()

    def render(self) -> Any:
        """Return the picture of the environment's last step, in the render_mode."""
        return self._shell.render()

    def close(self) -> None:
        self._shell.close()

    def _play_others(self) -> None:
        """Play until the seat's next decision, or until its end."""
        shell = self._shell
        while not self._ended() and (agent := shell.agent_selection) != self.seat:
            if shell.terminations[agent] or shell.truncations[agent]:
                shell.step(None)
                continue
            obs = take_tree(shell.observe(agent), None)  # [1, ...]
            shell.step(self._others[agent].act(obs)[0])

    def _ended(self) -> bool:
        return bool(self._shell.terminations[self.seat] or self._shell.truncations[self.seat])

    def _observe(self) -> dict[str, Array]:
        obs = self.layout.flat(self._shell.observe(self.seat))
        if MASK in obs:
            self._mask = obs[MASK].astype(bool)
        return obs

    def _info(self) -> dict[str, Any]:
        return {**self._shell.sums, "episode_return": self._return}


class _SummedInfo(TurnShell):
    """A TurnShell that sums the numbers for one agent in the infos of its steps."""

    def __init__(self, rules: Rules[Any], render_mode: str | None, agent: str) -> None:
        super().__init__(rules, render_mode)
        self.agent, self.index = agent, rules.agents.index(agent)
        self.sums: dict[str, Any] = {}  # the reader resets them

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.sums = dict(self.infos[self.agent])

    def _advance(self, action: Array) -> tuple[Outcome[Any], bool]:
        outcome, time_is_up = super()._advance(action)
        for key, values in outcome.info.items():
            self.sums[key] = self.sums.get(key, 0) + values[0, self.index].item()
        return outcome, time_is_up
