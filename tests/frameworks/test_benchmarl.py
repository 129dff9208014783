"""BenchMARL: MAPPO and IPPO learn through CorralTask, masks intact; what it has no notion of."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarl")

import torch
from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig

from corral.adapters.torchrl.benchmarl import CorralTask
from corral.envs import dfaas_v0
from corral.errors import UnsupportedSpaceError

pytestmark = pytest.mark.filterwarnings("default")

EXAMPLE = Path(__file__).parents[2] / "docs" / "plug_it_in" / "benchmarl_example.py"
DFAAS = {"trace": "edge3", "max_cycles": 20, "illegal": "raise"}
KINDS = {
    "dfaas_v0": DFAAS,  # parallel
    "arena_v0": {"illegal": "raise"},  # parallel, two roles
    "probe_p10_v0": {"illegal": "raise"},  # agents that end early
    "probe_p11_v0": {"illegal": "raise"},  # unlike agents: a group and a policy of each
}


def experiment(task: CorralTask, folder: Path, algorithm: Any, frames: int = 400) -> Experiment:
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames, config.save_folder = frames, folder
    config.on_policy_collected_frames_per_batch, config.on_policy_n_envs_per_worker = 200, 5
    config.on_policy_n_minibatch_iters, config.on_policy_minibatch_size = 2, 100
    config.evaluation, config.loggers, config.create_json = True, [], False
    config.evaluation_interval, config.evaluation_episodes, config.render = 200, 2, False
    layers = {"layer_class": torch.nn.Linear, "activation_class": torch.nn.Tanh}
    return Experiment(
        task=task,
        algorithm_config=algorithm.get_from_yaml(),
        model_config=MlpConfig(num_cells=[16], **layers),
        critic_model_config=MlpConfig(num_cells=[16], **layers),
        seed=0,
        config=config,
    )


@pytest.mark.parametrize("algorithm", [MappoConfig, IppoConfig])
@pytest.mark.parametrize("name", KINDS)
def test_kinds_that_train(name: str, algorithm: Any, tmp_path: Path) -> None:
    made = experiment(CorralTask(name, KINDS[name]), tmp_path, algorithm)
    groups = made.group_map
    before = {g: [p.clone() for p in made.losses[g].parameters()] for g in groups}
    made.run()  # one lost mask would raise
    assert made.total_frames == 400
    for group, old in before.items():
        assert any(
            (p != q).any() for p, q in zip(old, made.losses[group].parameters(), strict=True)
        )


@pytest.mark.parametrize("name", ["tictactoe_v0", "tiles_v0"])
def test_games_in_turns_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSpaceError, match="turn-based"):
        experiment(CorralTask(name, {"illegal": "raise"}), tmp_path, MappoConfig)


def test_policies_never_choose_what_the_mask_forbids(tmp_path: Path) -> None:
    made = experiment(CorralTask("dfaas_v0", DFAAS), tmp_path, MappoConfig)
    env = made.env_func()
    rollout = env.rollout(40, made.policy, break_when_any_done=False)
    mask, action = rollout["node", "action_mask"], rollout["node", "action"]
    assert mask.gather(-1, action[..., None]).all()
    assert not mask.all()
    made.close()


@pytest.mark.parametrize("algorithm", ["mappo", "ippo"])
def test_training_beats_random(algorithm: str) -> None:
    learn = runpy.run_path(str(EXAMPLE))["learn"]
    rng = np.random.default_rng(0)

    def play_randomly(observations: dict[str, Any]) -> dict[str, int]:
        return {
            agent: int(rng.choice(np.flatnonzero(seen["action_mask"])))
            for agent, seen in observations.items()
        }

    random, learned = returns(play_randomly), returns(learn(19_200, 0, algorithm))
    assert learned.mean() > random.mean() + 1.96 * random.std(ddof=1) / len(random) ** 0.5
    assert (learned > random).mean() > 0.7  # on the very same windows


def returns(play: Any) -> np.ndarray[Any, Any]:
    """The team's return in each of 20 held-out windows."""
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    totals = np.zeros(20)
    for seed in range(20):
        observations, _ = env.reset(seed=seed)
        while env.agents:
            observations, rewards, *_ = env.step(play(observations))
            totals[seed] += sum(rewards.values())
    return totals
