"""OpenSpiel's games in corral's trainers, through Shimmy: the masks are in infos, and are read."""

import functools
from typing import Any

import numpy as np
from shimmy import OpenSpielCompatibilityV0

import corral
from corral.adapters import zoo_rules


def make(game: str) -> Any:
    """A PettingZoo AECEnv; OpenSpiel itself raises at an illegal action."""
    return OpenSpielCompatibilityV0(game_name=game)


def train(game: str, steps: int, seed: int) -> Any:
    """A run of ``mappo`` on a game of OpenSpiel, one policy per seat."""
    rules = zoo_rules(functools.partial(make, game))
    return corral.train(
        rules, trainer="mappo", policies="separate", steps=steps, seed=seed, num_envs=16
    )


def against_random(run: Any, game: str, seat: str, games: int) -> float:
    """The mean return of the run's greedy player in ``seat``, all others random."""
    env, rng, total = make(game), np.random.default_rng(0), 0.0
    for i in range(games):
        env.reset(seed=i)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            total += reward * (agent == seat)
            if terminated or truncated:
                action = None
            elif agent == seat:
                obs = {"observation": observation, "action_mask": info["action_mask"]}
                action = int(run.policies[agent].act(obs, deterministic=True).action)
            else:
                action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            env.step(action)
    return total / games


if __name__ == "__main__":
    run = train("tic_tac_toe", steps=20_000, seed=0)
    for seat in ("player_0", "player_1"):
        print(seat, against_random(run, "tic_tac_toe", seat, games=500))
