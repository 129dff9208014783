"""One agent of an environment as a gymnasium.Env.

    import gymnasium
    import corral.adapters  # enters corral/arena-v0, corral/dfaas-v0, ... in gymnasium's registry

    env = gymnasium.make("corral/arena-v0", seat="agent_1", opponents="random/still")
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=64)

``SeatEnv`` plays one agent of any game, simultaneous or turn-based, while given policies play the
others: what reaches libraries that know neither turns nor agents that differ. ``BatchVectorEnv`` is
a gymnasium VectorEnv over Batch: the columns of like agents, or one seat in every copy.

Observations are one level of Dict with the ``action_mask`` in it: see ``corral.adapters.spaces``.
Both have ``action_masks()``, as sb3-contrib's MaskablePPO asks for.
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
"""Episodes in a row in which a seat may have nothing to decide before ``reset`` gives up."""


class SeatEnv(gymnasium.Env[Any, Any]):
    """One agent of an environment as a gymnasium.Env: a step is a decision of its own.

    The others play as soon as it is their turn. Its rewards between two decisions
    are summed, undiscounted, into that of the first. Rewards before its first decision are in
    ``episode_return`` alone, since no decision earned them. The episode ends with the agent's own:
    ``terminated`` by the rules, ``truncated`` by the time limit. Episodes in which it has nothing
    to decide are played through.

    ``info`` holds, at reset and in each step, what the environment's info says of the agent, summed
    since its last decision, and ``episode_return``.

    ``reset(seed=s)`` begins the episode of a PettingZoo environment's ``reset(seed=s)``; the
    opponent with index i draws from ``generator(s, "policy", i)``.

    Args:
        env: a name, a function, an environment: see ``corral.adapters.sources``. Where one of
            others has no mask, all Discrete actions are legal; MultiDiscrete and Box have none, and
            pass through.
        seat: the learner's agent; default: the first.
        opponents: see ``corral.adapters.seats.Opponents``.
        deterministic: whether the opponents play their likeliest action; else they sample.
        render_mode: as of the environment; a third party's ``make_env`` is given it if it takes
            one.
        env_kwargs: arguments of the environment, given by name.

    Raises:
        UnknownNameError: no environment, agent or team of that name.
        UnsupportedSpaceError: an observation that one level of Dict cannot hold.
        ValueError: opponents that leave an agent without a policy, an unknown render_mode.
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
        told = self._shell.metadata
        self.metadata = {
            **self.metadata,
            "render_modes": list(told.get("render_modes", ())),
            "render_fps": told.get("render_fps", self.rules.render_fps),
        }
        self._others = other_seats(self.rules, self.seat, opponents, 1, deterministic)
        self._mask: Array | None = None  # bool [A]; None before the first reset
        self._over = True
        self._return = 0.0

    @property
    def max_cycles(self) -> int | None:
        """The time limit in steps of the environment, in the episodes to come."""
        limit: int | None = self._shell.max_cycles
        return limit

    @max_cycles.setter
    def max_cycles(self, value: int | None) -> None:
        self._shell.max_cycles = value

    @property
    def render_mode(self) -> str | None:
        """What ``render`` returns: one of the environment's modes, or None."""
        mode: str | None = self._shell.render_mode
        return mode

    @render_mode.setter
    def render_mode(self, value: str | None) -> None:
        self._shell.render_mode = value

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode and play up to the first decision."""
        super().reset(seed=seed)
        if seed is not None:
            reseed(self.rules, self._others, seed)
        for _ in range(IDLE_EPISODES):
            self._shell.reset(seed=seed)
            seed = None  # those after it go on with the generators
            for other in self._others.values():
                other.forget(np.array([0]))
            self._play_others()
            if not self._ended():
                break
        else:
            raise CorralError(
                f"{self.rules.name}: {self.seat} had nothing to decide in {IDLE_EPISODES} episodes "
                "in a row; give another seat"
            )
        self._return = float(self._shell._cumulative_rewards[self.seat])
        self._over = False
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Play ``action``, and the others up to the next decision.

        Raises ActionError or IllegalActionError, before anything changes, and ResetNeededError.
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
        """Return what is legal now: bool [A]. Raises UnsupportedSpaceError where actions have no
        masks."""
        refuse_masks(self.rules.name, self.action_space)
        if self._mask is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._mask.copy()

    def render(self) -> Any:
        """Return the last step of the environment, in the render_mode."""
        return self._shell.render()

    def close(self) -> None:
        self._shell.close()

    def _play_others(self) -> None:
        """Play up to the next decision of the seat, or to its end."""
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
    """A TurnShell that sums what the infos of its steps say of one agent."""

    def __init__(self, rules: Rules[Any], render_mode: str | None, agent: str) -> None:
        super().__init__(rules, render_mode)
        self.agent, self.index = agent, rules.agents.index(agent)
        self.sums: dict[str, Any] = {}  # whoever reads them empties them

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.sums = dict(self.infos[self.agent])

    def _advance(self, action: Array) -> tuple[Outcome[Any], bool]:
        outcome, time_is_up = super()._advance(action)
        for key, values in outcome.info.items():
            self.sums[key] = self.sums.get(key, 0) + values[0, self.index].item()
        return outcome, time_is_up
