"""Environments as people wrote them for RLlib's MultiAgentEnv, and some with a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters import MultiAgentEnv

__all__ = [
    "Arena",
    "Corridors",
    "Endless",
    "Faulty",
    "RockPaperScissors",
    "TicTacToe",
    "TupleObservations",
]


class RockPaperScissors(MultiAgentEnv):
    """RLlib's example: both act at once, ten rounds, the new five values."""

    WIN = {(0, 2), (1, 0), (2, 1)}  # noqa: RUF012

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["player1", "player2"]
        self.observation_spaces = {a: spaces.Discrete(4) for a in self.agents}
        self.action_spaces = {a: spaces.Discrete(3) for a in self.agents}
        self.rounds = (config or {}).get("rounds", 10)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.played = 0
        return {"player1": 3, "player2": 3}, {}

    def step(self, action_dict: Any) -> Any:
        self.played += 1
        one, two = int(action_dict["player1"]), int(action_dict["player2"])
        paid = 1.0 if (one, two) in self.WIN else 0.0 if one == two else -1.0
        rewards = {"player1": paid, "player2": -paid}
        over = {"__all__": self.played >= self.rounds}
        return {"player1": two, "player2": one}, rewards, over, {"__all__": False}, {}


class TicTacToe(MultiAgentEnv):
    """RLlib's example: only who is to move is observed; no "__all__" among the truncateds."""

    LINES = (
        *((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8)),
        *((0, 4, 8), (2, 4, 6)),
    )

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["player1", "player2"]
        board = spaces.Box(-1.0, 1.0, (9,), np.float32)
        self.observation_spaces = dict.fromkeys(self.agents, board)
        self.action_spaces = {a: spaces.Discrete(9) for a in self.agents}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.board = np.zeros(9, np.float32)
        self.current = self.agents[int(self.np_random.integers(2))]
        return {self.current: self.board.copy()}, {}

    def step(self, action_dict: Any) -> Any:
        assert list(action_dict) == [self.current]
        place = int(action_dict[self.current])
        other = "player1" if self.current == "player2" else "player2"
        rewards, over = {self.current: 0.0}, False
        if self.board[place] != 0:
            rewards[self.current] -= 5.0
        else:
            self.board[place] = 1
            if any(self.board[list(line)].sum() == 3 for line in self.LINES):
                rewards, over = {self.current: 5.0, other: -5.0}, True
            over = over or bool((self.board != 0).all())
        self.current, self.board = other, -self.board
        return {self.current: self.board.copy()}, rewards, {"__all__": over}, {}, {}


class Corridors(MultiAgentEnv):
    """Three agents; agent k is observed every k + 1 steps and paid 1 in every step, 0-based ids.

    Agent 2 is cut after ``cut`` steps, the others after 12. Actions are Box.
    """

    def __init__(self, env_config: Any) -> None:
        super().__init__()
        self.cut = env_config.get("cut", 5)
        self.worker = env_config.worker_index
        self.observation_space = spaces.Box(1.0, 99.0, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.possible_agents = [0, 1, 2]

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t, self.asked = 0, [0, 1, 2]
        return {k: self._seen() for k in self.asked}, {}

    def _seen(self) -> Any:
        return np.array([self.t + 1], np.float32)

    def step(self, action_dict: Any) -> Any:
        assert sorted(action_dict) == self.asked
        self.t += 1
        gone = self.t > self.cut
        self.asked = [k for k in (0, 1, 2) if self.t % (k + 1) == 0 and not (k == 2 and gone)]
        rewards = {k: 1.0 for k in (0, 1, 2) if not (k == 2 and gone)}
        cuts = {"__all__": self.t >= 12, **({2: True} if self.t == self.cut else {})}
        self.asked = [k for k in self.asked if not (k == 2 and self.t >= self.cut)]
        return {k: self._seen() for k in self.asked}, rewards, {"__all__": False}, cuts, {}


class TupleObservations(MultiAgentEnv):
    """Tuple and nested Dict observations; the right action is the number in the nested part."""

    def __init__(self, config: Any = None) -> None:
        inner = spaces.Dict(
            {"number": spaces.Discrete(3), "deep": spaces.Tuple([spaces.Box(0.0, 1.0, (2,))])}
        )
        self.observation_space = spaces.Tuple([spaces.MultiBinary(2), inner])
        self.action_space = spaces.Discrete(3)

    def _seen(self) -> Any:
        self.number = int(self.np_random.integers(3))
        deep = (np.array([0.5, 0.25], np.float32),)
        one = (np.array([1, 0], np.int8), {"number": self.number, "deep": deep})
        return {"a": one, "b": one}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action_dict: Any) -> Any:
        paid = {a: float(act == self.number) for a, act in action_dict.items()}
        self.t += 1
        over = {"__all__": self.t >= 5}
        return self._seen(), paid, over, {"__all__": False}, {}


class Arena(MultiAgentEnv):
    """A small old one: no call of super().__init__(), a shared space, four values."""

    def __init__(self, config: Any = None) -> None:
        self.observation_space = spaces.MultiDiscrete([5, 5])
        self.action_space = spaces.Discrete(2)
        self.limit = (config or {}).get("ts", 6)

    def reset(self) -> Any:  # type: ignore[override]
        self.at = {"agent1": 0, "agent2": 4}
        self.t = 0
        return self._seen()

    def _seen(self) -> Any:
        one, two = self.at["agent1"], self.at["agent2"]
        return {"agent1": np.array([one, two]), "agent2": np.array([two, one])}

    def step(self, action_dict: Any) -> Any:
        self.t += 1
        for agent, action in action_dict.items():
            self.at[agent] = int(np.clip(self.at[agent] + (1 if action else -1), 0, 4))
        over = self.t >= self.limit
        paid = {agent: float(self.at["agent1"]) for agent in self.at}
        return self._seen(), paid, {"__all__": over}, {}

    def render(self, mode: str = "human") -> None:
        print(self.at)


class Endless(Arena):
    """Never ends."""

    def step(self, action_dict: Any) -> Any:
        observations, rewards, _, infos = super().step(action_dict)
        return observations, rewards, {"__all__": False}, infos


class Faulty(Arena):
    """Breaks one rule, named by ``fault``."""

    fault = ""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.fault = (config or {}).get("fault", "")
        self.episodes = 0
        if self.fault == "no space":
            self.observation_space = None

    def reset(self) -> Any:
        self.episodes += 1
        observations = super().reset()
        if self.fault == "other agents" and self.episodes > 1:
            return {**observations, "agent3": observations["agent1"]}
        return {} if self.fault == "nobody" else observations

    def step(self, action_dict: Any) -> Any:
        observations, rewards, dones, infos = super().step(action_dict)
        if self.fault == "no all":
            dones = {"agent1": False}
        if self.fault == "stranger":
            rewards["agent9"] = 1.0
        if self.fault == "nan":
            rewards["agent1"] = float("nan")
        if self.fault == "outside":
            observations["agent1"] = np.array([7, 0])
        if self.fault == "shape":
            observations["agent1"] = np.array([1, 0, 1])
        if self.fault == "dtype":
            observations["agent1"] = observations["agent1"] + 0.5
        if self.fault == "chance":
            rewards["agent1"] = float(np.random.rand())  # noqa: NPY002
        if self.fault == "zombie":
            dones["agent2"] = True
        if self.fault == "all done":
            dones = {"agent1": True, "agent2": True, "__all__": False}
        if self.fault == "three values":
            return observations, rewards, dones
        if self.fault == "silent" and self.t > 1:
            observations = {}
        return observations, rewards, dones, infos
