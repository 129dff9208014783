"""The trainer rllib_ppo, and the example of docs/plug_it_in, against RLlib itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import ray

import corral
from corral.errors import CheckpointError, UnsupportedSpaceError, WorkerError
from corral.trainers.rllib.trainer import RLlibPPO
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint
from corral.trainers.runs.run import Run
from support.breaking_rules import BreaksLater
from support.frameworks import Play, example, judge
from support.gift_env import Gift
from support.messages import refused, shown
from support.zoo_envs import MixedEnv

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SMALL = {"envs_per_runner": 4, "train_batch_size": 128, "batch_size": 64, "n_epochs": 2}


@pytest.fixture(scope="module", autouse=True)
def own_ray() -> Iterator[None]:
    """One Ray for all tests of this module."""
    nice = "RAY_worker_niceness"
    os.environ[nice] = "0"  # 15 by itself: on a busy machine they would starve
    found = {"env_vars": {"PYTHONPATH": str(ROOT / "tests")}}  # rules of tests, in runners
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        runtime_env=found,
    )
    yield
    ray.shutdown()
    del os.environ[nice]


def trained(name: Any, out: Path, steps: int = 256, **settings: Any) -> Run:
    return corral.train(
        name, trainer="rllib_ppo", steps=steps, seed=1, out=out, **{**SMALL, **settings}
    )


def weights(run: Run) -> dict[str, dict[str, bytes]]:
    content = load_checkpoint(latest_checkpoint(run.folder / "checkpoints"))
    return {
        file: {key: array.tobytes() for key, array in arrays.items()}
        for file, arrays in content.arrays.items()
    }


def test_the_example_beats_random() -> None:
    verdict = judge(example("rllib").learn, steps=8_000)
    assert verdict.beats_random, verdict


def test_the_trainer_beats_random_and_is_judged_without_ray(tmp_path: Path) -> None:
    def learn(steps: int, seed: int) -> Play:
        policies = corral.train(
            "dfaas_v0",
            trainer="rllib_ppo",
            steps=steps,
            seed=seed,
            env_kwargs={"trace": "edge3", "max_cycles": 48},
            out=tmp_path / "run",
            train_batch_size=512,
            learning_rate=4e-3,
        ).policies
        return lambda seen: {
            a: int(policies[a].act(seen[a], deterministic=True).action) for a in seen
        }

    verdict = judge(learn, steps=20_000, seed=1)
    assert verdict.beats_random, verdict
    run = corral.load_run(tmp_path / "run")
    progress = run.progress
    assert progress["kpi_illegal_actions"].dropna().eq(0).all()
    agents = [f"return_node_{i}" for i in range(3)]
    ended = progress.dropna(subset="return_team")
    np.testing.assert_allclose(ended[agents].sum(axis=1), ended["return_team"], rtol=1e-6)

    code = (
        "import sys\nsys.modules['ray'] = None\n"
        f"sys.argv = ['corral', 'evaluate', {str(run.folder)!r}, '--policies', 'random/equal']\n"
        "from corral.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown(done.stdout, "rllib_ppo, greedy")
    assert (run.folder / "results.json").exists()
    assert sorted(path.name for path in run.export("weights", tmp_path / "export")) == [
        "manifest.json",
        "shared.json",
        "shared.safetensors",
    ]


@pytest.mark.parametrize("name", ["tictactoe_v0", "tiles_v0", "probe_p10_v0"])
def test_every_kind_trains(name: str, tmp_path: Path) -> None:
    policies = "separate" if name == "tiles_v0" else "shared"
    run = corral.train(
        name,
        trainer="rllib_ppo",
        steps=256,
        out=tmp_path / "run",
        policies=policies,
        **{**SMALL, "critic_input": "state"},
    )
    assert run.progress["env_steps"].iloc[-1] >= 256
    assert run.progress["return_team"].notna().any()
    assert set(run.policies) == set(run.config.policies)


@pytest.mark.parametrize(
    ("name", "returns"),
    [
        ("probe_p10_v0", [2, 4]),  # agents that end early
        ("probe_p13_v0", [0, 1.5]),  # 0.5 before the first turn
        ("probe_p15_v0", [5, 50, 500]),
    ],
)
def test_returns_are_those_of_the_game(name: str, returns: list[float], tmp_path: Path) -> None:
    """Rollouts of 5 steps and odd numbers of copies: episodes are cut all the time."""
    run = trained(name, tmp_path / "run", envs_per_runner=3, train_batch_size=75, batch_size=32)
    last = run.progress.iloc[-1]
    for i, expected in enumerate(returns):
        assert last[f"return_agent_{i}"] == pytest.approx(expected)
    assert last["return_team"] == pytest.approx(sum(returns))
    assert last["return_of_shared"] == pytest.approx(sum(returns))


@pytest.mark.parametrize("whole", [True, False])
def test_replies_are_learned_from(whole: bool, tmp_path: Path) -> None:
    """Probe 12: agent 0 is paid when the other has replied, in whole episodes and in cut ones."""
    run = trained(
        "probe_p12_v0",
        tmp_path / "run",
        steps=2_500,
        whole_episodes=whole,
        train_batch_size=250,
        batch_size=64,
        learning_rate=0.02,
        n_epochs=4,
    )
    env = corral.make("probe_p12_v0", illegal="raise")
    env.reset(seed=0)
    first = run.policies["agent_0"].act(env.observe("agent_0"), deterministic=True)
    assert first.action == 1
    assert first.extra["probabilities"][1] > 0.8


def test_policies_that_do_not_train_stay_as_they_are(tmp_path: Path) -> None:
    given = {"policies": "separate", "policies_to_train": ["agent_0"]}
    run = trained("probe_p18_v0", tmp_path / "run", **given)
    rules = run.config.env_config.rules()
    fresh = RLlibPPO(
        rules,
        RLlibPPO.Settings(**SMALL),
        seed=1,
        policies=run.config.policies,
        policies_to_train=["agent_0"],
        steps=256,
    ).save()
    after = weights(run)
    for key, array in fresh.arrays["policy_agent_1"].items():
        assert after["policy_agent_1"][key] == array.tobytes()
    changed = [
        key
        for key, array in fresh.arrays["policy_agent_0"].items()
        if after["policy_agent_0"][key] != array.tobytes()
    ]
    assert len(changed) == len(fresh.arrays["policy_agent_0"])
    assert "policy_loss" not in run.progress
    assert "agent_0/policy_loss" in run.progress
    assert "agent_1/policy_loss" not in run.progress


def test_the_same_seed_learns_the_same(tmp_path: Path) -> None:
    first, again = (trained("dfaas_v0", tmp_path / name) for name in "ab")
    other = corral.train(
        "dfaas_v0", trainer="rllib_ppo", steps=256, seed=2, out=tmp_path / "c", **SMALL
    )
    assert weights(first) == weights(again)
    assert weights(first) != weights(other)


def test_a_run_is_resumed_from_its_weights(tmp_path: Path) -> None:
    run = trained("dfaas_v0", tmp_path / "run", steps=128)
    before = weights(run)
    more = corral.trainers.driver.resume(run.folder, steps=384, stretch=True)
    assert list(more.progress["env_steps"]) == [128, 256, 384]
    assert weights(more) != before


def test_what_the_environment_raises_in_a_runner_ends_training(tmp_path: Path) -> None:
    """RLlib would restart the runner, and train on. A preset would play the rules before it."""
    with refused(WorkerError, "RuntimeError: broken on purpose"):
        trained(BreaksLater(), tmp_path / "run", runners=1, preset="none")


def test_third_party_environments_train(tmp_path: Path) -> None:
    """As whatever function gives a PettingZoo environment: here an AECEnv with masks."""
    run = trained(corral.adapters.zoo_rules(Gift), tmp_path / "run")
    last = run.progress.iloc[-1]
    assert (last["return_giver"], last["return_taker"]) == (0, 1.5)


def test_training_ends_where_no_runner_plays_any_more() -> None:
    class Silent:
        def train(self) -> dict[str, Any]:
            return {"env_runners": {"num_env_steps_sampled": float("nan")}}

    rules = corral.envs.registry.make_rules("probe_p15_v0")
    learner = RLlibPPO(
        rules,
        RLlibPPO.Settings(**SMALL, patience=1.0),
        seed=0,
        policies=dict.fromkeys(rules.agents, "shared"),
        policies_to_train=["shared"],
        steps=1000,
    )
    learner._algorithm = Silent()
    with refused(WorkerError, "patience=1", "ray status", "corral train --resume"):
        next(learner.learn())


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSpaceError, match="Discrete"):
        trained(corral.adapters.zoo_rules(MixedEnv), tmp_path / "a", policies="separate")
    with pytest.raises(ValueError, match="batch_size"):
        trained("dfaas_v0", tmp_path / "b", batch_size=4096)
    with refused(WorkerError, "address=127.0.0.1:9", "ray start --head"):
        trained("dfaas_v0", tmp_path / "b", address="127.0.0.1:9")
    with pytest.raises(ValueError, match="critic_input"):
        trained("dfaas_v0", tmp_path / "c", critic_input="all")
    assert list(tmp_path.iterdir()) == []
    run = trained("probe_p17_v0", tmp_path / "d")
    other = trained("probe_p15_v0", tmp_path / "e")
    content = load_checkpoint(latest_checkpoint(other.folder / "checkpoints"))
    with pytest.raises(CheckpointError):
        run.begun().load(content)
