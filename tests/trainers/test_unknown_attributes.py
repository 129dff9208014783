"""Habits from other libraries: the error of an unknown attribute names what to use."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import corral
from corral.adapters import make_batch
from corral.envs.registry import make_rules
from support.messages import refused


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("load", "'load_run'"),
        ("make_vec_env", "from corral.adapters import make_vec_env"),
        ("arena_v0", "from corral.envs import arena_v0"),
        ("Evaluate", "from corral.trainers import Evaluate"),
        ("trian", "'train'"),
        ("nothing_like_it", "'nothing_like_it'"),
    ],
)
def test_the_package(name: str, instead: str) -> None:
    with refused(AttributeError, instead):
        getattr(corral, name)


def test_submodules_are_imported_without_the_others() -> None:
    """The import system asks for the attribute ``envs`` first."""
    code = "import sys\nfrom corral import extras\nassert 'corral.adapters' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "api", "instead"),
    [
        ("seed", "parallel", "env.reset(seed=0)"),
        ("seed", "aec", "env.reset(seed=0)"),
        ("agent_iter", "parallel", 'api="aec"'),
        ("last", "parallel", 'api="aec"'),
        ("dones", "aec", "terminations"),
        ("num_envs", "parallel", "corral.adapters.make_batch"),
    ],
)
def test_environments(name: str, api: Any, instead: str) -> None:
    env = corral.make("arena_v0", api=api)
    env.reset(seed=0)
    with refused(AttributeError, name, instead):
        getattr(env, name)
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.possible_agents == env.possible_agents


def test_a_property_raises_its_own_error() -> None:
    class Broken(type(corral.make("arena_v0"))):  # type: ignore[misc]
        @property
        def width(self) -> int:
            return int(self.rules.no_such_width)

    env = Broken(make_rules("arena_v0"))
    with refused(AttributeError, "'no_such_width'"):
        getattr(env, "width")  # noqa: B009


def test_an_agent_that_does_not_exist() -> None:
    env = corral.make("arena_v0")
    for space in (env.action_space, env.observation_space):
        with refused(KeyError, "'agent_0'", "agent_1, agent_2"):
            space("agent_0")


def test_a_step_of_a_batch_is_not_a_tuple() -> None:
    batch = make_batch("arena_v0", num_envs=2, seed=0)
    batch.reset()
    with refused(TypeError, "step.reward", "step.terminated"):
        _, _, _, _, _ = batch.step(np.zeros((2, 2), dtype=int))


def test_a_vector_takes_one_seed() -> None:
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=2)
    with refused(TypeError, "seed=[1, 2]"):
        envs.reset(seed=[1, 2])
    envs.reset(seed=np.int64(1))


def test_runs_and_sessions(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    plan: dict[str, Any] = {"num_envs": 2, "n_steps": 16, "n_minibatches": 1, "progress": False}
    with corral.session("arena_v0", steps=64, out=tmp_path / "run", **plan) as session:
        for name in ("train", "learn"):
            with refused(AttributeError, name, "for row in session"):
                getattr(session, name)
        next(session)
    run = corral.load_run(tmp_path / "run")
    for name, instead in {
        "predict": "run.policies",
        "save": "run.export",
        "learn": "corral.resume",
    }.items():
        with refused(AttributeError, name, instead):
            getattr(run, name)
    assert not hasattr(run, "nothing")
    schedule: Any = lambda progress: 1e-3 * progress  # noqa: E731
    with refused(ValueError, "learning_rate", "linear:", "0:0.1,20000:0"):
        corral.train("arena_v0", steps=64, learning_rate=schedule, out=tmp_path / "other", **plan)
