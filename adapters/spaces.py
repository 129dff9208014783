"""How agents' observations become what single-agent libraries take: one level of Dict, masks in it.

| entry | space |
|---|---|
| ``observation`` | the environment's own; where that is a Dict: ``observation_<key>`` for each |
| ``action_mask`` | Box int8 [A], 1 where an action is legal |
| ``agent`` | Box float32 [N], one-hot; only with ``agent_id`` and more than one agent |

Stable-Baselines3 refuses nested Dicts. Games whose agents cannot stand side by side as columns
(they take turns, differ, or leave early) are refused here, by name and with the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, stack_agents
from corral.errors import UnsupportedSpaceError

__all__ = ["Layout", "refuse_death", "refuse_turns"]

ONE_SEAT = (
    "One seat at a time, an environment of corral is a gymnasium.Env for every library: "
    "corral.adapters.SeatEnv(name, seat=...)"
)


def refuse_turns(name: str) -> None:
    """Turn-based games: some agents have nothing to choose, and their columns would be noise."""
    raise UnsupportedSpaceError(
        f"{name} is turn-based, and here every agent acts in every step. corral's own trainers "
        f"play it: corral train {name} --trainer mappo. {ONE_SEAT}. Or step it with "
        "corral.adapters.make_batch, whose steps say who acts"
    )


def refuse_death(name: str, agents: Sequence[str]) -> None:
    """Agents that leave before the others: a column cannot rest until the next episode."""
    raise UnsupportedSpaceError(
        f"{name}: {', '.join(agents)} ended before the others, and here every agent acts until the "
        "episode ends. Use vectorize(corral.adapters.wrappers.homogenize(env), ...), which keeps "
        f"ended agents in place, or step it with corral.adapters.make_batch. {ONE_SEAT}"
    )


# --- Spaces --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The columns' spaces, and how an agent's observation is brought into them."""

    name: str  # of the environment
    agents: tuple[str, ...]
    observation_space: spaces.Dict
    action_space: spaces.Discrete
    masked: bool  # whether the environment gives masks; else all actions are legal
    names: dict[str, str] | None  # entry of the environment's Dict observation -> name here
    identities: Array | None  # float32 [N, N] one row per agent

    @classmethod
    def of(cls, env: Any, name: str, agents: Sequence[str], agent_id: bool) -> Layout:
        """The layout for a ParallelEnv or for Rules.

        Raises UnsupportedSpaceError where agents differ, actions are not Discrete from 0, or an
        observation is neither plain nor one level of Dict.
        """
        seen, action = env.observation_space(agents[0]), env.action_space(agents[0])
        for agent in agents[1:]:
            for first, own in (
                (seen, env.observation_space(agent)),
                (action, env.action_space(agent)),
            ):
                if own != first:
                    raise UnsupportedSpaceError(
                        f"{name}: {agents[0]} has {first}, {agent} has {own}, and columns are "
                        "alike. Use vectorize(corral.adapters.wrappers.homogenize(env), ...), "
                        "which pads them, or step it with corral.adapters.make_batch. " + ONE_SEAT
                    )
        if not isinstance(action, spaces.Discrete) or action.start != 0:
            raise UnsupportedSpaceError(
                f"{name}: action space {action}; masks need Discrete, counted from 0"
            )
        masked = isinstance(seen, spaces.Dict) and "action_mask" in seen.spaces
        inner = seen.spaces["observation"] if masked else seen
        names, entries = None, {"observation": inner}
        if isinstance(inner, spaces.Dict):
            # Stable-Baselines3 makes the names those of torch modules, which may hold no dots.
            names = {key: "observation_" + str(key).replace(".", "_") for key in inner.spaces}
            entries = {names[key]: part for key, part in inner.spaces.items()}
            if len(entries) != len(names):
                raise UnsupportedSpaceError(f"{name}: {list(names)} differ in dots only")
        for key, part in entries.items():
            if not isinstance(
                part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
            ):
                raise UnsupportedSpaceError(
                    f"{name}: {key} is {part}; Stable-Baselines3 takes arrays and numbers, in one "
                    "level of Dict"
                )
        entries["action_mask"] = spaces.Box(0, 1, (int(action.n),), np.int8)
        identities = None
        if agent_id and len(agents) > 1:
            identities = np.eye(len(agents), dtype=np.float32)
            entries["agent"] = spaces.Box(0.0, 1.0, (len(agents),), np.float32)
        return cls(name, tuple(agents), spaces.Dict(entries), action, masked, names, identities)

    def flat(self, observation: Any, rows: tuple[int, ...] = ()) -> dict[str, Array]:
        """An observation, of one agent or of blocks [*rows, ...], without nesting or agent."""
        seen, mask = observation, None
        if self.masked:
            seen, mask = observation["observation"], observation["action_mask"]
        if self.names is None:
            entries = {"observation": np.asarray(seen)}
        else:
            entries = {name: np.asarray(seen[key]) for key, name in self.names.items()}
        if mask is None:
            mask = np.ones((*rows, int(self.action_space.n)), dtype=np.int8)
        entries["action_mask"] = np.asarray(mask, dtype=np.int8)
        return entries

    def columns(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        """Batched observations [B, ...] by agent as entries [B * N, ...]: copy * N + agent."""
        first = observations[self.agents[0]]
        # A copy: what is handed out may be written to, and Batch judges actions by its own masks.
        blocks: dict[str, Any] = {"action_mask": stack_agents(observations, "action_mask").copy()}
        if self.names is None:
            blocks["observation"] = stack_agents(observations, "observation")
        else:
            parts = [observations[agent]["observation"] for agent in self.agents]
            blocks["observation"] = {
                key: np.stack([part[key] for part in parts], axis=1) for key in first["observation"]
            }
        entries = {
            key: block.reshape(-1, *block.shape[2:])  # [B, N, ...] -> [B * N, ...]
            for key, block in self.flat(blocks).items()
        }
        if self.identities is not None:
            num_envs = len(first["action_mask"])
            entries["agent"] = np.tile(self.identities, (num_envs, 1))  # [B * N, N]
        return entries
