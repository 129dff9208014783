"""Small environments for planted faults in RLlib and TorchRL, and their true returns.

`Count` writes the return of every episode into `RETURNS`. It is the innermost wrapper, so no
reward shaping, scaling or clipping outside of it changes what it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import corral

RETURNS: list[float] = []
"""True returns of the episodes that ended since the last `begin`."""


def begin() -> None:
    """Forget the episodes of the last training."""
    RETURNS.clear()


def last_return(episodes: int = 50) -> float:
    """Return the mean true return of the last episodes."""
    return float(np.mean(RETURNS[-episodes:])) if RETURNS else float("nan")


class Count(gym.Wrapper):
    """Write the return of every episode into `RETURNS`, also of one cut from outside."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.total, self.steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._close()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.total, self.steps = self.total + float(reward), self.steps + 1
        if terminated or truncated:
            self._close()
        return obs, reward, terminated, truncated, info

    def _close(self) -> None:
        if self.steps:
            RETURNS.append(self.total)
        self.total, self.steps = 0.0, 0


def cartpole() -> gym.Env:
    """CartPole-v1, counted."""
    return Count(gym.make("CartPole-v1", disable_env_checker=True))


class Errand(gym.Env):
    """Fetch a key at the left end of a corridor, then leave by the door at the right end.

    Observation: position and key. Action: left, right. Reward: 1 at the door with the key, which
    ends the episode; -0.01 a step. Cut after 60 steps.
    """

    CELLS, LIMIT = 7, 60

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.clock, self.key = 0, False
        self.cell = int(self.np_random.integers(1, self.CELLS - 1))
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        self.cell = int(np.clip(self.cell + (1 if action else -1), 0, self.CELLS - 1))
        self.key = self.key or self.cell == 0
        out = self.key and self.cell == self.CELLS - 1
        return self.look(), 1.0 if out else -0.01, out, self.late(), {}

    def late(self) -> bool:
        return self.clock >= self.LIMIT

    def look(self) -> Any:
        return np.array([2 * self.cell / (self.CELLS - 1) - 1, 1.0 if self.key else -1.0], "f4")


class Depot(gym.Env):
    """Order goods against a demand with a weekly pattern.

    Observation (Dict): `observation` [stock, forecasts of today and tomorrow, space left], and
    `action_mask`. Action: how much to order, 0 to 5, at most the free space; other orders are
    lost and cost a fine. An order arrives after a day. Reward: 1 for a piece sold, -0.6 for one
    stored over night, -0.5 for a fine. Cut after 30 days.
    """

    SPACE, MOST, DAYS = 8, 5, 30
    WEEK = (1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 0.2)
    PRICE = 1.0

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(self.MOST + 1)
        self.observation_space = spaces.Dict(
            {
                "observation": spaces.Box(-np.inf, np.inf, (4,), np.float32),
                "action_mask": spaces.Box(0, 1, (self.MOST + 1,), np.int8),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.start_clock()
        self.stock, self.incoming = int(self.np_random.integers(0, 5)), 0
        self.weekday = int(self.np_random.integers(7))
        return self.look(), {}

    def start_clock(self) -> None:
        self.day = 0

    def step(self, action: Any) -> Any:
        order = int(action)
        fined = not self.mask()[order]
        self.stock += self.incoming
        demand = int(self.np_random.poisson(self.WEEK[self.weekday]))
        sold = min(self.stock, demand)
        self.stock -= sold
        self.incoming = 0 if fined else order
        self.day, self.weekday = self.day + 1, (self.weekday + 1) % 7
        reward = self.PRICE * (sold - 0.6 * self.stock - 0.5 * fined)
        return self.look(), reward, False, self.day >= self.DAYS, {}

    def mask(self) -> Any:
        free = self.SPACE - self.stock - self.incoming
        return (np.arange(self.MOST + 1) <= free).astype(np.int8)

    def look(self) -> Any:
        free = self.SPACE - self.stock - self.incoming
        tomorrow = self.WEEK[(self.weekday + 1) % 7]
        seen = [self.stock + self.incoming, self.WEEK[self.weekday], tomorrow, free]
        return {"observation": np.array(seen, "f4") / 4, "action_mask": self.mask()}


class Thermostat(gym.Env):
    """Heat a room: continuous action in kW, observation in degrees.

    Observation: indoor, outdoor, wanted. Action: 0 to 10. Reward: -0.1 for each degree off the
    wanted temperature, -0.02 for each kW. Cut after 40 steps.
    """

    STEPS = 40

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-50.0, 60.0, (3,), np.float32)
        self.action_space = spaces.Box(0.0, 10.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        self.outdoor = float(self.np_random.uniform(-5, 12))
        self.wanted = float(self.np_random.uniform(17, 24))
        self.indoor = float(self.np_random.uniform(10, 25))
        return self.look(), {}

    def step(self, action: Any) -> Any:
        heat = float(np.clip(np.asarray(action).reshape(-1)[0], 0.0, 10.0))
        self.clock += 1
        self.indoor += 0.2 * (self.outdoor - self.indoor) + 0.6 * heat
        self.outdoor += float(self.np_random.normal(0, 0.3))
        reward = -0.1 * abs(self.indoor - self.wanted) - 0.02 * heat
        return self.look(), reward, False, self.clock >= self.STEPS, {}

    def look(self) -> Any:
        return np.array([self.indoor, self.outdoor, self.wanted], np.float32)


class Turret(gym.Env):
    """Shoot at a target that drifts: an image, a vector, two masked heads.

    Observation (Dict): `image` [2, 1, 7] with target and gun, 0 to 255; `vector` [ammunition,
    reloading]; `action_mask` [3 + 2]. Action: MultiDiscrete([left, stay, right], [hold, fire]).
    Reward: 1 for a hit, -0.3 for a miss; illegal parts of an action do nothing and cost 0.1. Cut
    after 25 steps.
    """

    CELLS, STEPS = 7, 25

    def __init__(self) -> None:
        self.action_space = spaces.MultiDiscrete([3, 2])
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 1, self.CELLS), np.float32),
                "vector": spaces.Box(-1, 1, (2,), np.float32),
                "action_mask": spaces.Box(0, 1, (5,), np.int8),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.clock, self.ammunition, self.reloading = 0, 8, 0
        self.gun, self.target = (int(x) for x in self.np_random.integers(0, self.CELLS, 2))
        return self.look(), {}

    def step(self, action: Any) -> Any:
        move, fire = (int(part) for part in action)
        mask = self.mask()
        reward = -0.1 * ((not mask[move]) + (not mask[3 + fire]))
        self.reloading = max(0, self.reloading - 1)
        if fire and mask[4]:
            hit = self.gun == self.target
            reward += 1.0 if hit else -0.3
            self.ammunition, self.reloading = self.ammunition - 1, 2
            if hit:
                self.target = int(self.np_random.integers(0, self.CELLS))
        self.gun = int(np.clip(self.gun + move - 1, 0, self.CELLS - 1))
        self.clock += 1
        return self.look(), reward, False, self.clock >= self.STEPS, {}

    def mask(self) -> Any:
        able = self.ammunition > 0 and self.reloading == 0
        return np.array([self.gun > 0, 1, self.gun < self.CELLS - 1, 1, able], np.int8)

    def look(self) -> Any:
        image = np.zeros((2, 1, self.CELLS), np.float32)
        image[0, 0, self.target] = image[1, 0, self.gun] = 255
        vector = np.array([self.ammunition / 8, self.reloading / 2], np.float32)
        return {"image": image, "vector": vector, "action_mask": self.mask()}


def random_play(make: Callable[[], gym.Env], episodes: int = 30) -> Callable[[int], float]:
    """Return a function of a seed: the mean return of uniformly random legal play."""

    def play(seed: int) -> float:
        begin()
        env, rng = make(), np.random.default_rng(seed)
        for episode in range(episodes):
            obs, _ = env.reset(seed=seed * 1000 + episode)
            over = False
            while not over:
                obs, _, terminated, truncated, _ = env.step(legal(env.action_space, obs, rng))
                over = terminated or truncated
        return last_return(episodes)

    return play


def random_team(seed: int) -> float:
    """Return the mean return of a team that plays random legal actions in dfaas_v0."""
    game: dict[str, Any] = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48}
    env, rng, total = corral.make("dfaas_v0", **game), np.random.default_rng(seed), 0.0
    for episode in range(20):
        observations, _ = env.reset(seed=seed * 1000 + episode)
        while env.agents:
            spaces_of = {agent: env.action_space(agent) for agent in env.agents}
            actions = {a: legal(spaces_of[a], observations[a], rng) for a in env.agents}
            observations, rewards, *_ = env.step(actions)
            total += sum(rewards.values())
    return total / 20


def legal(space: spaces.Space, obs: Any, rng: np.random.Generator) -> Any:
    """Return a random action that the observation's mask allows."""
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high).astype(space.dtype)
    sizes = [int(n) for n in getattr(space, "nvec", [getattr(space, "n", 0)])]
    masked = isinstance(obs, dict) and "action_mask" in obs
    mask = obs["action_mask"] if masked else np.ones(sum(sizes))
    parts = np.split(np.asarray(mask), np.cumsum(sizes)[:-1])
    action = [int(rng.choice(np.flatnonzero(part))) for part in parts]
    return action if isinstance(space, spaces.MultiDiscrete) else action[0]
