"""Findings of an audit, by their numbers: when they are said, and when noise or youth explains
them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from corral.lab.doctor.audit.audited import (
    Audit,
    Audited,
    Compared,
    Decision,
    clamped,
    correlation,
    fitted,
)
from corral.lab.doctor.audit.findings import against_truth
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.text import truth_lines

K = 120


def noise(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


TRUE = noise(0, K)


def compared(said: Any, error: float = 0.05, true: Any = TRUE) -> Compared:
    return Compared(said, true, np.full(len(true), error))


SOUND = Audited(
    policy="mine",
    values=compared(TRUE + 0.3 * noise(1, K)),
    assumed=0.01,
    fitted=0.8,
    clamped=None,
    advantages=compared(TRUE + 2 * noise(2, K)),
    credit=compared(TRUE + 0.2 * noise(3, K)),
    plain=0.95,
    sample=(0.45, 0.08),
    learned_spread=1.0,
    actor_gradient=0.1,
    worst=(),
)


def found(updates: int = 200, given: bool = False, **changes: Any) -> list[Finding]:
    each = dataclasses.replace(SOUND, **changes)
    return list(against_truth(Audit((each,), given, updates, 1000, 1.0)))


def causes(**given: Any) -> list[tuple[str, int]]:
    return [(one.cause, one.certainty) for one in found(**given)]


def test_nothing_is_said_of_a_sound_one() -> None:
    assert causes() == []


BLIND: dict[str, Any] = {"values": compared(noise(4, K))}


def test_a_blind_critic_is_said_once_it_is_old_enough() -> None:
    assert causes(**BLIND) == [("critic-blind", 2)]
    assert causes(**BLIND, updates=3) == [("critic-blind", 1)]
    assert causes(values=compared(np.ones(K))) == [("critic-blind", 2)]
    assert causes(values=compared(-TRUE)) == [("critic-blind", 2)]


@pytest.mark.parametrize(
    "excuse",
    [
        {"given": True},  # what is to come was drawn: no critic can know it
        {"fitted": 0.2},  # nothing it observes tells values
        {"fitted": None},
        {"values": compared(noise(4, K), error=0.8)},  # the truth is noise
        {"values": compared(np.full(K, np.nan))},  # it was not asked
        {"values": compared(noise(4, 12), true=TRUE[:12])},  # too few
    ],
    ids=["given", "unseen", "unfitted", "noise", "not asked", "few"],
)
def test_a_blind_critic_may_have_an_excuse(excuse: dict[str, Any]) -> None:
    assert causes(**{**BLIND, **excuse}) == []


def test_a_poor_critic_is_not_blind() -> None:
    assert causes(values=compared(TRUE + 2 * noise(5, K))) == []


def test_the_loss_is_cut_off() -> None:
    assert causes(actor_gradient=0.0, learned_spread=0.0) == [("loss-cut-off", 3)]
    assert causes(actor_gradient=0.0) == [("loss-cut-off", 3)]
    assert causes(learned_spread=0.0) == [("loss-cut-off", 2)]  # its entropy still has a gradient
    assert causes(actor_gradient=0.0, given=True) == [("loss-cut-off", 3)]
    assert causes(actor_gradient=None) == []


def test_no_gradient_is_right_where_no_action_matters() -> None:
    equal = compared(TRUE, true=np.zeros(K))
    assert causes(actor_gradient=0.0, learned_spread=0.0, advantages=equal) == []
    noisy = compared(TRUE, error=1.0)
    assert causes(actor_gradient=0.0, learned_spread=0.0, advantages=noisy) == []


def test_advantages_that_are_not_those_of_the_actions() -> None:
    (one,) = found(credit=compared(noise(6, K)))
    assert one.cause == "advantages-unrelated-to-truth"
    (one,) = found(credit=compared(-TRUE))
    assert "sign" in one.title
    assert causes(credit=compared(TRUE + noise(6, K))) == []


def test_noise_excuses_advantages_that_correlate_little() -> None:
    assert causes(credit=compared(noise(6, K)), plain=0.3) == []  # plain ones tell no more
    assert causes(credit=None) == []
    assert causes(advantages=compared(noise(7, K)), sample=(0.1, 0.1)) == []
    assert causes(advantages=compared(noise(7, K)), sample=None) == []


def test_advantages_that_are_no_sample_of_their_function() -> None:
    assert causes(advantages=compared(-TRUE)) == [("advantages-unrelated-to-truth", 2)]
    other = noise(7, K)
    other -= TRUE * (other @ TRUE) / (TRUE @ TRUE)
    assert causes(advantages=compared(other)) == [("advantages-unrelated-to-truth", 2)]


def test_a_critic_of_another_scale_is_worth_a_look() -> None:
    assert causes(values=compared(10 * TRUE)) == [("critic-biased", 1)]
    assert causes(values=compared(TRUE + 5)) == [("critic-biased", 1)]
    assert causes(values=compared(TRUE + 5), updates=3) == []
    assert causes(values=compared(TRUE + 5), given=True) == []


def test_values_that_are_cut() -> None:
    cut = np.minimum(TRUE, 0.0)
    inputs = TRUE[:, None]
    share = clamped(cut, inputs)
    assert share == (0.0, float(np.mean(TRUE >= 0)))
    assert causes(values=compared(cut), clamped=share) == [("values-clamped", 2)]
    assert causes(values=compared(cut, true=cut), clamped=share) == []  # the truth is so
    assert causes(values=compared(cut), clamped=share, given=True) == []


def test_equal_moments_have_equal_values() -> None:
    few = np.repeat([0.0, 1.0, 2.0], 40)
    assert clamped(few, few[:, None]) is None
    assert clamped(TRUE, TRUE[:, None]) is None
    assert clamped(np.zeros(K), TRUE[:, None]) is None  # a still critic is another fault
    assert clamped(np.full(K, np.nan), TRUE[:, None]) is None


def test_a_plain_fit_tells_what_is_observed() -> None:
    inputs = noise(8, K, 5)
    assert (fitted(inputs, inputs[:, 0] + 0.1 * noise(9, K)) or 0) > 0.9
    assert (fitted(inputs, np.abs(inputs[:, 0])) or 0) > 0.25  # by distances
    assert (fitted(inputs, noise(10, K)) or 0) < 0.25
    assert (fitted(noise(8, K, 300), noise(10, K)) or 0) < 0.25  # more columns than moments
    assert fitted(inputs[:10], inputs[:10, 0]) is None
    assert fitted(np.ones((K, 2)), TRUE) is None


def test_ceilings_and_signs() -> None:
    true = TRUE + 0.5 * noise(11, K)
    one = Compared(TRUE, true, np.full(K, 0.5))
    assert abs(one.ceiling - (one.correlation or 0)) < 0.06
    assert compared(TRUE, error=0.0).ceiling == 1.0
    assert compared(TRUE, error=9.0).ceiling == 0.0
    assert compared(-TRUE).same_sign == 0.0
    assert compared(TRUE, error=9.0).same_sign is None
    assert correlation(TRUE, 1e6 + 0.0 * TRUE) is None


def test_the_same_decision_at_the_same_place_is_told_once() -> None:
    worst = [Decision("a", row, 0, 3, 1, 0.1 * row, 0.001, "dawn") for row in (1, 2, 3)]
    worst.append(Decision("a", 4, 7, 3, 1, 0.05, 0.001, "dusk"))
    audit = Audit((dataclasses.replace(SOUND, worst=tuple(worst)),), False, 200, 1000, 1.0)
    told = [line for line in truth_lines(audit, 80) if "dawn" in line or "dusk" in line]
    assert [("dawn" in line, "0.3" in line) for line in told] == [(True, True), (False, False)]
