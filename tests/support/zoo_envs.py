"""PettingZoo environments as others might write them, and some that fail on purpose."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from corral.envs import dfaas_v0
from support.contract import plain
from support.loads import small_trace


class MixedEnv(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo ships no types
    """Plain observations without masks, unlike actions, deaths, and an agent that comes late.

    ``walker`` has Box actions and observes a Dict, ``picker`` MultiDiscrete ones and observes a
    number, ``late`` (Discrete, counted from 1) comes with step 2, paid 0.25 with its first
    observation. ``picker`` ends after 3 to 6 steps, ``walker`` is cut after ``length`` steps.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "mixed_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(self, length: int = 8, lose: str | None = None) -> None:
        self.possible_agents = ["walker", "picker", "late"]
        self.length = length
        self.lose = lose  # a way to break PettingZoo's rules

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        if agent == "walker":
            place = spaces.Box(-np.inf, np.inf, (2,), np.float32)
            return spaces.Dict({"place": place, "seen": spaces.MultiBinary(3)})
        return spaces.Discrete(9) if agent == "picker" else spaces.Box(0, 9, (2, 1), np.uint8)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        if agent == "walker":
            return spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))
        return spaces.MultiDiscrete([3, 4]) if agent == "picker" else spaces.Discrete(3, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t = 0
        self.last = int(self.rng.integers(3, 7))
        self.place = np.zeros(2)
        self.agents = ["walker", "picker"]
        return self._shown(self.agents), {agent: {"t": 0} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents), "one action for each live agent"
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), f"{agent}: {action!r}"
        self.t += 1
        self.place += actions["walker"]
        rewards = {"walker": float(actions["walker"][0]) / 3}
        if "picker" in actions:
            rewards["picker"] = float(actions["picker"].sum()) / 7
        if "late" in actions:
            rewards["late"] = 0.1 * int(actions["late"]) + float(self.rng.random())
        now = list(self.agents)
        if self.t == 2:
            now.append("late")
            rewards["late"] = 0.25
        terminations = {a: a == "picker" and self.t == self.last for a in now}
        truncations = {a: a != "picker" and self.t == self.length for a in now}
        self.agents = [a for a in now if not (terminations[a] or truncations[a])]
        infos = {a: {"t": self.t, "note": "x", "half": self.t / 2} for a in now}
        shown = self._shown(now)
        if self.t == 2 and self.lose is not None:
            if self.lose == "shape":
                shown["late"] = np.zeros(3, np.uint8)
            elif self.lose == "values":
                shown["late"] = np.full((2, 1), 0.5)
            elif self.lose == "reward":
                del rewards["walker"]
            elif self.lose == "vanish":
                self.agents.remove("picker")
            elif self.lose == "stranger":
                rewards["nobody"] = 1.0
        return shown, rewards, terminations, truncations, infos

    def _shown(self, agents: list[str]) -> dict[str, Any]:
        seen = {
            "walker": {"place": self.place, "seen": (np.arange(3) < self.t).astype(np.int8)},
            "picker": self.t,
            "late": np.full((2, 1), self.t, np.uint8),
        }
        return {agent: seen[agent] for agent in agents}


class RingEnv(AECEnv[str, Any, int]):  # type: ignore[misc]
    """Turns in a ring of four, in which every move pays somebody, in fractions that do not add up.

    ``gift`` is there at the very first observation of each agent. Agents end at different rounds,
    by the toss of a coin terminated or truncated, and wait for their turn to leave; rewards that
    they earn until then are theirs. The last agent joins in the second round.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "ring_v0", "is_parallelizable": False}
    render_mode = None

    def __init__(self, gift: float = 0.3) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(4)]
        self.gift = gift

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def observe(self, agent: str) -> Any:
        i = self.possible_agents.index(agent)
        return np.array([self.moves, self.ends[i], i], np.float64)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.moves = 0
        self.agents = self.possible_agents[:3]
        self.ends = self.rng.integers(3, 16, 4)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, self.gift)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {"moves": 0} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        following = self._after(mover)
        if self.terminations[mover] or self.truncations[mover]:
            self._skip_agent_selection = following
            self._was_dead_step(action)  # the other dead ones follow at once
            return
        assert action in (0, 1, 2)
        self._cumulative_rewards[mover] = 0.0
        self._clear_rewards()
        self.moves += 1
        if self.moves == 4:
            self.agents.append("agent_3")
            for table in (self.rewards, self._cumulative_rewards):
                table["agent_3"] = 0.0
            self._cumulative_rewards["agent_3"] = self.gift
            self.terminations["agent_3"] = self.truncations["agent_3"] = False
            self.infos["agent_3"] = {}
        for agent in self.agents:
            self.rewards[agent] = float(self.rng.normal()) * (1 + action)
        for i, agent in enumerate(self.possible_agents):
            if agent in self.agents and self.moves >= self.ends[i] + 4:
                table = self.terminations if self.ends[i] % 2 else self.truncations
                table[agent] = True
            if agent in self.agents:
                self.infos[agent] = {"moves": self.moves}
        self._accumulate_rewards()
        self.agent_selection = self._after(mover)

    def _after(self, mover: str) -> str:
        return self.agents[(self.agents.index(mover) + 1) % len(self.agents)]


class SleepyEnv(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """A step takes ``seconds``."""

    metadata: ClassVar[dict[str, Any]] = {"name": "sleepy_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(self, seconds: float = 0.005) -> None:
        self.possible_agents = ["a", "b"]
        self.seconds = seconds

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (4,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        return self._shown(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        time.sleep(self.seconds)
        no = dict.fromkeys(self.agents, False)
        return self._shown(), dict.fromkeys(self.agents, 1.0), no, dict(no), {}

    def _shown(self) -> dict[str, Any]:
        return {agent: np.zeros(4, np.float32) for agent in self.possible_agents}


class MeetingEnv(SleepyEnv):
    """A step waits until ``count`` processes are in it; each leaves a file in ``folder``."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(0.01)
        self.folder, self.count = folder, count

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        (self.folder / str(os.getpid())).touch()
        ends = time.monotonic() + 60
        while len(list(self.folder.iterdir())) < self.count:
            if time.monotonic() > ends:
                raise RuntimeError("no other process is in its step")
            time.sleep(self.seconds)
        return super().step(actions)


class FaultyEnv(SleepyEnv):
    """Fails, in one way, at one place, in the copy whose first reset has ``seed``.

    ``fault``: "raise", "kill", "hang" or "exit"; ``where``: "reset", "first" (step), "later"
    (step 3), "idle" (1 s after the first step) or "close".
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "faulty_v0", "is_parallelizable": True}

    def __init__(self, fault: str, where: str, seed: int) -> None:
        super().__init__(0.0)
        self.fault, self.where, self.seed = fault, where, seed
        self.mine = False
        self.t = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.mine = self.mine or seed == self.seed
        self._reach("reset")
        return super().reset(seed)

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        if self.t == 1:
            self._reach("first")
            if self.where == "idle":
                threading.Timer(1.0, self._reach, ["idle"]).start()
        if self.t == 3:
            self._reach("later")
        return super().step(actions)

    def close(self) -> None:
        self._reach("close")

    def _reach(self, where: str) -> None:
        if not self.mine or where != self.where:
            return
        if self.fault == "raise":
            raise RuntimeError("the environment broke")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(1000)
        if where in ("idle", "close"):
            os._exit(3)
        sys.exit(3)


def dfaas() -> Any:
    """Here, and not in a test: worker processes must be able to import it."""
    return dfaas_v0.env(trace=small_trace(), max_cycles=6, route="two", illegal="raise")


def trajectory(batch: Any, steps: int = 25) -> list[Any]:
    """All that a ZooBatch shows under random actions, as plain data; it is closed then."""
    rng = np.random.default_rng(2)
    with batch:
        record = [plain(batch.reset())]
        for _ in range(steps):
            step = batch.step(batch.sample_actions(rng))
            record += map(plain, (step.observations, step.reward, step.terminated, step.truncated))
            record += map(plain, (step.acting, step.info, batch.global_state()))
            if step.finished is not None:
                record += map(plain, vars(step.finished).values())
    return record
