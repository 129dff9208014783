"""Small environments for the planted scripts, and the true score of each training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

LAST = 30
"""Episodes of a score."""


class Scores:
    """True returns of the episodes of a training, in the order in which they ended."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def mean(self) -> float:
        """Mean return of the last episodes; of none, nan."""
        return float(np.mean(self.returns[-LAST:])) if self.returns else float("nan")


class Scored(gym.Wrapper[Any, Any, Any, Any]):
    """Writes down the true returns; stands directly around the game, below all other wrappers."""

    def __init__(self, env: gym.Env[Any, Any], scores: Scores) -> None:
        super().__init__(env)
        self.scores = scores
        self.earned = 0.0
        self.played = 0

    def reset(self, **options: Any) -> Any:
        # An episode that was cut from outside ends here.
        if self.played:
            self.scores.returns.append(self.earned)
        self.earned, self.played = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.earned += float(info.get("true_reward", reward))
        self.played += 1
        if terminated or truncated:
            self.scores.returns.append(self.earned)
            self.earned, self.played = 0.0, 0
        return obs, reward, terminated, truncated, info


class Errands(gym.Env[np.ndarray, int]):
    """Fetch a key on a grid of 5 x 5, then carry it to the door.

    Observation [54]: cells of the agent and of its present goal (one-hot), where the key is held,
    and the share of the time that has passed, three features for the distance to the goal.
    Actions: up, down, left, right, take, open. Moves into a wall are illegal, so is "take" without
    a key and "open" without a door. An illegal action does nothing and costs 0.3. Rewards: 1 for
    the key, 3 for the door, which ends the episode, and -0.05 a step. 60 steps cut it.
    """

    SIZE, LIMIT = 5, 60
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2 * self.SIZE**2 + 4,), np.float32)
        self.action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        cells = self.np_random.choice(self.SIZE**2, 3, replace=False)
        self.agent, self.key, self.door = (divmod(int(cell), self.SIZE) for cell in cells)
        self.held, self.time = False, 0
        return self.observe(), {}

    @property
    def goal(self) -> tuple[int, int]:
        return self.door if self.held else self.key

    def observe(self) -> np.ndarray:
        obs = np.zeros(2 * self.SIZE**2 + 4, np.float32)
        obs[self.agent[0] * self.SIZE + self.agent[1]] = 1
        obs[self.SIZE**2 + self.goal[0] * self.SIZE + self.goal[1]] = 1
        obs[-4] = self.held
        obs[-3] = self.time / self.LIMIT
        obs[-2:] = (np.array(self.goal) - np.array(self.agent)) / (self.SIZE - 1)
        return obs

    def action_masks(self) -> np.ndarray:
        row, column = self.agent
        inside = [
            0 <= row + down < self.SIZE and 0 <= column + right < self.SIZE
            for down, right in self.MOVES
        ]
        here = self.agent == self.goal
        return np.array([*inside, here and not self.held, here and self.held])

    def step(self, action: int) -> Any:
        legal = self.action_masks()[int(action)]
        reward, terminated = -0.05, False
        if not legal:
            reward -= 0.3
        elif action < 4:
            down, right = self.MOVES[int(action)]
            self.agent = (self.agent[0] + down, self.agent[1] + right)
        elif action == 4:
            self.held, reward = True, reward + 1
        else:
            terminated, reward = True, reward + 3
        self.time += 1
        return self.observe(), reward, terminated, not terminated and self.time >= self.LIMIT, {}


class Reach(gym.Env[np.ndarray, np.ndarray]):
    """Push a point of mass 1 on a plane to a goal; 40 steps, each costs the distance.

    Observation [6]: position, velocity, goal. Action [2] in [-1, 1]: the force.
    """

    LIMIT = 40

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-4.0, 4.0, (6,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.velocity, self.time = np.zeros(2), 0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        parts = [self.position, self.velocity, self.goal]
        return np.clip(np.concatenate(parts), -4, 4).astype(np.float32)

    def step(self, action: np.ndarray) -> Any:
        self.velocity = 0.8 * self.velocity + 0.15 * np.clip(action, -1, 1)
        self.position = np.clip(self.position + self.velocity, -2, 2)
        self.time += 1
        reward = -float(np.linalg.norm(self.position - self.goal))
        return self.observe(), reward, False, self.time >= self.LIMIT, {}


class Catch(gym.Env[np.ndarray, int]):
    """Catch a falling ball with a paddle; an image uint8 [1, 10, 7].

    Actions: left, stay, right. In the last row the reward is 1 for a catch, else -1.
    """

    ROWS, COLUMNS = 10, 7

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (1, self.ROWS, self.COLUMNS), np.uint8)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.row, self.paddle = 0, self.COLUMNS // 2
        self.ball = int(self.np_random.integers(self.COLUMNS))
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        image = np.zeros((1, self.ROWS, self.COLUMNS), np.uint8)
        image[0, -1, self.paddle] = 128
        image[0, self.row, self.ball] = 255
        return image

    def step(self, action: int) -> Any:
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 0, self.COLUMNS - 1))
        self.row += 1
        over = self.row == self.ROWS - 1
        reward = 0.0 if not over else 1.0 if self.paddle == self.ball else -1.0
        return self.observe(), reward, over, False, {}


class Recall(gym.Env[np.ndarray, int]):
    """See one of three cues, wait four steps, name the cue: needs a memory.

    Observation [5]: cue (one-hot, only at the start), whether to answer, bias.
    """

    WAIT = 4

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (5,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.cue, self.time = int(self.np_random.integers(3)), 0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        obs = np.zeros(5, np.float32)
        if self.time == 0:
            obs[self.cue] = 1
        obs[3], obs[4] = self.time == self.WAIT, 1
        return obs

    def step(self, action: int) -> Any:
        over = self.time == self.WAIT
        reward = float(over and int(action) == self.cue)
        self.time += 1
        return self.observe(), reward, over, False, {}


class Stock(gym.Env[np.ndarray, int]):
    """Order goods for a shop that never closes; cut after 50 days.

    Observation [3]: stock, order on its way, demand of yesterday, each divided by 10. Actions:
    order 0 .. 7. Each sale earns 1, each unit in stock costs 0.3, each lost sale 0.5, each unit
    ordered 0.4. Orders arrive a day later.
    """

    LIMIT, MOST = 50, 20

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 2.0, (3,), np.float32)
        self.action_space = spaces.Discrete(8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.stock, self.coming, self.demand, self.time = 5, 0, 3, 0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.array([self.stock, self.coming, self.demand], np.float32) / 10

    def step(self, action: int) -> Any:
        self.demand = int(min(self.np_random.poisson(3), 6))
        self.stock = min(self.stock + self.coming, self.MOST)
        sold = min(self.stock, self.demand)
        self.stock, self.coming = self.stock - sold, int(action)
        self.time += 1
        lost = self.demand - sold
        reward = sold - 0.3 * self.stock - 0.5 * lost - 0.4 * int(action)
        return self.observe(), reward, False, self.time >= self.LIMIT, {}


class CartPole(CartPoleEnv):
    """gymnasium's cart-pole, cut after 200 steps."""

    LIMIT = 200

    def reset(self, **options: Any) -> Any:
        self.time = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(int(action))
        self.time += 1
        return obs, reward, terminated, not terminated and self.time >= self.LIMIT, info


Make = Callable[[Scores], gym.Env[Any, Any]]
"""Makes one copy of an environment, whose returns go to these scores."""


def of(game: type[gym.Env[Any, Any]], *wrappers: Callable[[Any], gym.Env[Any, Any]]) -> Make:
    """Return the maker of a game under these wrappers, the innermost first."""

    def make(scores: Scores) -> gym.Env[Any, Any]:
        env: gym.Env[Any, Any] = Scored(game(), scores)
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return make


def random_play(make: Make, episodes: int = 60) -> Callable[[int], float]:
    """Return a function of the seed: the mean return of uniformly random legal play."""

    def play(seed: int) -> float:
        scores = Scores()
        env = make(scores)
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        while len(scores.returns) < episodes:
            if isinstance(env.action_space, spaces.Discrete):
                masks = np.ones(int(env.action_space.n))
                if hasattr(env.unwrapped, "action_masks"):
                    masks = env.unwrapped.action_masks()
                action: Any = rng.choice(np.flatnonzero(masks))
            else:
                space: Any = env.action_space
                action = rng.uniform(space.low, space.high).astype(np.float32)
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return float(np.mean(scores.returns))

    return play
