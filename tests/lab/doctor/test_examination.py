"""Any learner is examined on the probes: right ones pass, broken ones are told plainly."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.adapters.sources import rules_of
from corral.envs.policy import take_tree
from corral.errors import UnknownNameError, UnsupportedSpaceError
from corral.lab.doctor.examination import (
    EXAMINED,
    Examination,
    Learned,
    examination,
    examination_text,
    suspects,
)
from corral.lab.doctor.examination.patterns import Pattern, patterns, unseen
from corral.trainers.on_policy.trainer import IPPO
from support.planted_bugs import PLANTED, zeroed_advantages
from support.thinned import fast_every

WITHOUT_MEMORY = list(EXAMINED[:-1])
BY_CHANCE = ["P4", "P5", "P6", "P7", "P11", "P12"]

Change = Callable[[str, np.ndarray, np.ndarray], int]
"""Probe, best action (one-hot) and mask -> the action that is played."""


def knows(
    play: Change | None = None,
    value: Callable[[str, str, float], float] = lambda probe, agent, right: right,
    with_values: bool = True,
) -> Any:
    """A learner that knows the answers; ``play`` and ``value`` change what it makes of them."""

    def learn(make_env: Any, steps: int, seed: int) -> Any:
        rules: Any = rules_of(make_env)
        answer = rules.answer(0.9)
        observed, states = rules.observe(answer.state), rules.global_state(answer.state)
        rows = range(len(answer.value))

        def situation(agent: str, obs: Any, state: Any = None) -> int:
            for k in rows:
                own = take_tree(observed[agent], k)
                if all(np.array_equal(own[key], obs[key]) for key in own) and (
                    state is None or np.array_equal(states[k], state)
                ):
                    return k
            return -1

        def policy(agent: str, i: int) -> Callable[[Any], int]:
            def act(obs: Any) -> int:
                mask = np.asarray(obs["action_mask"])
                best = int(answer.best[situation(agent, obs), i])
                if best < 0 or not mask[best]:
                    return int(np.flatnonzero(mask)[-1])
                return best if play is None else play(rules.name, np.eye(len(mask))[best], mask)

            return act

        def valued(agent: str, i: int) -> Callable[[Any, Any], float]:
            def told(obs: Any, state: Any) -> float:
                right = answer.value[situation(agent, obs, state), i]
                return value(rules.name, agent, float(right))

            return told

        policies = {agent: policy(agent, i) for i, agent in enumerate(rules.agents)}
        values = {agent: valued(agent, i) for i, agent in enumerate(rules.agents)}
        return Learned(policies, values) if with_values else policies

    return learn


CHANCE = np.random.default_rng(0)


def any_legal(probe: str, best: np.ndarray, mask: np.ndarray) -> int:
    return int(CHANCE.choice(np.flatnonzero(mask)))


def worst(probe: str, best: np.ndarray, mask: np.ndarray) -> int:
    return int(np.flatnonzero(mask * (1 - best))[0]) if (mask * (1 - best)).any() else best.argmax()


# --- What passes and what does not ---------------------------------------------------------------


def test_who_knows_the_answers_fails_nothing() -> None:
    found = examination(knows(), WITHOUT_MEMORY)
    assert found.failed == frozenset()
    assert found.passed
    assert {"P1 values", "P4 actions", "P6 masks", "P6 returns", "P9 values"} <= found.judged
    assert suspects(found) == []


def test_without_values_what_asks_for_them_is_not_judged() -> None:
    found = examination(knows(with_values=False), ["P1", "P4", "P9"])
    assert [result.passed for result in found.results] == [None, True, None]
    assert not any(kind.endswith("values") for kind in found.judged)
    text = examination_text(found)
    shown(" ".join(text.split()), 12, "cut taken for an end")  # which no other number tells


@pytest.mark.parametrize("probe", fast_every(3, [f"P{n}" for n in (4, 5, 6, 7, 11, 12)]))
def test_the_worst_actions_fail(probe: str) -> None:
    (result,) = examination(knows(worst), [probe]).results
    assert result.passed is False
    assert f"{probe} actions" in result.kinds(False)
    assert f"{probe} values" in result.kinds(True)


def test_values_that_are_off_fail_and_say_whose_and_where_to() -> None:
    low = knows(value=lambda probe, agent, right: right - 5 * (agent == "agent_0"))
    found = examination(low, ["P9"])
    assert found.symptoms == {"P9 values", "P9 values agent_0 low"}
    assert {"cut taken for an end"} < set(suspects(found)[0].bugs)


@pytest.mark.parametrize(("sees_the_mask", "off"), [(True, 0.0), (True, 0.5), (False, 0.5)])
def test_critics_may_see_the_mask_or_not(sees_the_mask: bool, off: float) -> None:
    """The values of P6 are those of its 15 masks, or their mean."""

    def learn(make_env: Any, steps: int, seed: int) -> Learned:
        found = knows()(make_env, steps, seed)

        def worth(obs: Any) -> float:
            highest = int(np.flatnonzero(obs["action_mask"])[-1])
            return (float(highest) if sees_the_mask else 34 / 15) + off

        return Learned(found.policies, dict.fromkeys(found.policies, worth))

    assert ({"P6 values"} <= examination(learn, ["P6"]).failed) is (off > 0)


def test_illegal_play_is_counted() -> None:
    illegal = knows(lambda probe, best, mask: int(mask.argmin()))
    (result,) = examination(illegal, ["P6"]).results
    (check,) = (c for c in result.checks if c.what == "illegal actions, sampled")
    assert check.found is not None
    assert check.found > 100
    assert not check.passed


# --- Learners that misbehave ---------------------------------------------------------------------


def returns(found: Any) -> Any:
    return lambda make_env, steps, seed: found


def fails(*args: Any) -> Any:
    raise RuntimeError("out of\nmemory")


def leaves(make_env: Any, steps: int, seed: int) -> Any:
    sys.exit(3)


def refuses(make_env: Any, steps: int, seed: int) -> Any:
    raise UnsupportedSpaceError("no turns")


TEAM: Mapping[str, Any] = {"agent_0": lambda obs: 0, "agent_1": lambda obs: 1}


@pytest.mark.parametrize(
    ("learner", "named"),
    [
        (fails, ("RuntimeError", "memory")),
        (leaves, ("SystemExit", 3)),
        (returns(None), ("learn", "agent_0", "agent_1")),
        (returns([1, 2]), ("list",)),
        (returns({"agent_0": TEAM["agent_0"]}), ("agent_1",)),
        (returns({**TEAM, "agent_1": 7}), ("agent_1", 7)),
        (returns(Learned(TEAM, {"agent_0": 1.0})), ("values['agent_0']", "float")),
        (returns(Learned(TEAM, 3)), ("values", "int")),  # type: ignore[arg-type]
        (returns(Learned(TEAM, {"agent_0": lambda obs: [1, 2]})), ("values['agent_0']", "[1, 2]")),
        (returns({**TEAM, "agent_0": lambda obs: "left"}), ("agent_0",)),
        (returns({**TEAM, "agent_0": lambda obs: 5}), ("agent_0", 5)),
        (returns({**TEAM, "agent_0": fails}), ("RuntimeError", "memory")),
    ],
)
def test_what_goes_wrong_is_the_result(learner: Any, named: tuple[object, ...]) -> None:
    (result,) = examination(learner, ["P4"]).results
    shown(result.error, *named)
    assert "\n" not in result.error
    assert result.passed is False
    text = " ".join(examination_text(Examination((result,))).split())
    shown(text, *named)
    assert "planted" not in text  # an error comes before all guesses


def test_an_error_says_where_in_ones_own_file_it_came_from(tmp_path: Path) -> None:
    """And keeps saying so where the message is long."""
    (tmp_path / "own_fault.py").write_text(
        "import json\n\n\ndef learn(make_env, steps, seed):\n    return json.loads('x' * 5)\n\n\n"
        "def long(make_env, steps, seed):\n    raise RuntimeError('so long ' * 200)\n"
    )
    for name, line in (("learn", 5), ("long", 9)):
        found = examination(f"{tmp_path / 'own_fault.py'}:{name}", ["P4"])
        assert found.results[0].error.endswith(f"(own_fault.py:{line})")
        assert f"(own_fault.py:{line})" in examination_text(found)


def test_what_came_close_is_told_to_train_longer() -> None:
    def mostly(wrong: float) -> Any:
        drawn = np.random.default_rng(0)
        return knows(
            lambda probe, best, mask: int((1 - best if drawn.random() < wrong else best).argmax())
        )

    close, far = (examination(mostly(wrong), ["P4"]) for wrong in (0.17, 0.9))
    assert {"P4 actions"} <= close.failed & far.failed
    shown(examination_text(close), "P4", "--budget 3")
    assert "--budget" not in examination_text(far)


def test_a_value_that_is_nan_is_wrong() -> None:
    found = examination(returns(Learned(TEAM, {"agent_0": lambda obs: np.nan})), ["P4"])
    assert {"P4 values"} <= found.failed
    assert "nan" in examination_text(found)
    (probe,) = json.loads(json.dumps(found.to_json(), allow_nan=False))["probes"]
    assert [c["found"] for c in probe["checks"] if c["kind"] == "values"] == [None, None]


def test_what_is_refused_fails_nothing() -> None:
    found = examination(refuses, ["P12"])
    assert found.failed == frozenset()
    assert not found.passed  # nothing was judged
    assert "refused" in examination_text(found)


def test_a_learner_that_hangs_is_stopped() -> None:
    def hangs(make_env: Any, steps: int, seed: int) -> Any:
        while True:
            time.sleep(0.01)

    found = examination(hangs, ["P4"], limit=0.2)
    shown(found.results[0].error, "TimeoutError", 0.2)
    assert found.results[0].seconds < 20


def test_a_learner_is_given_env_steps_and_seed() -> None:
    given = []

    def learn(make_env: Any, steps: int, seed: int) -> Any:
        env = make_env()
        env.reset(seed=0)
        given.append((steps, seed, tuple(env.possible_agents)))
        return TEAM

    examination(learn, ["P4", "probe_p09_v0", "p4"], seed=5, budget=0.5)
    agents = ("agent_0", "agent_1")
    assert given == [(5_000, 5, agents), (25_000, 5, agents)]


def test_what_is_no_learner_is_refused(tmp_path: Path) -> None:
    with refused(ValueError, "(make_env)", "learn(make_env, steps, seed)"):
        examination(lambda make_env: TEAM, ["P4"])
    with refused(ValueError, 3, "learn(make_env, steps, seed)"):
        examination(3, ["P4"])  # type: ignore[arg-type]
    with refused(ValueError, "(steps, seed=0)", "learn(make_env, steps, seed)"):
        examination(lambda steps, seed=0: TEAM, ["P4"])
    for budget in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="budget="):
            examination(returns(TEAM), budget=budget)
    for limit in (0, -1, np.nan):
        with pytest.raises(ValueError, match="limit="):
            examination(returns(TEAM), ["P4"], limit=limit)
    with pytest.raises(UnknownNameError, match="P44"):
        examination(returns(TEAM), ["P44"])
    (tmp_path / "my_file.py").write_text("def learn(make_env, steps, seed): return {}\n")
    with pytest.raises(UnknownNameError, match=r"my_file.py:learn"):
        examination(f"{tmp_path}/my_file.py", ["P4"])
    with refused(UnknownNameError, f"{tmp_path}/none.py"):
        examination(f"{tmp_path}/none.py:learn", ["P4"])
    with pytest.raises(UnknownNameError, match="learn"):
        examination(f"{tmp_path}/my_file.py:lern", ["P4"])
    found = examination(f"{tmp_path}/my_file.py:learn", ["P4"])
    shown(found.results[0].error, "agent_0", "agent_1")


# --- Text ----------------------------------------------------------------------------------------


@functools.cache
def worst_of_all() -> Examination:
    return examination(knows(worst), WITHOUT_MEMORY)


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_begins_with_the_verdict_and_keeps_its_width(width: int) -> None:
    found = worst_of_all()
    text = examination_text(found, "my_file.py:learn", width)
    labels = "P4, P5, P6, P7, P11, P12"
    shown(text.partition("\n\n")[0], "my_file.py:learn", 6, 13)
    shown(" ".join(text.split()), labels, len(PLANTED))
    assert max(len(line) for line in text.splitlines()) <= width
    row = next(line for line in text.splitlines() if "agent_0" in line)
    assert row.split()[-2:] == ["0.90", "0.00"]
    assert json.loads(json.dumps(found.to_json()))["failed"] == sorted(found.failed)


# --- Planted bugs --------------------------------------------------------------------------------


def test_every_planted_bug_was_measured_and_a_sound_trainer_fails_nothing() -> None:
    known = patterns()
    assert set(known) == {"nothing", *PLANTED}
    assert len(PLANTED) > 30
    for examples in known.values():
        assert len(examples) == 2  # two trainers, of two seeds
    assert not any(example.symptoms for example in known["nothing"])


def test_actions_by_chance_are_named_and_what_only_values_tell_apart_with_them() -> None:
    found = examination(knows(any_legal, with_values=False), BY_CHANCE)
    first = suspects(found)[0]
    assert {"zeroed advantages", "actor without gradient"} <= set(first.bugs)
    assert first.likeness > 0.6


def test_failures_of_no_known_bug_are_not_named_as_one() -> None:
    """The values of P3 and the actions of P7 alone are wrong: no planted bug fails like this."""

    def one_wrong(probe: str, best: np.ndarray, mask: np.ndarray) -> int:
        return worst(probe, best, mask) if probe == "probe_p07_v0" else int(best.argmax())

    def low(probe: str, agent: str, right: float) -> float:
        return right - 5 * (probe == "probe_p03_v0")

    found = examination(knows(one_wrong, low), WITHOUT_MEMORY)
    assert not any(suspect.exact for suspect in suspects(found))
    shown(examination_text(found), len(PLANTED))


def test_failures_of_a_known_bug_are_named() -> None:
    low = knows(value=lambda probe, agent, right: right - 5 * (probe == "probe_p09_v0"))
    found = examination(low, WITHOUT_MEMORY)
    first = suspects(found)[0]
    assert not first.exact  # both agents' values are low, in the bug only those of one
    one_low = knows(
        value=lambda probe, agent, right: (
            right - 5 * (probe == "probe_p09_v0" and agent == "agent_0")
        )
    )
    found = examination(one_low, WITHOUT_MEMORY)
    assert suspects(found)[0].exact
    assert found.to_json()["suspects"][0]["exact"]
    shown(examination_text(found), "cut taken for an end")


def test_where_nothing_is_near_nothing_is_named() -> None:
    odd = Pattern(frozenset({"P2 values", "P13 values"}), frozenset({"P13 values"}))
    known = {"a": [Pattern(odd.judged, frozenset({"P2 values"}))]}
    assert suspects(odd, known) == []
    assert unseen(Pattern(frozenset({"P4 actions"}), frozenset()), known) == ["a"]


def test_bugs_that_values_alone_tell_apart_are_named_together() -> None:
    actions = frozenset({"P4 actions", "P5 actions"})
    all_of_it = actions | {"P4 values"}
    known = {"a": [Pattern(all_of_it, actions)], "b": [Pattern(all_of_it, all_of_it)]}
    apart = suspects(Pattern(all_of_it, all_of_it), known)
    assert [one.bugs for one in apart] == [("b",), ("a",)]
    assert [one.bugs for one in suspects(Pattern(actions, actions), known)] == [("a", "b")]


@pytest.mark.slow  # learns
def test_zeroed_advantages_are_named_after_training() -> None:
    sound = examination("ippo", ["P4", "P7"], seed=3)
    assert sound.passed
    broken = examination(zeroed_advantages(IPPO), ["P4", "P5", "P7"], seed=3)
    assert broken.failed >= {"P4 actions", "P5 actions", "P7 actions"}
    assert {"zeroed advantages"} <= set(suspects(broken)[0].bugs)
