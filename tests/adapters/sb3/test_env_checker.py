"""Stable-Baselines3's own checks, with their defaults, of every environment."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from corral import adapters
from corral.envs import ENVIRONMENTS, PROBES, make_rules

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecCheckNan

SEATS = [
    pytest.param(name, seat, id=f"{name}-{seat}")
    for name in [*ENVIRONMENTS, *PROBES]
    for seat in make_rules(name).agents
]

# It samples without the mask, of which the environments rightly warn.
UNMASKED = pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")
# It takes every observation of three axes for an image, and small ones for too small.
SMALL_IMAGES = pytest.mark.filterwarnings(
    "ignore:It seems that your observation.* is an image:UserWarning",
    "ignore:The minimal resolution for an image is 36x36:UserWarning",
)


@UNMASKED
@SMALL_IMAGES
@pytest.mark.parametrize(("name", "seat"), SEATS)
def test_a_seat_passes(name: str, seat: str) -> None:
    env = adapters.SeatEnv(name, seat)
    check_env(env)
    made = gymnasium.make("corral/" + name.replace("_v", "-v"), seat=seat)
    check_env(made)
    assert env.action_space == made.action_space


@pytest.mark.parametrize("name", [n for n, spec in ENVIRONMENTS.items() if spec.simultaneous])
def test_columns_are_numbers(name: str) -> None:
    """VecCheckNan raises for NaN and infinity in what goes in and what comes out."""
    vec_env = VecCheckNan(adapters.make_vec_env(name, 2, seed=0), raise_exception=True)
    vec_env.reset()
    rng, ends = np.random.default_rng(0), 0
    for _ in range(320):
        masks = vec_env.env_method("action_masks")
        actions = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
        observations, rewards, dones, _ = vec_env.step(np.array(actions))
        assert np.isfinite(rewards).all()
        assert vec_env.observation_space.contains(
            {key: values[0] for key, values in observations.items()}
        )
        ends += int(dones.sum())
    assert ends >= 2
