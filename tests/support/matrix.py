"""Every environment with every trainer: what runs, and what is refused with which command."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import corral
from corral.envs import ENVIRONMENTS, PROBES
from corral.errors import UnsupportedSpaceError

ENVS = (*ENVIRONMENTS, *PROBES)
BENCHMARL = {"num_envs": 2, "n_steps": 8, "gradient_steps": 1, "batch_size": 8}
BENCHMARL["learning_starts"] = 0
SHORT: dict[str, dict[str, Any]] = {
    "mappo": {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 1},
    "ippo": {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 1},
    "ppo_kl": {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 1},
    "a2c": {"num_envs": 2, "n_steps": 8},
    "pg": {"num_envs": 2, "n_steps": 8},
    "pg_episode": {"num_envs": 2, "n_steps": 8},
    "clone": {
        **{"num_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 1},
        "teacher": "random",
    },
    "policy_iteration": {
        **{"num_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 1},
        **{"candidates": 2, "lookahead": 3, "own_reward": True},
    },
    "sb3_ppo": {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "batch_size": 16},
    "sb3_maskable_ppo": {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "batch_size": 16},
    "sb3_a2c": {"num_envs": 2, "n_steps": 8},
    "sb3_dqn": {"num_envs": 2, "learning_starts": 4, "log_interval": 2, "batch_size": 16},
    "rllib_ppo": {"envs_per_runner": 2, "train_batch_size": 16, "batch_size": 16, "n_epochs": 1},
    "benchmarl_vdn": BENCHMARL,
    "benchmarl_qmix": BENCHMARL,
    "benchmarl_iql": BENCHMARL,
    "benchmarl_masac": BENCHMARL,
}
"""Settings of a training that takes a moment; everything else is at its default."""


def outcome(env: str, trainer: str, folder: Path) -> str:
    """Train for 16 env steps. Return "runs", or the command that a refusal names.

    Raises AssertionError for a refusal that names none, or leaves a folder.
    """
    refusal = ""
    try:
        with warnings.catch_warnings():
            theirs = trainer.startswith(("rllib", "benchmarl"))  # they warn of themselves
            warnings.simplefilter("ignore" if theirs else "error")
            run = corral.train(
                env, trainer=trainer, steps=16, out=folder, progress=False, **SHORT[trainer]
            )
    except UnsupportedSpaceError as error:
        refusal = str(error)
    if refusal:
        assert not folder.exists(), f"{env}, {trainer}: refused, but {folder} is there"
        command = re.search(r"corral train \S+ --trainer \w+", refusal)
        assert command is not None, f"{env}, {trainer}: {refusal}"
        return command[0]
    assert set(run.policies) == set(run.config.policies)
    return "runs"
