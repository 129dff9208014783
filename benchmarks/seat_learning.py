"""One seat of each game, learned by sb3-contrib's MaskablePPO through ``SeatEnv``.

    OMP_NUM_THREADS=1 python benchmarks/seat_learning.py

Reference players play the other seats. Stable-Baselines3's own loop runs on eight copies, with
``MaskablePolicy``; the environments run with illegal="raise", so that one lost mask would end it.
The curve is the learner's return, mean of its last 100 episodes; judged is the greedy policy over
200 episodes, beside random play in the same seat. ``learning_curves.py --draw`` draws the curves.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from common import machine, save
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from corral.adapters import MaskablePolicy, SeatEnv

SEEDS = (0, 1)
COPIES = 8
POINTS = 10  # of a curve
EPISODES = 200
GAMES: dict[str, dict[str, Any]] = {
    "arena_v0, explorer beside a random blocker": {
        "env": ("arena_v0", "agent_1", "random"),
        "steps": 30_000,
        "settings": {"learning_rate": 1e-3, "gamma": 0.99},
    },
    "tictactoe_v0, player_1 against random": {
        "env": ("tictactoe_v0", "player_1", "random"),
        "steps": 30_000,
        "settings": {"learning_rate": 1e-3, "gamma": 1.0, "ent_coef": 0.02},
    },
    "rps_v0, player_0 against beat-last": {
        "env": ("rps_v0", "player_0", "beat-last"),
        "steps": 12_000,
        "settings": {"learning_rate": 1e-3, "gamma": 0.5},
    },
    "tiles_v0, level_0 beside greedy's tile_0": {
        "env": ("tiles_v0", "level_0", "greedy"),
        "steps": 12_000,
        "settings": {"learning_rate": 1e-3, "gamma": 0.95},
    },
}


class Curve(BaseCallback):  # type: ignore[misc]
    """The mean return of the last 100 episodes, at so many env steps."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.points: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        recent = self.model.ep_info_buffer
        if recent and self.num_timesteps >= self.every * (len(self.points) + 1):
            mean = float(np.mean([episode["r"] for episode in recent]))
            self.points.append((self.num_timesteps, mean))
        return True


def judged(seat: SeatEnv, model: Any) -> float:
    """Mean return, greedy; of uniformly random legal play where ``model`` is None."""
    rng = np.random.default_rng(0)
    total = 0.0
    for episode in range(EPISODES):
        obs, _ = seat.reset(seed=10_000 + episode)
        over = False
        while not over:
            masks = seat.action_masks()
            if model is None:
                action = int(rng.choice(np.flatnonzero(masks)))
            else:
                action = int(model.predict(obs, action_masks=masks, deterministic=True)[0])
            obs, reward, terminated, truncated, _ = seat.step(action)
            total += reward
            over = terminated or truncated
    return total / EPISODES


def learn(game: dict[str, Any], seed: int) -> dict[str, Any]:
    def make(copy: int) -> Monitor:  # type: ignore[type-arg]
        seat = SeatEnv(*game["env"], illegal="raise")
        seat.reset(seed=1000 * seed + copy)
        return Monitor(seat)

    vec_env = DummyVecEnv([lambda copy=copy: make(copy) for copy in range(COPIES)])
    settings = {"n_steps": 128, "batch_size": 256, "n_epochs": 6, **game["settings"]}
    model = MaskablePPO(MaskablePolicy, vec_env, seed=seed, device="cpu", **settings)
    curve = Curve(game["steps"] // POINTS)
    began = time.perf_counter()
    model.learn(game["steps"], callback=curve)
    seconds = time.perf_counter() - began
    return {
        "curve": curve.points,
        "seconds": seconds,
        "greedy": judged(SeatEnv(*game["env"], illegal="raise"), model),
    }


def main() -> None:
    lines = [
        "# One seat of each game, learned by MaskablePPO",
        "",
        "![a panel per game](seat_learning.svg)",
        "",
        "| game | seed | env steps | return at first | at the end | greedy | random play | s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for name, game in GAMES.items():
        random = judged(SeatEnv(*game["env"], illegal="raise"), None)
        found[name] = {"random": random, "seeds": {}}
        for seed in SEEDS:
            r = found[name]["seeds"][str(seed)] = learn(game, seed)
            first, last = (r["curve"][end][1] for end in (0, -1))
            lines.append(
                f"| {name} | {seed} | {game['steps']:,} | {first:.2f} | {last:.2f} "
                f"| {r['greedy']:.2f} | {random:.2f} | {r['seconds']:.0f} |"
            )
            print(lines[-1], file=sys.stderr)
    about = machine("torch", "stable-baselines3", "sb3-contrib", "gymnasium")
    save("seat_learning", "\n".join(lines), found, about)


if __name__ == "__main__":
    main()
