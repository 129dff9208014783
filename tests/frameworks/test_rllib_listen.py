"""Listening to RLlib: what is heard is what the learner uses, and known traps are named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="needs the extra rllib")

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks.rllib import listen_rllib
from corral.lab.listening.heard import Heard, Rollout
from support import rllib_posted
from support.listening import block
from support.messages import shown
from support.rllib_posted import Mended, PictureEnv, Posted, config

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]

SCRIPT = Path(rllib_posted.__file__)


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    """Start Ray once, without a dashboard. Other modules of tests start one of their own."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def heard(settings: PPOConfig, iterations: int = 2) -> Ear:
    """Train and listen; the algorithm is stopped."""
    algo, ear = settings.build_algo(), Ear("rllib")
    listen_rllib(algo, ear)
    for _ in range(iterations):
        algo.train()
    ear.stop()
    algo.stop()
    assert not ear.error
    return ear


def causes(ear: Ear, policy: str = "default_policy") -> dict[str, int]:
    return {trap.cause: trap.certainty for trap in ear.policies[policy].traps}


def gae(rollout: Rollout, gamma: float, gae_lambda: float) -> Any:
    """Return value targets [T], from what was heard alone."""
    rewards, values, final, terminated, truncated = (
        getattr(rollout, name)[:, 0]
        for name in ("rewards", "values", "final_values", "terminated", "truncated")
    )
    targets, advantage = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        done = terminated[t] or truncated[t]
        after = (0.0 if terminated[t] else final[t]) if done else values[t + 1]
        delta = rewards[t] + gamma * after - values[t]
        advantage = delta + (0.0 if done else gamma * gae_lambda * advantage)
        targets[t] = advantage + values[t]
    return targets


# --- The forum's module, in its own script ------------------------------------------------------


def run_script(kind: str, iterations: int, out: Path) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), kind, str(iterations), str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def test_the_cause_is_named_with_its_class_and_line_in_the_posted_script(tmp_path: Path) -> None:
    report = run_script("Posted", 4, tmp_path)
    assert report["verdict"] == "fault"
    finding = report["findings"][0]
    assert (finding["cause"], finding["certainty"]) == ("zero-advantages", 3)
    lines = SCRIPT.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "Columns.ADVANTAGES" in text)
    assert finding["place"].startswith("Posted._forward (")
    assert finding["place"].endswith(f"{SCRIPT.name}:{line})")
    assert "ValueFunctionAPI" in finding["todo"]


def test_nothing_is_found_in_the_mended_script(tmp_path: Path) -> None:
    report = run_script("Mended", 16, tmp_path)
    assert report["findings"] == []
    assert report["verdict"] == "learns"


# --- Read-only ----------------------------------------------------------------------------------


def test_the_weights_are_the_same_with_and_without_listening(tmp_path: Path) -> None:
    states = []
    for listening in (False, True):
        algo, ear = config(Mended).build_algo(), Ear("rllib")
        methods = dict(vars(Mended)), dict(vars(type(algo.learner_group._learner)))
        if listening:
            listen_rllib(algo, ear)
        for _ in range(3):
            algo.train()
        assert algo.learner_group is not None
        states.append(algo.learner_group.get_weights()["default_policy"])
        path = algo.save_to_path(str(tmp_path / f"{listening}"))
        assert not ear.error
        ear.stop()
        assert methods == (dict(vars(Mended)), dict(vars(type(algo.learner_group._learner))))
        algo.stop()
    assert states[0].keys() == states[1].keys()
    for name, values in states[0].items():
        assert np.array_equal(values, states[1][name]), name
    restored = Algorithm.from_checkpoint(path)
    again = restored.learner_group.get_weights()["default_policy"]
    assert all(np.array_equal(values, again[name]) for name, values in states[1].items())
    restored.stop()


def test_listening_takes_at_most_a_twentieth_of_the_time() -> None:
    settings = config(Mended).training(train_batch_size_per_learner=1024)
    algo, ear = settings.build_algo(), Ear("rllib")
    listen_rllib(algo, ear)
    began = time.process_time()
    for _ in range(12):
        algo.train()
    assert not ear.error
    assert ear.cpu <= 0.05 * (time.process_time() - began)
    algo.stop()


# --- What is heard ------------------------------------------------------------------------------


def test_rollouts_and_minibatches_are_what_the_learner_uses() -> None:
    settings = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"max_episode_steps": 30})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=50)
        .training(train_batch_size_per_learner=200, minibatch_size=200, num_epochs=2)
        .training(gamma=0.95, lambda_=0.9, use_kl_loss=False, clip_param=0.2)
        .training(vf_clip_param=float("inf"))
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )
    ear = heard(settings, 3)
    policy = ear.policies["default_policy"]
    assert not policy.traps
    assert policy.missing == ["mask"]
    assert (policy.gamma, policy.gae_lambda, policy.updates) == (0.95, 0.9, 3)
    assert policy.lengths
    assert policy.returns == [float(length) for length in policy.lengths]
    for rollout in policy.rollouts:
        targets = gae(rollout, 0.95, 0.9)
        assert rollout.returns is not None
        assert rollout.advantages is not None
        assert np.allclose(targets, rollout.returns[:, 0], atol=1e-3)
        advantages = targets - rollout.values[:, 0]
        assert np.corrcoef(advantages, rollout.advantages[:, 0])[0, 1] > 0.9999
        assert rollout.truncated.any()
        assert rollout.terminated.any()
    first = policy.minibatches[0]
    assert first.first
    assert first.gradients is not None
    assert first.gradients.log_probs is not None
    assert np.allclose(first.new_log_probs, first.log_probs, atol=1e-5)
    chances = torch.log_softmax(torch.as_tensor(first.logits), dim=-1).numpy()
    assert np.allclose(
        chances[np.arange(len(chances)), first.actions.astype(int)], first.new_log_probs, atol=1e-5
    )
    expected = -first.advantages / len(first.advantages)
    assert np.allclose(first.gradients.log_probs, expected, atol=1e-6)


def test_sequences_of_a_stateful_module_are_heard_without_their_padding() -> None:
    settings = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .rl_module(model_config={"use_lstm": True, "max_seq_len": 7, "lstm_cell_size": 8})
        .training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
        .training(gamma=0.9, lambda_=0.8, vf_clip_param=float("inf"))
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )
    policy = heard(settings, 1).policies["default_policy"]
    rollout, minibatch = policy.rollouts[0], policy.minibatches[0]
    assert rollout.returns is not None
    assert (rollout.rewards == 1).all()
    assert np.allclose(gae(rollout, 0.9, 0.8), rollout.returns[:, 0], atol=1e-3)
    assert (minibatch.rewards == 1).all()
    assert len(minibatch.rewards) == len(minibatch.new_log_probs) == len(minibatch.logits)


# --- Traps --------------------------------------------------------------------------------------


class LimitedEnv(MultiAgentEnv):
    """Two agents; both are truncated after 4 steps."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_spaces = dict.fromkeys(self.agents, box)
        self.action_spaces = dict.fromkeys(self.agents, gymnasium.spaces.Discrete(2))

    def _each(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return self._each(np.zeros(2, np.float32)), {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        over = self.t >= 4
        obs = self._each(np.full(2, self.t / 4, np.float32))
        ends = {**self._each(over), "__all__": over}
        return obs, self._each(1.0), self._each(False) | {"__all__": False}, ends, {}


def test_of_several_modules_each_is_heard_and_traps_are_named() -> None:
    settings = (
        PPOConfig()
        .environment(LimitedEnv)
        .env_runners(num_env_runners=0)
        .multi_agent(
            policies={"learner", "fixed", "unused"},
            policy_mapping_fn=lambda agent, *_, **__: "learner" if agent == "a" else "fixed",
            policies_to_train=["learner", "unused"],
            algorithm_config_overrides_per_module={"learner": PPOConfig.overrides(gamma=0.5)},
        )
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1, gamma=0.9)
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )
    ear = heard(settings, 2)
    assert causes(ear, "learner") == {"ignored-gamma": 3, "ignored-truncation": 3}
    assert causes(ear, "fixed") == {"untrained-module": 1, "ignored-truncation": 3}
    assert causes(ear, "unused") == {"unused-module": 1}
    learner = ear.policies["learner"]
    assert set(learner.lengths) == {4}
    assert set(learner.returns) == {4.0}
    assert learner.gamma == 0.9  # the one that RLlib uses
    assert np.allclose(gae(learner.rollouts[0], 0.9, 1.0), learner.rollouts[0].returns[:, 0])
    assert "LimitedEnv.step" in learner.traps[-1].place


class Unmasked(Mended):
    def logits(self, batch: dict[str, Any]) -> torch.Tensor:
        logits: torch.Tensor = self.policy_head(self.features(batch[Columns.OBS]))
        return logits


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (lambda: config(Unmasked), {"mask-ignored-in-play": 3}),
        (lambda: config(Mended).env_runners(explore=False), {"play-greedy": 3}),
        (
            lambda: (
                config(Mended)
                .rl_module(rl_module_spec=RLModuleSpec())
                .env_runners(
                    env_to_module_connector=lambda env, spaces, device: FlattenObservations()
                )
            ),
            {"mask-lost": 3},
        ),
        (lambda: config(Mended).training(vf_clip_param=1e-6), {"value-clipped": 3}),
    ],
)
def test_traps_are_named(settings: Any, found: dict[str, int]) -> None:
    assert causes(heard(settings(), 1)) == found


class Pair(LimitedEnv):
    """Two agents; the episode ends with agent b. Both see the same if ``shared``."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.shared, self.cut = config["shared"], config["cut"]
        self.random = np.random.default_rng(0)

    def step(self, actions: Any) -> Any:
        self.t += 1
        over = self.t >= 4
        seen = self.random.uniform(-1, 1, (2, 2)).astype(np.float32)
        obs = {"a": seen[0], "b": seen[0 if self.shared else 1]}
        ends = {"a": over and not self.cut, "b": over, "__all__": over}
        return obs, self._each(1.0), ends, {"__all__": False}, {}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_agents_with_one_observation_and_agents_that_never_end(shared: bool, cut: bool) -> None:
    settings = (
        PPOConfig()
        .environment(Pair, env_config={"shared": shared, "cut": cut})
        .env_runners(num_env_runners=0)
        .multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, *_, **__: agent)
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1)
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )
    ear = heard(settings, 2)
    assert causes(ear, "a") == ({"agent-cut-off": 1} if cut else {})
    assert causes(ear, "b") == ({"observation-of-another": 1} if shared else {})


class LateGoal(PictureEnv):
    """Some episodes reach their end in the step of the time limit."""

    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over and reward > 0, over, info


def test_an_end_in_the_step_of_the_time_limit_is_no_trap() -> None:
    assert causes(heard(config(Mended).environment(LateGoal), 2)) == {}


class TwoChoices(PictureEnv):
    """Two choices of 2 actions each, with the masks of both side by side."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    def step(self, action: Any) -> Any:
        return super().step(2 * action[0] + action[1])

    def look(self) -> dict[str, Any]:
        obs, mask = super().look(), np.ones(4, np.int8)
        mask[self.goal] = 0
        return {**obs, "action_mask": mask}


class Heads(Mended):
    def setup(self) -> None:
        super().setup()
        self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(input_lens=[2, 2])


class SwappedHeads(Heads):
    def logits(self, batch: dict[str, Any]) -> torch.Tensor:
        obs = batch[Columns.OBS]
        mask = obs["action_mask"].roll(2, dims=-1)
        return super().logits({Columns.OBS: {**obs, "action_mask": mask}})


@pytest.mark.parametrize(
    ("kind", "found"), [(Heads, {}), (SwappedHeads, {"mask-ignored-in-play": 3})]
)
def test_masks_of_several_choices(kind: type, found: dict[str, int]) -> None:
    ear = heard(config(kind).environment(TwoChoices), 2)
    assert causes(ear) == found
    mask = ear.policies["default_policy"].rollouts[0].mask
    assert mask is not None
    assert mask.shape[2] == 4


class Shifts(ConnectorV2):
    """Gives each decision the reward of the next one."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in episodes:
            rewards = np.append(episode.get_rewards()[1:], 0.0)
            episode.set_rewards(new_data=rewards.astype(np.float32))
        return batch


class Signs(ConnectorV2):
    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in episodes:
            rewards = np.sign(np.asarray(episode.get_rewards()) - 0.3)
            episode.set_rewards(new_data=rewards.astype(np.float32))
        return batch


@pytest.mark.parametrize(("kind", "found"), [(Shifts, {"reward-late": 3}), (Signs, {})])
def test_rewards_that_a_connector_changes(kind: type, found: dict[str, int]) -> None:
    settings = config(Mended).learners(learner_connector=lambda *spaces, **_: kind())
    assert causes(heard(settings, 2)) == found


class Replaces(ConnectorV2):
    """Plays other actions than those that were sampled."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        batch[Columns.ACTIONS_FOR_ENV] = {
            key: [0 for _ in listed] for key, listed in batch[Columns.ACTIONS].items()
        }
        return batch


def test_actions_that_a_connector_replaces() -> None:
    settings = config(Mended).environment(normalize_actions=False, clip_actions=False)
    settings.env_runners(module_to_env_connector=lambda *_, **__: Replaces())
    assert causes(heard(settings, 2)) == {"actions-changed": 2}


def test_an_algorithm_of_the_old_stack_cannot_be_heard() -> None:
    ear = Ear("rllib")
    old: Any = SimpleNamespace(config=SimpleNamespace(enable_rl_module_and_learner=False))
    listen_rllib(old, ear)
    assert causes(ear) == {"old-stack": 2}


# --- Learners in other processes ----------------------------------------------------------------


def remote(**training: Any) -> Algorithm:
    settings = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    settings.training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1, **training)
    settings.learners(num_learners=1).debugging(seed=0, log_level="ERROR")
    algo: Algorithm = settings.build_algo()
    return algo


def test_a_remote_learner_is_heard_in_its_own_process() -> None:
    said: list[str] = []
    algo, ear = remote(vf_clip_param=1e-6), Ear("rllib", say=said.append)
    listen_rllib(algo, ear)
    for _ in range(3):
        algo.train()
    assert len(said) == 1
    assert ear.report().updates == {"default_policy": 3}
    algo.stop()
    report = ear.report()  # the learner is gone
    assert ("value-clipped", 3) in [(item.cause, item.certainty) for item in report.findings]
    assert report.updates == {"default_policy": 3}
    assert report.episodes["default_policy"] > 0
    assert not report.errors


def test_a_remote_learner_trains_as_without_listening() -> None:
    states = []
    for listening in (False, True):
        algo, ear = remote(), Ear("rllib")
        if listening:
            listen_rllib(algo, ear)
        algo.train()
        ear.stop()
        algo.train()
        states.append(algo.learner_group.get_weights()["default_policy"])
        algo.stop()
    assert ear.report().updates == {"default_policy": 1}
    assert all(np.array_equal(values, states[1][name]) for name, values in states[0].items())


def test_a_remote_learner_that_cannot_be_heard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    algo, ear = remote(), Ear("rllib")
    monkeypatch.setattr("corral.lab.listening.frameworks.rllib.PACKAGE", "missing_package")
    listen_rllib(algo, ear)
    algo.train()
    assert causes(ear, "learners") == {"remote-learners": 1}
    shown(ear.report().findings[0].measured, "num_learners=1", "missing_package")
    algo.stop()


def test_a_posted_module_that_returns_no_advantages_is_named_before_it_fails() -> None:
    class Failing(Posted):
        _forward = Mended._forward

    said: list[str] = []
    algo, ear = config(Failing).build_algo(), Ear("rllib", say=said.append)
    listen_rllib(algo, ear)
    assert len(said) == 1
    with pytest.raises(KeyError, match="advantages"):
        algo.train()
    policy: Heard = ear.policies["default_policy"]
    assert [trap.cause for trap in policy.traps] == ["zero-advantages"]
    assert not ear.error
    ear.stop()
    algo.stop()


def test_the_block_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    name = "listen_rllib.py"
    exec(compile(block(name), name, "exec"), {"__name__": name})
    shown(capsys.readouterr().out, "Measurements")
