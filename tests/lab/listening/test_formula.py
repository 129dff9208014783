"""The formula of recorded advantages and value targets: sound ones are silent, faults are named."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from corral.lab.listening.formula import RULES, advantage_formula, target_formula
from corral.lab.listening.heard import Heard, Rollout

GAMMA, LAMBDA = 0.99, 0.95


@dataclass
class Play:
    """Random play of B copies: episodes that terminate or reach a time limit."""

    r: Any  # [T, B]
    v: Any
    term: Any
    trunc: Any
    final: Any  # V(final obs) where truncated
    last: Any  # [B]


def played(steps: int = 128, copies: int = 8, seed: int = 0, sparse: bool = False) -> Play:
    rng = np.random.default_rng(seed)
    r = rng.normal(0.2, 1, (steps, copies))
    if sparse:
        r = (rng.random((steps, copies)) < 0.05).astype(float)
    term = rng.random((steps, copies)) < 0.03
    trunc = ~term & (rng.random((steps, copies)) < 0.03)
    v = (rng.normal(1, 0.5, (steps, copies))).astype(np.float32).astype(float)
    final = rng.normal(1, 0.5, (steps, copies))
    last = rng.normal(1, 0.5, copies)
    return Play(r, v, term, trunc, np.where(trunc, final, np.nan), last)


def estimated(
    play: Play,
    *,
    gamma: float = GAMMA,
    gae_lambda: float = LAMBDA,
    term: Any = None,
    trunc: Any = None,
    final: Any = None,
) -> Any:
    """Return generalized advantages, one number after the other."""
    term = play.term if term is None else term
    trunc = play.trunc if trunc is None else trunc
    final = play.final if final is None else final
    steps, copies = play.r.shape
    adv = np.zeros((steps, copies))
    for b in range(copies):
        later, after = 0.0, play.last[b]
        for t in reversed(range(steps)):
            if term[t, b]:
                after, later = 0.0, 0.0
            elif trunc[t, b]:
                after, later = final[t, b], 0.0
            later = play.r[t, b] + gamma * after - play.v[t, b] + gamma * gae_lambda * later
            after = play.v[t, b]
            adv[t, b] = later
    return adv


def heard(play: Play, advantages: Any, returns: Any = None, **fields: Any) -> Heard:
    known = {key: fields.pop(key) for key in ("gamma", "gae_lambda") if key in fields}
    rollout = Rollout(
        rewards=play.r.astype(np.float32),
        values=play.v.astype(np.float32),
        terminated=play.term,
        truncated=play.trunc,
        final_values=play.final,
        last_values=play.last,
        advantages=None if advantages is None else np.float32(advantages),
        returns=None if returns is None else np.float32(returns),
    )
    return Heard("policy", rollouts=[replace(rollout, **fields)], **known)


def normalized(values: Any) -> Any:
    return (values - values.mean()) / (values.std() + 1e-8)


def to_go(play: Play, gamma: float) -> Any:
    zero = replace(play, v=0 * play.v, last=0 * play.last, final=0 * play.final)
    return estimated(zero, gamma=gamma, gae_lambda=1.0)


def n_step(play: Play, n: int) -> Any:
    steps, copies = play.r.shape
    adv = np.zeros((steps, copies))
    for b in range(copies):
        for t in range(steps):
            total, weight, at = 0.0, 1.0, t
            while True:
                total += weight * play.r[at, b]
                weight *= GAMMA
                if play.term[at, b]:
                    break
                if play.trunc[at, b]:
                    total += weight * play.final[at, b]
                    break
                at += 1
                if at == steps or at == t + n:
                    total += weight * (play.last[b] if at == steps else play.v[at, b])
                    break
            adv[t, b] = total - play.v[t, b]
    return adv


def whole_returns(play: Play) -> Any:
    result = np.zeros_like(play.r)
    ended = play.term | play.trunc
    for b in range(play.r.shape[1]):
        at = np.cumsum(np.r_[0, ended[:-1, b]])
        result[:, b] = np.bincount(at, play.r[:, b])[at]
    return result


def nothing(play: Play) -> dict[str, Any]:
    return {}


PLAY = played()

SOUND: dict[str, Any] = {
    "gae": lambda p: estimated(p),
    "gae, normalized": lambda p: normalized(estimated(p)),
    "one step": lambda p: estimated(p, gae_lambda=0.0),
    "Monte Carlo minus values": lambda p: estimated(p, gae_lambda=1.0),
    "gamma 1, lambda 1, normalized": lambda p: normalized(estimated(p, gamma=1.0, gae_lambda=1.0)),
    "rewards to go": lambda p: to_go(p, 0.97),
    "rewards to go, normalized": lambda p: normalized(to_go(p, 1.0)),
    "whole returns": lambda p: normalized(whole_returns(p)),
    "whole returns minus values": lambda p: whole_returns(p) - p.v,
    "3 steps": lambda p: n_step(p, 3),
    "5 steps, normalized": lambda p: normalized(n_step(p, 5)),
    "normalized over each column": lambda p: (
        (estimated(p) - estimated(p).mean(0)) / estimated(p).std(0)
    ),
    "scaled rewards": lambda p: estimated(replace(p, r=0.1 * p.r)),
    "values in another scale": lambda p: estimated(
        replace(p, v=3 * p.v + 5, last=3 * p.last + 5, final=3 * p.final + 5)
    ),
    "team rewards": lambda p: estimated(
        replace(p, r=np.repeat(p.r.mean(1, keepdims=True), p.r.shape[1], 1))
    ),
    "clipped rewards": lambda p: estimated(replace(p, r=np.clip(p.r, -1, 1))),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", SOUND)
def test_sound(name: str, known: bool) -> None:
    settings = {"gamma": GAMMA, "gae_lambda": LAMBDA} if known and name.startswith("gae") else {}
    of = heard(PLAY, SOUND[name](PLAY), **settings)
    assert advantage_formula(of) is None


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize(
    "fields",
    [
        {"values": None},
        {"final_values": None, "last_values": None},
        {"truncated": None, "terminated": PLAY.term | PLAY.trunc},
        {"terminated": None, "truncated": None},
    ],
)
def test_sound_with_missing_fields(name: str, fields: dict[str, Any]) -> None:
    finding = advantage_formula(heard(PLAY, SOUND[name](PLAY), **fields))
    assert finding is None or finding.certainty == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["sparse", "constant rewards", "short", "one copy", "limits only"])
def test_sound_data_of_other_kinds(kind: str, seed: int) -> None:
    copies = 1 if kind == "one copy" else 8
    p = played(24 if kind == "short" else 128, copies, seed, sparse=kind == "sparse")
    if kind == "constant rewards":
        p = replace(p, r=np.ones_like(p.r))
    if kind == "limits only":
        p = replace(p, term=np.zeros_like(p.term))
    adv = estimated(p)
    of = heard(p, normalized(adv), adv + p.v)
    assert [rule(of) for rule in RULES] == [None, None]


@pytest.mark.parametrize("spread", [1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("kind", ["rewards", "values"])
def test_numbers_that_hardly_vary(kind: str, spread: float) -> None:
    """Such as a reward of -1 for each step, divided by a running standard deviation."""
    name = {"rewards": "r", "values": "v"}[kind]
    p = replace(PLAY, **{name: 1 + spread * getattr(PLAY, name)})
    p = replace(p, r=np.float64(np.float32(p.r)), v=np.float64(np.float32(p.v)))
    adv = estimated(p)
    of = heard(p, normalized(adv), adv + p.v)
    assert [rule(of) for rule in RULES] == [None, None]


def test_large_values_with_a_small_spread() -> None:
    p = replace(
        PLAY,
        v=np.float64(np.float32(-60 + 0.01 * PLAY.v)),
        final=np.where(PLAY.trunc, np.float32(-60.01), np.nan),
        last=-60 + 0.01 * PLAY.last,
    )
    p = replace(p, r=np.float64(np.float32(np.where(p.r > 1, -10.0, -1.0))))
    adv = estimated(p)
    of = heard(p, normalized(adv), adv + p.v)
    assert [rule(of) for rule in RULES] == [None, None]


def test_rewards_with_a_trend() -> None:
    """A running normalization changes slowly."""
    scale = np.float32(np.linspace(1, 1.001, len(PLAY.r)))[:, None] * np.ones((1, 8))
    p = replace(PLAY, r=np.float64(-scale), term=np.zeros_like(PLAY.term))
    adv = estimated(p)
    of = heard(p, adv, adv + p.v)
    assert [rule(of) for rule in RULES] == [None, None]


def _after(play: Play) -> Any:
    return np.concatenate([play.v[1:], play.last[None]])


def forward(play: Play) -> Any:
    adv, later = np.zeros_like(play.r), np.zeros(play.r.shape[1])
    after = _after(play)
    for t in range(len(adv)):
        ended = play.term[t] | play.trunc[t]
        later = play.r[t] + GAMMA * np.where(ended, 0, after[t]) - play.v[t] + 0.94 * later
        adv[t] = later
        later = np.where(ended, 0.0, later)
    return adv


def shift(values: Any, by: int) -> Any:
    return np.roll(values, by, axis=0)


def by_step(values: Any) -> Any:
    return (values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)


def mixed(values: Any) -> Any:
    return np.ascontiguousarray(values.T).reshape(values.shape)


NEVER = np.zeros_like(PLAY.term)

FAULTY: dict[str, tuple[str, Any]] = {
    "ends ignored": ("end-ignored", lambda p: estimated(p, term=NEVER, trunc=NEVER)),
    "limits ignored": ("end-ignored", lambda p: estimated(p, trunc=NEVER)),
    "terminations bootstrapped": (
        "end-taken-for-limit",
        lambda p: estimated(
            p, term=NEVER, trunc=p.term | p.trunc, final=np.where(p.trunc, p.final, _after(p))
        ),
    ),
    "limits as terminations": (
        "limit-taken-for-end",
        lambda p: estimated(p, term=p.term | p.trunc, trunc=NEVER),
    ),
    "values after a reset": ("bootstraps-from-reset", lambda p: estimated(p, final=_after(p))),
    "reward late": ("advantage-elsewhere", lambda p: estimated(replace(p, r=shift(p.r, 1)))),
    "reward early": ("advantage-elsewhere", lambda p: estimated(replace(p, r=shift(p.r, -1)))),
    "reward reversed": ("advantage-elsewhere", lambda p: estimated(replace(p, r=p.r[::-1]))),
    "advantages reversed": ("advantage-elsewhere", lambda p: estimated(p)[::-1]),
    "advantages of the next": ("advantage-elsewhere", lambda p: shift(estimated(p), -1)),
    "forward": ("advantage-elsewhere", forward),
    "rewards of another": (
        "reward-of-another",
        lambda p: estimated(replace(p, r=np.roll(p.r, 1, axis=1))),
    ),
    "advantages of another": ("advantages-mixed", lambda p: np.roll(estimated(p), 1, axis=1)),
    "reshaped": ("advantages-mixed", lambda p: mixed(estimated(p))),
    "reshaped rewards": ("advantages-mixed", lambda p: estimated(replace(p, r=mixed(p.r)))),
    "normalized in each step": ("advantages-mixed", lambda p: by_step(estimated(p))),
    "negative": ("advantage-sign", lambda p: -normalized(estimated(p))),
    "negative rewards": ("advantage-sign", lambda p: estimated(replace(p, r=-p.r))),
    "values added": (
        "advantage-sign",
        lambda p: estimated(replace(p, v=-p.v, last=-p.last, final=-p.final)),
    ),
    "sizes": ("advantage-unsigned", lambda p: np.abs(estimated(p))),
    "sizes, normalized before": ("advantage-unsigned", lambda p: np.abs(normalized(estimated(p)))),
    "squares": ("advantage-unsigned", lambda p: estimated(p) ** 2),
    "1 - gamma": ("myopic", lambda p: estimated(p, gamma=1 - GAMMA)),
    "gamma 0": ("myopic", lambda p: estimated(p, gamma=0.0)),
    "zero": ("zero-advantages", lambda p: 0 * p.r),
    "shuffled": (
        "advantage-shuffled",
        lambda p: np.random.default_rng(0).permutation(estimated(p).ravel()).reshape(p.r.shape),
    ),
    "values one step late": (
        "values-of-another-step",
        lambda p: estimated(replace(p, v=shift(p.v, 1))),
    ),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", FAULTY)
def test_faulty(name: str, sparse: bool) -> None:
    cause, make = FAULTY[name]
    play = played(sparse=sparse)
    finding = advantage_formula(heard(play, make(play), gamma=GAMMA, gae_lambda=LAMBDA))
    assert finding is not None
    assert finding.cause == cause
    assert finding.certainty == 3 or name in ("1 - gamma", "gamma 0")


EXACT = [
    name
    for name in FAULTY
    if name not in ("sizes", "sizes, normalized before", "squares", "shuffled")
]


@pytest.mark.parametrize("name", EXACT)
def test_faulty_with_unknown_gamma_and_values(name: str) -> None:
    cause, make = FAULTY[name]
    finding = advantage_formula(heard(PLAY, make(PLAY), last_values=None))
    assert finding is not None
    assert finding.cause == cause
    assert finding.certainty >= 2 or name in ("1 - gamma", "gamma 0")


@pytest.mark.parametrize("name", ["ends ignored", "values after a reset", "limits as terminations"])
def test_faulty_and_normalized(name: str) -> None:
    cause, make = FAULTY[name]
    finding = advantage_formula(heard(PLAY, normalized(make(PLAY))))
    assert finding is not None
    assert (finding.cause, finding.certainty) == (cause, 3)


def observed(play: Play, offset: int) -> Any:
    """Return observations that jump ``offset`` steps after the marks of ends."""
    rng = np.random.default_rng(1)
    obs, state = np.zeros((*play.r.shape, 2)), np.zeros((play.r.shape[1], 2))
    ended = play.term | play.trunc
    for t in range(len(obs)):
        if t >= offset:
            state = np.where(ended[t - offset][:, None], 0.0, state)
        obs[t] = state
        state = state + 0.1 + 0.1 * rng.random(state.shape)
    return obs


def apart(play: Play) -> Play:
    """Keep ends at least 20 steps apart."""
    keep = np.zeros_like(play.term)
    keep[19::20] = True
    return replace(
        play,
        term=keep & (np.arange(8) % 2 == 0),
        trunc=keep & (np.arange(8) % 2 == 1),
        final=np.where(keep & (np.arange(8) % 2 == 1), 1.5, np.nan),
    )


@pytest.mark.parametrize("by", [1, -1])
def test_ends_one_step_off(by: int) -> None:
    play = apart(PLAY)
    adv = estimated(
        play, term=shift(play.term, by), trunc=shift(play.trunc, by), final=shift(play.final, by)
    )
    finding = advantage_formula(heard(play, adv, obs=observed(play, 1)))
    assert finding is not None
    assert (finding.cause, finding.certainty) == ("end-ignored", 2)
    # Without observations, the marks may be those of another step.
    unseen = advantage_formula(heard(play, adv))
    assert unseen is not None
    assert unseen.certainty == 1


def test_marks_on_first_steps_are_another_convention() -> None:
    play = apart(PLAY)
    adv = estimated(play)
    first = {"terminated": shift(play.term, 1), "truncated": shift(play.trunc, 1)}
    of = heard(play, adv, obs=observed(play, 1), final_values=None, **first)
    assert advantage_formula(of) is None


def test_reset_in_the_next_step_bootstraps_from_the_next_row() -> None:
    play = apart(PLAY)
    adv = estimated(play, final=_after(play))
    of = heard(play, adv, obs=observed(play, 2), final_values=None)
    assert advantage_formula(of) is None


# --- Targets -------------------------------------------------------------------------------------


TARGETS: dict[str, Any] = {
    "advantage + value": lambda p: estimated(p) + p.v,
    "Monte Carlo": lambda p: estimated(p, gae_lambda=1.0) + p.v,
    "one step": lambda p: estimated(p, gae_lambda=0.0) + p.v,
    "rewards to go": lambda p: to_go(p, 0.99),
    "normalized": lambda p: normalized(estimated(p) + p.v),
}


@pytest.mark.parametrize("name", TARGETS)
def test_sound_targets(name: str) -> None:
    assert target_formula(heard(PLAY, normalized(estimated(PLAY)), TARGETS[name](PLAY))) is None


FAULTY_TARGETS: dict[str, tuple[str, Any]] = {
    "values": ("targets-follow-values", lambda p: p.v),
    "normalized + value": (
        "targets-follow-values",
        lambda p: normalized(estimated(p)) + p.v,
    ),
    "advantages": ("targets-follow-values", lambda p: estimated(p)),
    "of the next": ("targets-shuffled", lambda p: shift(estimated(p) + p.v, -1)),
    "of the previous": ("targets-shuffled", lambda p: shift(estimated(p) + p.v, 1)),
    "reshaped": ("targets-shuffled", lambda p: mixed(estimated(p) + p.v)),
    "shuffled": (
        "targets-shuffled",
        lambda p: (
            np.random.default_rng(0).permutation((estimated(p) + p.v).ravel()).reshape(p.r.shape)
        ),
    ),
    "ends ignored": ("end-ignored", lambda p: estimated(p, term=NEVER, trunc=NEVER) + p.v),
    "limits as terminations": (
        "limit-taken-for-end",
        lambda p: estimated(p, term=p.term | p.trunc, trunc=NEVER) + p.v,
    ),
}


@pytest.mark.parametrize("name", FAULTY_TARGETS)
def test_faulty_targets(name: str) -> None:
    cause, make = FAULTY_TARGETS[name]
    finding = target_formula(heard(PLAY, normalized(estimated(PLAY)), make(PLAY)))
    assert finding is not None
    assert (finding.cause, finding.certainty) == (cause, 3)


@pytest.mark.parametrize("shape", [(2048, 1), (128, 16)])
def test_quick(shape: tuple[int, int]) -> None:
    play = played(*shape)
    of = heard(play, normalized(estimated(play)), estimated(play) + play.v)
    began = time.process_time()
    assert [rule(of) for rule in RULES] == [None, None]
    assert time.process_time() - began < 1  # 6 ms on an idle machine


def over_ends(play: Play) -> Any:
    """Return advantages of which the trace is not cut."""
    after = np.concatenate([play.v[1:], play.last[None]])
    after = np.where(play.term, 0.0, np.where(play.trunc, play.final, after))
    adv, later = np.zeros(play.r.shape), np.zeros(play.r.shape[1])
    for t in reversed(range(len(adv))):
        later = play.r[t] + GAMMA * after[t] - play.v[t] + GAMMA * LAMBDA * later
        adv[t] = later
    return adv


@pytest.mark.parametrize("only_ends_pay", [False, True])
def test_a_trace_that_goes_on_over_ends(only_ends_pay: bool) -> None:
    play = apart(PLAY)
    if only_ends_pay:
        play = replace(play, r=np.where(play.term, 1.0, 0.0), trunc=np.zeros_like(play.term))
    finding = advantage_formula(heard(play, over_ends(play)))
    assert finding is not None
    assert (finding.cause, finding.certainty) == ("end-ignored", 3)
    assert advantage_formula(heard(play, estimated(play))) is None
