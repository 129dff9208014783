"""What losses and advantage functions are asked, and what healthy ones answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral import algorithms as alg
from corral.lab.doctor.credit import credit
from corral.lab.doctor.diagnose import diagnose
from corral.lab.doctor.evidence.learning import LossResponse, ask_loss, softmax_twice
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.updates import zero_advantages
from corral.trainers.on_policy.learner import Learner
from corral.trainers.on_policy.records import Minibatch, Outputs, Trajectories
from faults.fault import TINY

R, A = 24, 3


def minibatch_of(settings: Any) -> tuple[Minibatch, Outputs, torch.Tensor]:
    """A minibatch of a policy that knows little, and its logits."""
    from corral.adapters.masked_distribution import MaskedCategorical

    rng = torch.Generator().manual_seed(0)
    logits = (0.3 * torch.randn(R, A, generator=rng)).requires_grad_()
    mask = torch.ones(R, A, dtype=torch.bool)
    distribution = MaskedCategorical(logits, mask)
    action = torch.randint(0, A, (R,), generator=rng)
    log_prob = distribution.log_prob(action)
    value = torch.zeros(R, requires_grad=True) * 1.0
    minibatch = Minibatch(
        action=action,
        mask=mask,
        log_prob=log_prob.detach(),
        advantage=torch.randn(R, generator=rng),
        value_target=torch.randn(R, generator=rng),
        old_value=value.detach(),
        epoch=0,
        progress=0.0,
        kl_coef=0.0,
    )
    return minibatch, Outputs(distribution, log_prob, value), logits


def asked(loss: Any, **changes: Any) -> LossResponse:
    settings = alg.mappo.Settings(**changes)
    minibatch, outputs, logits = minibatch_of(settings)
    return ask_loss(loss, minibatch, outputs, settings, logits)


# --- Losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [alg.ppo_loss, alg.policy_gradient_loss])
def test_sound_losses_raise_what_paid_and_lead_values_to_their_targets(loss: Any) -> None:
    said = asked(loss, ent_coef=0.01)
    assert said.advantage == "own"
    assert said.old_log_prob == (loss is alg.ppo_loss)
    assert said.tight is False
    assert said.weight == pytest.approx(1.0, rel=1e-3)
    assert said.entropy_weight == pytest.approx(0.01, rel=1e-2)
    assert (said.value_flat, said.value_away, said.value_short) == (0.0, 0.0, 0.0)
    assert (said.value_linear, said.value_astray) == (0.0, 0.0)
    assert said.off_one == 0.0
    assert said.target_elsewhere is False


@pytest.mark.parametrize(
    ("wrong", "advantage"),
    [
        (lambda a: -a, "opposite"),
        (lambda a: a * 0, "nothing"),
        (lambda a: a.flip(0), "elsewhere"),
        (lambda a: a.mean().expand_as(a), "elsewhere"),
        (lambda a: (a - a.mean()) / (a.std() + 1e-8), "own"),
        (lambda a: a.clamp(-1.5, 1.5), "own"),
    ],
)
def test_an_advantage_moves_its_own_action(wrong: Any, advantage: str) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        changed = replace(minibatch, advantage=wrong(minibatch.advantage))
        return alg.ppo_loss(changed, outputs, settings)

    assert asked(loss).advantage == advantage


def test_the_weight_of_the_entropy_is_measured_whatever_its_term_is_called() -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        terms = alg.ppo_loss(minibatch, outputs, settings).terms
        return alg.Losses({**terms, "surprise": 0.25 * outputs.entropy})

    assert asked(loss).entropy_weight == pytest.approx(-0.25, rel=1e-2)


def test_values_that_are_bounded_are_seen() -> None:
    assert (asked(alg.ppo_loss, clip_range_vf=1e-4).value_short or 0) > 0.9
    assert asked(alg.ppo_loss, clip_range_vf=1.0).value_short == 0
    assert (asked(alg.ppo_loss, huber_delta=1e-3).value_linear or 0) > 0.9


@pytest.mark.parametrize(("every", "share"), [(2, 0.5), (3, 1 / 3), (1, 0.0)])
def test_rows_that_a_loss_drops_are_neither_clipped_nor_flat(every: int, share: float) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        keep = torch.arange(R) % every > 0 if every > 1 else torch.ones(R, dtype=torch.bool)
        ratio = (outputs.log_prob - minibatch.log_prob).exp()
        error = (outputs.value - minibatch.value_target).square()
        policy = -(ratio * minibatch.advantage)[keep].mean()
        return alg.Losses({"policy_loss": policy, "value_loss": error[keep].mean()})

    said = asked(loss)
    assert said.dropped == pytest.approx(share)
    assert (said.value_flat, said.tight, said.off_one) == (0.0, False, 0.0)
    assert said.value_astray == 0.0


@pytest.mark.parametrize(
    ("of_logits", "twice"),
    [
        (lambda outputs, mask: outputs, False),
        (lambda outputs, mask: outputs / 2, False),  # a temperature
        (lambda outputs, mask: outputs.softmax(dim=1), True),
        (lambda outputs, mask: outputs.masked_fill(~mask, -torch.inf).softmax(dim=1), True),
    ],
)
@pytest.mark.parametrize("in_the_network", [False, True])
def test_a_softmax_of_probabilities_is_seen(
    of_logits: Any, twice: bool, in_the_network: bool
) -> None:
    from corral.adapters.masked_distribution import MaskedCategorical

    outputs = torch.randn(R, A, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(R, A, dtype=torch.bool)
    mask[::2, 0] = False
    logits = of_logits(outputs, mask)
    heard = logits if in_the_network else outputs
    assert softmax_twice(heard, MaskedCategorical(logits, mask), mask) is twice


@pytest.mark.parametrize("sign", [torch.abs, torch.square, torch.neg, lambda a: a])
@pytest.mark.parametrize("normal", [False, True])
def test_a_loss_that_ignores_signs_is_seen(sign: Any, normal: bool) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        advantage = sign(minibatch.advantage)
        if normal:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return alg.ppo_loss(replace(minibatch, advantage=advantage), outputs, settings)

    # Normalized sizes have a sign again: it is not that of the advantage.
    lost = sign in (torch.abs, torch.square)
    if not (lost and normal):
        assert asked(loss).unsigned is lost


@pytest.mark.parametrize("error", [RuntimeError, KeyError, AssertionError])
def test_a_loss_that_takes_no_other_numbers_tells_nothing(error: type[Exception]) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        raise error("once only")

    assert asked(loss) == LossResponse()


# --- Advantages ----------------------------------------------------------------------------------


def rollout(seed: int = 0, spread: float = 1.0) -> tuple[Trajectories, Any, Any]:
    """24 steps of 4 environments of 2 agents; ends by the rules, and by a time limit."""
    rng = np.random.default_rng(seed)
    shape = 24, 8
    terminated, truncated = np.zeros(shape, bool), np.zeros(shape, bool)
    terminated[5, :4] = terminated[17, 4:] = True
    truncated[11] = True
    final = np.where(truncated, rng.normal(size=shape), 0).astype(np.float32)
    given = Trajectories(
        reward=(spread * rng.normal(size=shape)).astype(np.float32),
        value=(spread * rng.normal(size=shape)).astype(np.float32),
        acted=np.ones(shape, bool),
        ended=terminated | truncated,
        final_obs_value=final,
        bootstrap_value=rng.normal(size=8).astype(np.float32),
        valid=np.ones(shape, bool),
    )
    return given, terminated, truncated


SOUND = {
    "gae": alg.gae,
    "normalized": alg.normalize(alg.gae),
    "one step": lambda t, s: alg.gae(t, replace(s, gae_lambda=0.0)),
    "reward to go": alg.normalize(alg.reward_to_go),
    "no baseline": alg.normalize(alg.without_baseline(alg.reward_to_go)),
    "whole episode": alg.normalize(alg.episode_return),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("spread", [1.0, 1e-3, 100.0])
def test_sound_advantages_credit_who_earned_it(name: str, spread: float) -> None:
    told = credit(SOUND[name], *_first(rollout(spread=spread)), agents=2)
    assert told.own
    assert told.opposite is False
    assert told.limit
    assert (told.past_end, told.from_reset, told.end_as_limit) == (False, False, False)
    assert told.value_in_target is False


def test_targets_from_normalized_advantages_follow_their_own_values() -> None:
    """The value does not cancel out, at the end of an episode and elsewhere."""

    def scaled(trajectories: Any, settings: Any) -> Any:
        advantage = alg.normalize(alg.gae)(trajectories, settings).advantage
        return alg.Advantages(advantage, advantage + trajectories.value)

    told = credit(scaled, *_first(rollout()), agents=2)
    assert told.value_in_target
    assert not told.end_as_limit
    assert (told.foreign, told.backwards, told.myopic) == (False, False, False)
    assert (told.target_flat or 0.0) < 0.5


def test_a_reward_that_never_changes_tells_nothing_of_sizes() -> None:
    given, terminated, truncated = rollout()
    constant = np.full_like(given.reward, -0.1)
    constant[3, 2] = np.nextafter(constant[3, 2], np.float32(0))  # as sums round
    told = credit(alg.gae, *_first((replace(given, reward=constant), terminated, truncated)))
    assert (told.gain, told.target_flat) == (None, None)


def _first(given: tuple[Trajectories, Any, Any]) -> tuple[Any, ...]:
    return given[0], alg.mappo.Settings(), given[1], given[2]


def test_advantages_of_two_values_are_told_apart() -> None:
    given = rollout()[0]
    two = np.where(np.arange(8) % 2, 1.0, -1.0) * np.ones((24, 1))
    flat = replace(given, reward=two.astype(np.float32), value=np.zeros((24, 8), np.float32))
    ended = np.ones((24, 8), bool)
    bandit = replace(flat, ended=ended, final_obs_value=np.zeros((24, 8), np.float32))
    told = credit(
        alg.normalize(alg.gae), bandit, alg.mappo.Settings(), ended, np.zeros_like(ended), 2
    )
    assert told.own
    assert told.foreign is False


def test_rounding_of_rewards_that_are_all_the_same_is_no_typical_difference() -> None:
    given, *ends = rollout()
    same = replace(given, reward=np.float32(-0.1) * np.ones((24, 8), np.float32))
    same.reward[::2] = np.nextafter(np.float32(-0.1), np.float32(0))
    told = credit(alg.gae, same, alg.mappo.Settings(), *ends)
    assert (told.gain, told.target_flat) == (None, None)


def test_a_reward_that_is_clipped_is_still_credited() -> None:
    def advantages(trajectories: Any, settings: Any) -> Any:
        return alg.gae(replace(trajectories, reward=trajectories.reward.clip(-1, 1)), settings)

    told = credit(advantages, *_first(rollout(spread=0.3)), agents=2)
    assert told.opposite is False
    assert told.foreign is False


def test_advantages_are_0_where_values_are_right() -> None:
    right = np.array([1.0, -1.0, 0.5, 0.0], np.float32)
    value, none = np.stack([0.99 * right, right]), np.zeros((2, 4), np.float32)
    ended = np.array([[False] * 4, [True] * 4])
    every = np.ones((2, 4), bool)
    given = Trajectories(np.stack([none[0], right]), value, every, ended, none, none[0], every)
    evidence = Evidence(None, {}, [])
    for reward, named in ((given.reward, False), (given.reward[:, ::-1], True)):
        found = PolicyEvidence("shared", ("agent_0",))
        found.trajectories.append(replace(given, reward=reward))
        found.advantages.append(alg.Advantages(none, value))
        assert (zero_advantages(found, evidence) is not None) is named


# --- Healthy runs --------------------------------------------------------------------------------

HEALTHY: dict[str, dict[str, Any]] = {
    "with memory, separate": {
        **{"memory": 8, "policies": "separate"},
        "env_kwargs": {"max_cycles": 48},  # diagnosing plays whole episodes
    },
    "at its end": {"steps": 8 * 256},
    "with a bonus for entropy": {"ent_coef": 0.05},
    "with values that may move by their spread": {"clip_range_vf": 1.0},
    "without scaled values": {"normalize_values": False, "huber_delta": None},
    "that ends epochs early": {"target_kl": 0.01},
    "with a clip range that ends at 0": {"clip_range": "linear:0.2", "steps": 8 * 256},
}


def slow_but(quick: str, *others: str) -> list[Any]:
    return [quick, *(pytest.param(each, marks=pytest.mark.slow) for each in others)]


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_no_alarm(name: str, tmp_path: Path) -> None:
    given = {"steps": 3 * 256, **TINY, **HEALTHY[name]}
    run = corral.train("dfaas_v0", out=tmp_path / "run", progress=False, **given)
    diagnosis = diagnose(run, audited=False, cloned=False, checked=False)
    assert not diagnosis.faulty, diagnosis.findings


@pytest.mark.parametrize("trainer", slow_but("pg", "a2c", "pg_episode", "ppo_kl", "ippo"))
def test_no_algorithm_raises_an_alarm(trainer: str, tmp_path: Path) -> None:
    given = {"steps": 3 * 256, **TINY, "trainer": trainer}
    run = corral.train("tictactoe_v0", out=tmp_path / "run", progress=False, **given)
    diagnosis = diagnose(run, audited=False, cloned=False, checked=False)
    assert not diagnosis.faulty, diagnosis.findings


@pytest.mark.parametrize("env", slow_but("probe_p05_v0", "probe_p16_v0", "probe_p17_v0"))
def test_a_bandit_that_is_solved_raises_no_alarm(env: str, tmp_path: Path) -> None:
    given = {**TINY, "steps": 12 * 256, "ent_coef": 0.01, "gamma": 0.0}
    run = corral.train(env, out=tmp_path / "run", progress=False, **given)
    diagnosis = diagnose(run, audited=False, cloned=False, checked=False)
    assert not diagnosis.faulty, diagnosis.findings


def test_a_memory_that_nothing_is_kept_in_raises_no_alarm(tmp_path: Path) -> None:
    given = {**TINY, "steps": 2 * 256, "memory": 4}  # one decision an episode: no state before it
    run = corral.train("probe_p12_v0", out=tmp_path / "run", progress=False, **given)
    diagnosis = diagnose(run, audited=False, cloned=False, checked=False)
    assert not diagnosis.faulty, diagnosis.findings


def test_asking_leaves_the_learner_as_it_was(tmp_path: Path) -> None:
    given = {"steps": 256, **TINY}
    run = corral.train("dfaas_v0", out=tmp_path / "run", progress=False, **given)
    plain, watched = run.begun(), run.begun()
    from corral.lab.doctor.evidence.gathering import gather

    gather(watched, run.begun, updates=1)
    next(iter(plain.learn()))
    for name, learner in plain.learners.items():
        assert isinstance(learner, Learner)
        other = watched.learners[name]
        assert "distribution" not in vars(other)
        for a, b in zip(learner.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)
