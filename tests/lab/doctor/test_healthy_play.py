"""Nothing is found in sound runs: any kind of space, memory, network and opponent."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.adapters.zoo.batch import zoo_rules
from corral.lab.doctor.diagnose import diagnose
from faults.fault import trained
from faults.sound import Depots, Pictured, depots
from support.bits_env import BitsEnv
from support.gift_env import Gift
from support.zoo_envs import MixedEnv, RingEnv

ROOT = Path(__file__).parents[3]

POOL = "past=0.5,every=256,keep=3,best=0"

SOUND: dict[str, Any] = {
    "dfaas, a policy each": ("dfaas_v0", {"trainer": "ippo", "policies": "separate"}),
    "masks and memory": ("arena_v0", {"env_kwargs": {"walls": "mask"}, "memory": 8}),
    "turns": ("tictactoe_v0", {"trainer": "ippo"}),
    "a pool": ("tictactoe_v0", {"trainer": "ippo", "self_play": POOL}),
    "a pool, at once": ("arena_v0", {"self_play": POOL}),
    "a pool, memory, a policy each": (
        "rps_v0",
        {"self_play": POOL, "memory": 8, "policies": "separate"},
    ),
    "an opponent": ("tictactoe_v0", {"opponents": {"player_2": "random"}}),
    "actor-critic": ("rps_v0", {"trainer": "a2c"}),
    "one decision": ("two_step_v0", {}),
    "paid before its turn": (zoo_rules(Gift), {"trainer": "ippo"}),
    "third-party": (depots(Depots), {"memory": 8, "policies": "separate"}),
    "Dict with a picture": (depots(Pictured), {}),
    "own network": ("dfaas_v0", {"model": f"{ROOT}/docs/networks/mlp.py:make"}),
    "own network for pictures": ("tiles_v0", {"model": f"{ROOT}/docs/networks/tiles.py:make"}),
    "other actions": (zoo_rules(MixedEnv), {}),
    "in a ring": (zoo_rules(RingEnv), {}),
    "several choices": (zoo_rules(functools.partial(BitsEnv, kind="bits")), {"trainer": "ippo"}),
    "numbers": (zoo_rules(functools.partial(BitsEnv, kind="box")), {}),
}


QUICK = ("turns", "a pool", "paid before its turn", "several choices")
"""What differs most; the others are tried by make test-slow."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n not in QUICK else n for n in SOUND]
)
def test_nothing_is_found_in_a_sound_run(name: str, tmp_path: Path) -> None:
    env, given = SOUND[name]
    diagnosis = diagnose(
        trained(tmp_path / "run", env, **given), audited=False, cloned=False, checked=False
    )
    assert diagnosis.looked_at
    assert [(f.cause, f.measured) for f in diagnosis.findings if f.certainty >= 2] == []


@pytest.mark.slow
def test_columns_that_only_other_settings_fill_are_no_finding(tmp_path: Path) -> None:
    """The queue of a node of dfaas_v0 is always 0 by default."""
    run = trained(tmp_path / "run", "dfaas_v0", env_kwargs={"max_cycles": 12}, n_steps=64)
    diagnosis = diagnose(run, audited=False, cloned=False)
    assert "observation-blank" not in [finding.cause for finding in diagnosis.findings]


class Bounded(Depots):
    """Its last two columns are not used, and their bounds say so."""

    def observation_space(self, agent: str) -> Any:
        space = super().observation_space(agent)
        high = np.array([10, 10, 0, 0], np.float32)
        return spaces.Dict(
            observation=spaces.Box(np.zeros(4, np.float32), high), action_mask=space["action_mask"]
        )

    def look(self, i: int) -> Any:
        return super().look(i) * np.array([1, 1, 0, 0], np.float32)


@pytest.mark.slow
def test_columns_that_are_declared_constant_are_no_finding(tmp_path: Path) -> None:
    diagnosis = diagnose(trained(tmp_path / "run", depots(Bounded)), audited=False, cloned=False)
    assert "observation-blank" not in [finding.cause for finding in diagnosis.findings]
