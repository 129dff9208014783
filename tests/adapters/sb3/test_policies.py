"""MaskedPolicy and MaskablePolicy: legal in play and in training, through Stable-Baselines3."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.errors import MaskError, NonFiniteError, UnsupportedSpaceError
from support.columns import WAYS, columns, dfaas
from support.learners import LEARNERS, learner, policy_of
from support.mask_rules import BEST_OF_FIFTEEN, FIFTEEN, FifteenRules, PictureRules
from support.messages import refused

torch = pytest.importorskip("torch", reason="needs the extra sb3")
pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
MaskablePPO = pytest.importorskip("sb3_contrib", reason="needs the extra sb3").MaskablePPO
pytest.importorskip("supersuit", reason="needs the extra supersuit")

from corral.adapters import FeaturesWithoutMask, MaskablePolicy, MaskedPolicy  # noqa: E402
from corral.adapters.sb3.policies import MaskedDistribution  # noqa: E402

PPOS = ("PPO", "MaskablePPO")


def with_logits(model: Any, logits: list[float]) -> Any:
    """``model``, whose logits are these whatever it sees."""
    with torch.no_grad():
        model.policy.action_net.weight.zero_()
        model.policy.action_net.bias[:] = torch.tensor(logits)
    return model


def of_masks(masks: np.ndarray) -> dict[str, np.ndarray]:
    """Observations of FifteenRules with the given masks [C, 4]."""
    return {"observation": np.ones((len(masks), 1), np.float32), "action_mask": masks}


# --- Legal everywhere ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LEARNERS)
def test_only_legal_actions_are_played(name: str, way: str) -> None:
    """``illegal="raise"``: the environment itself would end the test. No masks are passed."""
    vec_env = columns(way, dfaas(), 4)
    model = learner(name, vec_env).learn(400)
    assert len(model.ep_info_buffer) >= 10
    narrow = 0
    for deterministic in (True, False):
        seen = vec_env.reset()
        for _ in range(20):
            actions, _ = model.predict(seen, deterministic=deterministic)
            masks = vec_env.action_masks()
            assert masks[np.arange(len(actions)), actions].all()
            narrow += int((~masks).sum())
            seen, *_ = vec_env.step(actions)
    assert narrow > 1000  # there was something to get wrong


@pytest.mark.parametrize("name", LEARNERS)
def test_a_single_observation(name: str) -> None:
    model = learner(name, columns("batch", FifteenRules(), 2))
    for mask in FIFTEEN:
        single = {"observation": np.ones(1, np.float32), "action_mask": mask}
        for deterministic in (True, False):
            action, _ = model.predict(single, deterministic=deterministic)
            assert action.shape == ()
            assert mask[action] == 1
    with_logits(model, [0.0, 1.0, 2.0, 3.0])
    batch, _ = model.predict(of_masks(FIFTEEN), deterministic=True)
    assert batch.tolist() == [int(np.flatnonzero(mask)[-1]) for mask in FIFTEEN]


def test_masks_given_come_before_those_of_the_observation() -> None:
    model = with_logits(learner("MaskablePPO", columns("batch", FifteenRules(), 2)), [0, 1, 2, 3.0])
    seen = of_masks(np.array([[1, 1, 1, 1], [0, 1, 0, 1]], np.int8))
    given = np.array([[True, False, True, False], [True, False, False, False]])
    assert model.predict(seen, deterministic=True)[0].tolist() == [3, 3]
    assert model.predict(seen, action_masks=given, deterministic=True)[0].tolist() == [2, 0]
    with refused(MaskError, "(1, 4)", "(2, 4)"):
        model.predict(seen, action_masks=given[:1])


def test_training_without_masks_given_is_legal_too() -> None:
    model = learner("MaskablePPO", columns("batch", FifteenRules(), 4))
    assert model.learn(200, use_masking=False).num_timesteps >= 200


def test_a_legal_logit_far_below_the_illegal_ones() -> None:
    """sb3_contrib masks with -1e8 and plays an illegal action; so would training on it."""
    vec_env = columns("batch", FifteenRules(), 2)
    seen = of_masks(np.tile(np.array([0, 1, 0, 1], np.int8), (50, 1)))
    masks = seen["action_mask"].astype(bool)
    stock = with_logits(learner("MaskablePPO", vec_env, "MultiInputPolicy"), [0, -2e8, 0, -2e8])
    for deterministic in (True, False):
        actions, _ = stock.predict(seen, action_masks=masks, deterministic=deterministic)
        assert set(actions.tolist()) <= {0, 2}  # all illegal
    for name in PPOS:
        ours = with_logits(learner(name, vec_env), [0, -2e8, 0, -2e8])
        assert set(ours.predict(seen)[0].tolist()) == {1, 3}
        assert set(ours.predict(seen, deterministic=True)[0].tolist()) == {1}


@pytest.mark.parametrize("name", LEARNERS)
def test_what_cannot_be_played_stops(name: str) -> None:
    vec_env = columns("batch", FifteenRules(), 2)
    model = learner(name, vec_env)
    masks = FIFTEEN.copy()
    masks[6] = 0
    with refused(MaskError, "row 6 (1 of 15)", "action_mask"):
        model.predict(of_masks(masks))
    with torch.no_grad():
        model.policy.mlp_extractor.policy_net[0].weight[0, 0] = math.nan
    with pytest.raises(NonFiniteError, match="network"):
        model.predict(of_masks(FIFTEEN))
    with pytest.raises(NonFiniteError):
        model.learn(200)


# --- Stable-Baselines3's own ways ----------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_the_mask_is_no_feature(name: str) -> None:
    """Values and the logits under the mask do not change with it; another observation changes."""
    vec_env = columns("batch", dfaas(), 2)
    policy = learner(name, vec_env).policy
    seen = vec_env.reset()
    free = {**seen, "action_mask": np.ones_like(seen["action_mask"])}
    other = {**seen, "observation": seen["observation"] + 1}
    assert not np.array_equal(free["action_mask"], seen["action_mask"])
    tensors = [policy.obs_to_tensor(each)[0] for each in (seen, free, other)]
    values = [policy.predict_values(each).tolist() for each in tensors]
    logits = [policy.get_distribution(each)._logits.tolist() for each in tensors]
    assert values[0] == values[1] != values[2]
    assert logits[0] == logits[1] != logits[2]


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    "policy_kwargs",
    [
        {"net_arch": {"pi": [4], "vf": [6, 5]}, "activation_fn": torch.nn.ReLU},
        {"share_features_extractor": False, "ortho_init": False},
        {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {"momentum": 0.5}},
        {"net_arch": [], "features_extractor_class": FeaturesWithoutMask},
    ],
)
def test_the_usual_policy_kwargs(name: str, policy_kwargs: dict[str, Any]) -> None:
    vec_env = columns("batch", FifteenRules(), 4)
    model = learner(name, vec_env, **policy_kwargs).learn(64)
    policy = model.policy
    for key, value in policy_kwargs.items():
        assert getattr(policy, key) == value
    actions, _ = model.predict(of_masks(FIFTEEN))
    assert FIFTEEN[np.arange(15), actions].all()
    # Playing and judging agree with separate networks too.
    seen = policy.obs_to_tensor(of_masks(FIFTEEN))[0]
    played, values, log_prob = policy(seen)
    again = policy.evaluate_actions(seen, played)
    for one, two in zip((values, log_prob), again[:2], strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(policy.predict_values(seen), values)
    torch.testing.assert_close(policy.get_distribution(seen).log_prob(played), log_prob)


@pytest.mark.parametrize("name", LEARNERS)
def test_actor_and_critic_each_read_their_own_features(name: str) -> None:
    """Two networks for pictures, of other weights; SB3's ``predict_values`` knows the critic's."""
    vec_env = columns("batch", PictureRules(channels_last=False), 2)
    policy = learner(name, vec_env, share_features_extractor=False).policy
    with torch.no_grad():
        policy.action_net.weight *= 100  # begins with almost equal probabilities
    seen = policy.obs_to_tensor(vec_env.reset())[0]
    played, values, log_prob = policy(seen)
    again, log_again, entropy = policy.evaluate_actions(seen, played)
    chosen = policy.get_distribution(seen)
    for one, two in (
        (values, policy.predict_values(seen)),
        (again, values),
        (log_prob, log_again),
        (log_prob, chosen.log_prob(played)),
        (entropy, chosen.entropy()),
    ):
        torch.testing.assert_close(one, two)
    assert values.std() > 0
    assert entropy.std() > 0


@pytest.mark.parametrize("name", LEARNERS)
def test_saved_and_loaded_it_plays_the_same(name: str, tmp_path: Path) -> None:
    vec_env = columns("batch", dfaas(), 2)
    model = learner(name, vec_env).learn(100)
    seen = vec_env.reset()

    def probabilities(policy: Any) -> list[list[float]]:
        with torch.no_grad():
            chosen = policy.get_distribution(policy.obs_to_tensor(seen)[0])
        assert isinstance(chosen, MaskedDistribution)
        rows: list[list[float]] = chosen.distribution.probs.tolist()
        return rows

    trained = probabilities(model.policy)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=vec_env, device="cpu")
    assert type(loaded.policy) is type(model.policy)
    assert probabilities(loaded.policy) == trained
    loaded.learn(50)
    assert probabilities(loaded.policy) != trained
    loaded.set_parameters(model.get_parameters())
    assert probabilities(loaded.policy) == trained
    model.policy.save(tmp_path / "policy")
    assert probabilities(type(model.policy).load(tmp_path / "policy", device="cpu")) == trained


@pytest.mark.parametrize("name", LEARNERS)
def test_the_same_seed_learns_the_same(name: str) -> None:
    runs = [learner(name, columns(way, dfaas(), 2)).learn(100) for way in ("batch", "supersuit")]
    one, two = (run.policy.state_dict() for run in runs)
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("name", LEARNERS)
def test_spaces_without_a_mask_are_refused(name: str) -> None:
    policy = policy_of(name)
    mask = spaces.Box(0, 1, (3,), np.int8)
    seen = spaces.Box(0, 1, (2,), np.float32)
    fine = spaces.Dict({"observation": seen, "action_mask": mask})
    stacked = spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (6,), np.int8)})
    bare = spaces.Dict({"observation": seen})
    three = spaces.Discrete(3)
    assert policy(fine, three, lambda _: 1e-3).action_space == three
    for given, action, values in (
        (
            seen,
            three,
            ("Box(0.0, 1.0, (2,), float32)", "action_mask", "corral.adapters.make_vec_env"),
        ),
        (bare, three, ("Dict", "action_mask", "corral.adapters.make_vec_env")),
        (stacked, three, ("action_mask", "(6,)", "3 actions")),
        (fine, spaces.MultiDiscrete([3]), ("MultiDiscrete([3])", "Discrete")),
        (fine, spaces.Discrete(3, start=1), ("Discrete(3, start=1)", 0)),
    ):
        with refused(UnsupportedSpaceError, *values):
            policy(given, action, lambda _: 1e-3)


# --- Training ------------------------------------------------------------------------------------


def rollout(model: Any) -> Any:
    """One rollout of ``model`` in its buffer, by its own means."""
    _, callback = model._setup_learn(total_timesteps=1, callback=None)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
    return model.rollout_buffer


def worst_ratio(model: Any) -> float:
    """The largest distance from 1 of the ratios that the first minibatch would see."""
    given = next(iter(rollout(model).get()))  # all of it
    masks = given.observations["action_mask"].int().tolist()
    assert {tuple(mask) for mask in masks} == {tuple(mask) for mask in FIFTEEN.tolist()}
    extra = {"action_masks": given.action_masks} if isinstance(model, MaskablePPO) else {}
    with torch.no_grad():
        _, log_prob, _ = model.policy.evaluate_actions(
            given.observations, given.actions.long().flatten(), **extra
        )
    return float(((log_prob - given.old_log_prob).exp() - 1).abs().max())


class Forgetful(MaskedPolicy):
    """Ignores the mask in training: a planted bug."""

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        free = {**obs, "action_mask": torch.ones_like(obs["action_mask"])}
        return super().evaluate_actions(free, actions)


class ForgetfulMaskable(MaskablePolicy):
    """The same for MaskablePPO."""

    def evaluate_actions(self, obs: Any, actions: Any, action_masks: Any = None) -> Any:
        return super().evaluate_actions(obs, actions, torch.ones_like(action_masks))


@pytest.mark.parametrize(
    ("name", "policy", "right"),
    [
        ("PPO", None, True),
        ("PPO", Forgetful, False),
        ("MaskablePPO", None, True),
        ("MaskablePPO", ForgetfulMaskable, False),
    ],
)
def test_before_the_first_update_every_ratio_is_one(name: str, policy: Any, right: bool) -> None:
    """All 15 masks of 4 actions take part; a mask ignored in training shows."""
    model = learner(name, columns("batch", FifteenRules(), 8), policy)
    worst = worst_ratio(with_logits(model, [2.0, -1.0, 0.5, 1.0]))
    assert worst <= 1e-4 if right else worst > 0.1


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("PPO", "batch"),
        ("MaskablePPO", "supersuit"),
        pytest.param("PPO", "supersuit", marks=pytest.mark.slow),
        pytest.param("MaskablePPO", "batch", marks=pytest.mark.slow),
    ],
)
def test_learns_the_best_legal_action_of_every_mask(name: str, way: str) -> None:
    """P6: from the lowest legal action everywhere to the highest: mean return 34/15 a step."""
    vec_env = columns(way, FifteenRules(), 8)
    settings = {"n_steps": 32, "batch_size": 128, "n_epochs": 4, "learning_rate": 3e-3}
    # An action changes nothing but its own reward: gamma 0.
    model = learner(name, vec_env, settings={**settings, "gamma": 0.0})
    with_logits(model, [0.3, 0.2, 0.1, 0.0])

    def mean_return() -> float:
        seen, total = vec_env.reset(), 0.0
        for _ in range(15):
            actions, _ = model.predict(seen, deterministic=True)
            seen, rewards, _, _ = vec_env.step(actions)
            total += float(rewards.sum())
        return total / 15 / vec_env.num_envs

    assert mean_return() == pytest.approx(11 / 15)
    model.learn(7500)
    assert model.num_timesteps <= 10_000  # one agent: a column's step is an env step
    assert mean_return() == pytest.approx(BEST_OF_FIFTEEN / 15)


@pytest.mark.parametrize("name", PPOS)
def test_equal_advantages_move_nothing(name: str) -> None:
    """P17: through the algorithm's own ``train``; plain SGD, so that a gradient is a movement."""
    model = learner(
        name,
        columns("batch", FifteenRules(), 8),
        net_arch={"pi": [8], "vf": [8]},
        optimizer_class=torch.optim.SGD,
    )
    buffer = rollout(model)
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    buffer.advantages[...] = 3.0
    model.train()
    after = model.policy.state_dict()
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert moved
    assert all("value_net" in key for key in moved), moved


@pytest.mark.parametrize("name", PPOS)
def test_a_batch_of_one_gives_no_nan(name: str) -> None:
    model = learner(name, columns("batch", FifteenRules(), 2))
    model.batch_size = 1  # PPO's constructor refuses it; the rest of a rollout may have one row
    model.normalize_advantage = name == "PPO"
    rollout(model)
    model.train()
    for key, value in model.policy.state_dict().items():
        assert torch.isfinite(value).all(), key


@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom:UserWarning")
def test_the_nan_of_maskable_ppo_stops_the_training() -> None:
    """sb3_contrib divides the advantage of a batch of one by the deviation of one number, NaN."""
    model = learner("MaskablePPO", columns("batch", FifteenRules(), 2))
    model.batch_size = 1
    rollout(model)
    with refused(NonFiniteError, "row 0 (1 of 1)", "nan", "learning rate"):
        model.train()


# --- Policies in the wrong place -----------------------------------------------------------------


def test_a_policy_of_another_algorithm_is_named() -> None:
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import DQN, PPO

    from corral.adapters import MaskedQPolicy, make_vec_env

    vec_env = make_vec_env("rps_v0", 2, seed=0)
    for algorithm, policy, values in (
        (PPO, MaskablePolicy, ("MaskablePolicy", "PPO and A2C", "MaskedPolicy")),
        (PPO, MaskedQPolicy, ("MaskedQPolicy", "PPO and A2C", "MaskedPolicy")),
        (DQN, MaskedPolicy, ("MaskedPolicy", "MaskedDQN", "MaskedQPolicy")),
        (DQN, MaskablePolicy, ("MaskablePolicy", "MaskedDQN", "MaskedQPolicy")),
    ):
        with refused(TypeError, *values):
            algorithm(policy, vec_env)
    MaskablePPO(MaskablePolicy, vec_env)


def test_a_model_of_columns_names_what_a_seat_lacks() -> None:
    from stable_baselines3 import PPO

    from corral.adapters import SeatEnv, make_vec_env

    model = PPO(MaskedPolicy, make_vec_env("rps_v0", 2, seed=0))
    seen, _ = SeatEnv("rps_v0").reset(seed=0)
    with refused(
        UnsupportedSpaceError,
        "'agent'",
        "['observation', 'action_mask']",
        "agent_id=True",
        "agent_id=False",
        "SeatEnv",
    ):
        model.predict(seen)
    alone = PPO(MaskedPolicy, make_vec_env("rps_v0", 2, seed=0, agent_id=False))
    assert alone.predict(seen)[0] in range(3)
