"""The ladder of connect_four_v3: random play and one-ply play; and PettingZoo's own tutorial.

ladder_rungs.py has the players that look ahead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pettingzoo.utils
from ladder_rungs import OnePly
from pettingzoo.classic import connect_four_v3
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.wrappers import ActionMasker

from corral.envs.policy import RandomPolicy

__all__ = ["RUNGS", "tutorial"]

SAVE_EVERY = 10_240
"""Env steps between two files of a model: five of its rollouts."""


# --- Rungs ---------------------------------------------------------------------------------------


RUNGS = {"random": RandomPolicy(), "one-ply": OnePly()}


# --- "SB3: Action Masked PPO for Connect Four", of PettingZoo's documentation ---------------------


class OneAgent(pettingzoo.utils.BaseWrapper, gymnasium.Env):  # type: ignore[misc, type-arg]
    """Both players as one agent, as the tutorial does it: what it observes is for whoever is next,
    what it earns is for whoever moved.

    So the loser's -1 reaches no move: the episode ends with the winner's. And since one player's
    moves follow the other's in one trajectory, the winner's +1 is passed back to both.
    """

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed, options)
        first = self.possible_agents[0]
        self.observation_space = super().observation_space(first)["observation"]
        self.action_space = super().action_space(first)
        return self.observe(self.agent_selection), {}

    def step(self, action: int) -> Any:
        mover = self.agent_selection
        super().step(action)
        return (
            self.observe(self.agent_selection),
            self._cumulative_rewards[mover],
            self.terminations[mover],
            self.truncations[mover],
            self.infos[mover],
        )

    def observe(self, agent: str) -> Any:
        return super().observe(agent)["observation"]

    def action_mask(self) -> Any:
        return super().observe(self.agent_selection)["action_mask"]


def tutorial(seed: int, steps: int, folder: Path, until: Any) -> dict[int, Path]:
    """Train MaskablePPO with the tutorial's settings, which are its defaults: env steps -> file.

    It goes on from its last file; between two files ``until()`` may end it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {int(path.stem): path for path in folder.glob("*.zip")}
    wrapped = OneAgent(connect_four_v3.env())
    wrapped.reset(seed=seed)
    env = ActionMasker(wrapped, OneAgent.action_mask)
    done = max(files, default=0)
    if done:
        model = MaskablePPO.load(files[done], env=env, device="cpu")
        model.set_random_seed(seed + done)
    else:
        model = MaskablePPO(MaskableActorCriticPolicy, env, device="cpu")
        model.set_random_seed(seed)
    while done < steps and not until():
        model.learn(min(SAVE_EVERY, steps - done), reset_num_timesteps=False)
        done = model.num_timesteps
        model.save(folder / "saving")
        files[done] = (folder / "saving.zip").replace(folder / f"{done}.zip")
    return files
