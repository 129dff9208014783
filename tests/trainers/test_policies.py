"""Trained policies of every backend: predict, distribution, network, copies and pickles."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

from corral.adapters import SeatEnv
from corral.adapters.nested import flat_tree
from corral.adapters.zoo.batch import zoo_rules
from corral.envs import make_rules
from corral.envs.batch import Batch
from corral.envs.core import generator
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.errors import MissingExtraError
from corral.trainers.base import trainer_class
from support.messages import refused, shown
from support.no_masks import OBSERVATIONS, NoMasks

torch = pytest.importorskip("torch", reason="needs torch")

TRAINERS = (*("mappo", "ippo", "sb3_ppo", "sb3_maskable_ppo", "sb3_a2c", "sb3_dqn", "rllib_ppo"),)


def policies(name: str, env: str = "dfaas_v0", **settings: Any) -> Any:
    """Policies of networks that are not trained yet."""
    rules = make_rules(env)
    try:
        kind = trainer_class(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    named = {agent: f"of_{agent}" for agent in rules.agents}
    if name.startswith("sb3") or env == "dfaas_v0":
        named = dict.fromkeys(rules.agents, "shared")
    trainer = kind(
        rules,
        kind.Settings(**settings),
        seed=0,
        policies=named,
        policies_to_train=sorted(set(named.values())),
        steps=64,
    )
    found = dict(trainer.policies)
    trainer.close()
    return found


def observed(env: str = "dfaas_v0") -> Any:
    return Batch(make_rules(env), 5, seed=0).reset()


@pytest.mark.parametrize("name", TRAINERS)
def test_the_distribution_is_what_act_draws_from(name: str) -> None:
    for agent, policy in policies(name).items():
        shown(repr(policy), agent, str(make_rules("dfaas_v0").action_space(agent)))
        obs = observed()[agent]
        found = policy.distribution(obs)
        decision = policy.act(obs, deterministic=True)
        assert found.probs.shape == obs[MASK].shape
        assert (found.probs[torch.as_tensor(obs[MASK]) == 0] == 0).all()
        np.testing.assert_allclose(
            found.probs.detach().numpy(), decision.extra["probabilities"], atol=1e-6
        )
        assert found.mode.tolist() == decision.action.tolist()
        picked = torch.as_tensor(decision.action)
        log_prob = found.log_prob(picked)
        expected = found.probs.gather(1, picked[:, None])[:, 0].log()
        torch.testing.assert_close(log_prob, expected)

        one = policy.distribution(take_tree(obs, 0))
        assert one.probs.shape == obs[MASK][0].shape
        torch.testing.assert_close(one.probs, found.probs[0])
        torch.testing.assert_close(one.entropy(), found.entropy()[0])
        assert int(one.mode) == int(policy.predict(take_tree(obs, 0), deterministic=True)[0])

        if name == "sb3_dqn":  # what is greedy does not change with its values a little
            assert not log_prob.requires_grad
            continue
        (-log_prob.sum()).backward()
        assert any(
            each.grad is not None and each.grad.abs().sum() > 0
            for each in policy.network.parameters()
        )


def test_one_network_is_shared_by_agents_of_one_policy() -> None:
    found = policies("mappo")
    assert len({id(policy.network) for policy in found.values()}) == 1
    assert isinstance(found["node_0"].network, torch.nn.Module)
    with torch.no_grad():
        assert not found["node_0"].distribution(observed()["node_0"]).probs.requires_grad


@pytest.mark.parametrize("name", TRAINERS)
def test_policies_are_copied_and_pickled(name: str) -> None:
    for agent, policy in policies(name).items():
        obs = observed()[agent]
        expected = policy.act(obs, None, generator(0, "policy")).action
        for other in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
            assert other.act(obs, None, generator(0, "policy")).action.tolist() == expected.tolist()
            assert other.network is not policy.network


def test_predict_carries_the_memory_and_begins_anew() -> None:
    policy = policies("mappo", memory=8)["node_0"]
    obs = observed()["node_0"]
    first, state = policy.predict(obs, deterministic=True)
    assert state.shape == (5, 8)
    _, later = policy.predict(obs, state, np.zeros(5, dtype=bool), deterministic=True)
    _, begun = policy.predict(obs, later, np.array([True] + [False] * 4), deterministic=True)
    assert (later != state).any(axis=1).all()
    np.testing.assert_allclose(begun[0], state[0], atol=1e-6)
    assert (begun[1:] != state[1:]).any(axis=1).all()
    one, lonely = policy.predict(take_tree(obs, 0), deterministic=True)
    assert one == first[0]
    np.testing.assert_allclose(lonely, state[:1], atol=1e-6)


@pytest.mark.parametrize("name", ["mappo", "sb3_ppo"])
def test_stable_baselines3_evaluates_our_policies(name: str) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from stable_baselines3.common.evaluation import evaluate_policy

    from corral.adapters import make_vec_env

    policy = policies(name)["node_0"]
    for env in (make_vec_env("dfaas_v0", 2, 0), SeatEnv("dfaas_v0", max_cycles=288)):
        mean, _ = evaluate_policy(policy, env, n_eval_episodes=2, warn=False)
        assert np.isfinite(mean)
        assert mean != 0


def test_an_observation_of_several_entries_is_put_together_again() -> None:
    """SeatEnv makes one level of Dict of what tiles_v0 shows."""
    env = SeatEnv("tiles_v0")
    policy = policies("mappo", "tiles_v0")[env.seat]
    obs, over = env.reset(seed=0)[0], False
    assert "observation" not in obs
    while not over:
        action, _ = policy.predict(obs, deterministic=True)
        assert env.action_masks()[action]
        obs, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated


@pytest.mark.parametrize("algorithm", ["PPO", "MaskablePPO", "RecurrentPPO"])
def test_models_of_stable_baselines3_play_wherever_a_policy_does(algorithm: str) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    import sb3_contrib
    import stable_baselines3

    from corral.adapters import MaskedPolicy, make_vec_env
    from corral.trainers.evaluation.scores import evaluate_team

    vec_env = make_vec_env("dfaas_v0", 2, 0, max_cycles=20)
    policy = {
        "PPO": MaskedPolicy,
        "MaskablePPO": "MultiInputPolicy",
        "RecurrentPPO": "MultiInputLstmPolicy",
    }[algorithm]
    kind = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    model = kind(policy, vec_env, n_steps=16, batch_size=32, seed=0, device="cpu")
    rules = make_rules("dfaas_v0", max_cycles=20)
    if algorithm == "RecurrentPPO":  # without masks
        with pytest.warns(UserWarning, match="illegal"):
            score = evaluate_team(rules, model, episodes=2)
        assert score.illegal_actions > 0
    else:
        assert evaluate_team(rules, model, episodes=2).illegal_actions == 0
    env = SeatEnv("dfaas_v0", opponents=model, deterministic=True, max_cycles=20)
    env.reset(seed=0)
    if algorithm != "RecurrentPPO":
        assert np.isfinite(env.step(int(env.action_masks().argmax()))[1])


def test_a_mixed_action_space_has_a_distribution_of_one_row() -> None:
    from corral.adapters.masked_distribution import Gaussian, MaskedCategorical, MultiCategorical

    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    legal = torch.tensor([[True, True], [True, False]])
    each = MaskedCategorical(logits, legal)
    many = MultiCategorical([each, each])
    assert many[1].mode.tolist() == [0, 0]
    torch.testing.assert_close(many[0].entropy(), many.entropy()[0])
    normal = Gaussian(torch.zeros(3, 2), torch.zeros(2))
    torch.testing.assert_close(normal[1].entropy(), normal.entropy()[1])
    torch.testing.assert_close(
        normal[1].log_prob(torch.ones(2)), normal.log_prob(torch.ones(3, 2))[1]
    )


def test_functions_are_watched_and_replayed() -> None:
    import corral
    from corral.loads.replay import replay
    from support.seat_games import first_legal

    shown: list[str] = []
    seen = corral.watch("tictactoe_v0", policies=first_legal, text=shown.append)
    assert seen.over
    assert len(shown) == seen.frames
    scores = replay("edge3", {"mine": first_legal}, rows=(0, 40), optimum_windows=0).scores
    assert scores[0].policy == "mine"


# --- Environments without masks ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainer", "observation", "action"),
    [
        *(("mappo", observation, "one") for observation in OBSERVATIONS),
        *(("mappo", "box", "several"), ("mappo", "observation", "numbers")),
        *(("mappo", "box", "from 1"), ("sb3_ppo", "observation", "from 1")),
        *(("sb3_ppo", "box", "one"), ("sb3_ppo", "dict", "one"), ("sb3_dqn", "number", "one")),
    ],
)
def test_observations_of_an_environment_without_masks_are_taken_as_they_are(
    trainer: str, observation: str, action: str
) -> None:
    env, first = NoMasks(observation, action), int(action == "from 1")
    rules = zoo_rules(functools.partial(NoMasks, observation, action))
    kind = trainer_class(trainer)
    named = dict.fromkeys(rules.agents, "shared")
    trained = kind(
        rules, kind.Settings(), seed=0, policies=named, policies_to_train=["shared"], steps=64
    )
    observations, _ = env.reset(seed=3)
    batch, actions = rules.make_batch(2, seed=3).reset(), {}
    for i, (agent, policy) in enumerate(trained.policies.items()):
        plain = observations[agent]
        complete = rules.encode(i, plain, {})
        expected = policy.act(complete, deterministic=True).action
        actions[agent] = policy.act(plain, deterministic=True).action
        for acted in (actions[agent], policy.predict(plain, deterministic=True)[0]):
            assert np.array_equal(acted, expected + first)
        mode = policy.distribution(complete).mode
        assert torch.equal(policy.distribution(plain).mode, mode)
        several = policy.act(batch[agent], deterministic=True).action
        plain_batch = take_tree(flat_tree(batch[agent]["observation"]), slice(None))
        assert np.array_equal(policy.act(plain_batch, deterministic=True).action, several + first)
    env.step(actions)  # asserts that the actions are in the space
    trained.close()


def test_a_mask_is_required_if_the_environment_has_masks() -> None:
    obs = take_tree(observed(), 0)
    for agent, policy in policies("mappo").items():
        with refused(TypeError, agent, MASK):
            policy.act(obs[agent]["observation"], deterministic=True)
