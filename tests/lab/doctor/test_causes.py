"""Findings in the order of their causes; a training that raises; a network that sees nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.lab.doctor.causes import FOLLOWS, by_cause, cannot_imitate, raised
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation


def finding(cause: str, certainty: int = 3, policy: str = "") -> Finding:
    return Finding(cause, f"{cause}.", "1", "2", "do", certainty, policy)


def test_the_surest_come_first_and_of_these_what_is_nearest_to_the_root() -> None:
    found = [finding("c", 1), finding("a", 2), finding("b"), finding("d", 2), finding("e")]
    assert [one.cause for one in by_cause(found)] == ["b", "e", "a", "d", "c"]


def test_one_cause_in_several_policies_is_one_finding_that_names_them() -> None:
    found = [finding("a", 2, "x"), finding("b", 3, "x"), finding("a", 3, "y"), finding("a", 2, "x")]
    merged = by_cause(found)
    assert [(one.cause, one.policy, one.certainty) for one in merged] == [
        ("a", "x, y", 3),
        ("b", "x", 3),
    ]


def test_what_surely_follows_stands_beneath_its_cause() -> None:
    found = by_cause([finding("policy-unchanged"), finding("zero-advantages"), finding("other", 1)])
    assert [(one.cause, one.follows) for one in found] == [
        ("zero-advantages", ""),
        ("other", ""),
        ("policy-unchanged", "zero-advantages"),
    ]
    # Without its cause it is one itself, and so it is beneath what is only worth a look.
    assert by_cause([finding("policy-unchanged")])[0].follows == ""
    doubtful = by_cause([finding("policy-unchanged"), finding("zero-advantages", 1)])
    assert [one.follows for one in doubtful] == ["", ""]


def test_what_follows_from_an_effect_stands_beneath_the_first_cause() -> None:
    chain = ["loss-cut-off", "policy-loss-cut", "zero-advantages"]
    found = by_cause([finding(cause) for cause in chain])
    assert [one.cause for one in found if not one.follows] == ["zero-advantages"]
    assert {one.follows for one in found[1:]} == {"zero-advantages"}


@pytest.mark.parametrize(
    ("root", "effect"),
    [
        ("updates-too-large", "dead-layer"),
        ("play-greedy", "log-probs-wrong"),
        ("log-probs-wrong", "ratio-not-one"),
        ("advantage-sign", "clip-reversed"),
    ],
)
def test_a_certain_effect_stands_beneath_a_likely_cause(root: str, effect: str) -> None:
    found = by_cause([finding(effect, 3), finding(root, 2)])
    assert [(item.cause, item.follows) for item in found] == [(root, ""), (effect, root)]


def test_what_is_found_in_another_policy_does_not_follow() -> None:
    found = by_cause([finding("zero-advantages", 3, "x"), finding("policy-unchanged", 3, "y")])
    assert [one.follows for one in found] == ["", ""]
    both = [finding("zero-advantages", 3, "y"), finding("zero-advantages", 3, "x")]
    found = by_cause([*both, finding("policy-unchanged", 3, "y")])
    assert [one.follows for one in found] == ["", "zero-advantages"]


def test_the_order_of_rules_decides_whatever_was_looked_at_first() -> None:
    found = [finding("late"), finding("early"), finding("unknown")]
    for rank in ({"early": 0, "late": 1}, {"early": 30, "late": 57}):
        ranked = by_cause([found[2], *found[:2]], rank)
        assert [one.cause for one in ranked] == ["early", "late", "unknown"]


def test_nothing_follows_from_itself_in_a_circle() -> None:
    for root, effects in FOLLOWS.items():
        assert root not in effects
        assert not [each for each in effects if root in FOLLOWS.get(each, ())]


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("IllegalActionError", "illegal-action"),
        ("NonFiniteError", "not-finite"),
        ("AlgorithmError", "algorithm-refused"),
        ("ZeroDivisionError", "training-raises"),
    ],
)
def test_an_exception_of_training_is_a_finding(kind: str, cause: str) -> None:
    found = raised(kind, "what it said")
    assert (found.cause, found.certainty) == (cause, 3)
    assert found.measured == f"{kind}: what it said"


def imitation(share: float, unseen: float, default: float | None) -> Imitation:
    return Imitation("team", share, unseen, default, 1000, 10.0)


def test_a_network_is_blamed_where_it_is_blind_and_another_one_sees() -> None:
    assert cannot_imitate(imitation(0.42, 0.40, 0.9)) is not None
    assert cannot_imitate(imitation(0.60, 0.40, None)) is None  # it sees something
    assert cannot_imitate(imitation(0.42, 0.40, 0.5)) is None  # nor can corral's: too hard
    assert cannot_imitate(imitation(0.42, 0.40, None)) is None


def test_half_of_what_the_mask_leaves_counts_as_learned() -> None:
    assert imitation(0.71, 0.40, None).learned
    assert not imitation(0.69, 0.40, None).learned
    assert imitation(0.44, 0.40, None).blind
    assert not imitation(0.46, 0.40, None).blind
