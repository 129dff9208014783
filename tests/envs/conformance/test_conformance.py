"""check_env: nothing is found in sound environments, each planted fault is found under its name."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.clock import Clock
from corral.envs import PROBES, check_env, two_step_v0
from corral.envs.conformance.report import CHECKS, CheckResult
from corral.envs.registry import REGISTERED, NamedEnv, _load
from corral.errors import ConformanceError, UnknownNameError
from support import faulty_chance, faulty_envs, faulty_repeats, faulty_turns, turns_in_parallel
from support.faulty_chance import NotSeeded, OneEpisode
from support.faulty_turns import Count
from support.loads import small_trace
from support.messages import refused, shown

SMALL: dict[str, dict[str, Any]] = {
    "dfaas_v0": {"trace": small_trace(), "max_cycles": 8, "queue": 3, "route": "two"},
    "arena_v0": {"width": 3, "height": 2, "max_cycles": 20, "walls": "mask"},
}
"""Arguments that make episodes short; those not named are short anyway."""


def makes(name: str) -> list[Any]:
    """Functions that make each form of a registered environment."""
    kinds = ["parallel_env", "env"] if REGISTERED[name].simultaneous else ["env"]
    named = [name] if name in PROBES else []
    return [functools.partial(_load(name, kind), *named, **SMALL.get(name, {})) for kind in kinds]


OURS = [
    pytest.param(make, id=f"{name}-{'aec' if make.func.__name__ == 'env' else 'parallel'}")
    for name in REGISTERED
    for make in makes(name)
]


@pytest.mark.parametrize("make", OURS)
def test_nothing_is_found_in_ours(make: Any) -> None:
    result = check_env(make, processes=False)
    assert result.findings == (), result.text()
    assert list(result.not_run) == ["processes", "hashing"]
    assert result.steps > 10


@pytest.mark.parametrize(
    ("kind", "illegal", "observation"),
    [
        ("parallel_env", "raise", "every"),
        pytest.param("env", "penalise", "neighborhood", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_found_in_dfaas_in_other_processes(
    kind: str, illegal: str, observation: str
) -> None:
    more = {**SMALL["dfaas_v0"], "illegal": illegal, "observation": observation}
    make = functools.partial(_load("dfaas_v0", kind), **more)
    result = check_env(make, stochastic=True)
    assert result.findings == (), result.text()
    assert result.not_run == {}
    assert {"mask-lies", "processes", "hashing"} <= set(result.checks)


SOUND = [faulty_envs.Walk, Count, faulty_envs.Strict, faulty_envs.Punishing]


@pytest.mark.parametrize("make", SOUND)
def test_nothing_is_found_in_the_environments_that_faults_are_planted_in(make: Any) -> None:
    elsewhere = make in SOUND[:2]
    result = check_env(make, stochastic=True, processes=elsewhere)
    assert result.findings == (), result.text()
    assert result.notes == ()
    expected = set(CHECKS) - (set() if elsewhere else {"processes", "hashing"})
    assert set(result.not_run) == set(CHECKS) - expected
    if result.form == "parallel":
        expected -= {"selection", "last", "dead-step", "cumulative-rewards"}
    assert set(result.checks) == expected


PLANTED = {**vars(faulty_envs), **vars(faulty_chance), **vars(faulty_turns)}

FAULTS = {
    "OutsideItsSpace": ("observation", "error", "at index 0; 0.0 to 10.0"),
    "OtherDtype": ("observation", "error", "dtype float64; dtype float32"),
    "OtherShape": ("observation", "error", r"shape \(5,\); shape \(6,\)"),
    "NanSeen": ("observation", "error", "NaN; numbers"),
    "MaskOfBools": ("mask", "error", "a mask of bool; int8"),
    "MaskTooLong": ("mask", "error", r"a mask of shape \(4,\); \(3,\)"),
    "MaskAllZero": ("mask", "error", "all-zero; one legal action"),
    "NanReward": ("reward", "error", "a reward of nan; finite"),
    "ArrayReward": ("reward", "error", "ndarray; a finite number"),
    "PaysStrangers": ("agents", "error", "rewards; possible_agents"),
    "ShowsTheGone": ("agents", "error", "not live; before the step"),
    "ForgetsItsDead": ("agents", "error", "no entry; all live agents"),
    "StaysAfterItsEnd": ("agents", "error", "is still in agents; not in agents after"),
    "LeavesWithoutAnEnd": ("agents", "error", "neither terminated nor truncated; termination"),
    "BothEnds": ("ends", "warning", "both terminated and truncated; truncated only"),
    "InfoGrows": ("info", "warning", "with distance; the same keys"),
    "NeverEnds": ("endless", "error", "did not end within 300 steps; of every agent"),
    "Raises": ("crash", "error", "ZeroDivisionError.*after.*late; reset.*step"),
    "StateGoesWithAnAgent": ("api", "error", "AttributeError; any time"),
    "FourValues": ("api", "error", "step.. returned; PettingZoo"),
    "NewSpaceObjects": ("spaces", "error", "new object; same object"),
    "SpaceChanges": ("spaces", "error", r"Discrete\(4\).*Discrete\(3\); same object"),
    "OverwritesObservations": ("aliasing", "error", "observation.* at step 0; do not change"),
    "OverwritesInfos": ("aliasing", "warning", "the info; do not change"),
    "AllowsTooMuch": ("mask-lies", "error", "action 0 is legal.*info counted; legal"),
    "ForbidsTooMuch": ("mask-lies", "error", "action 2 is illegal.*info did not count; illegal"),
    "AllowsWhatRaises": ("mask-lies", "error", "is legal.*raised ValueError; legal"),
    "ForbidsWhatIsPlayed": ("mask-lies", "warning", "raise ValueError; illegal"),
    "AllowsWhatEndsTheGame": ("mask-lies", "warning", "legal.*ended the game; legal"),
    "ForbidsWhatGoesOn": ("mask-lies", "warning", "illegal.*the game continued; illegal"),
    "NotSeeded": ("seed", "error", "two fresh environments.*different; the same whole episode"),
    "RandomFromStepTwo": ("seed", "error", "different reward of early; same whole episode"),
    "TimeInInfo": ("seed", "warning", "different info of early; the same infos"),
    "OneEpisode": ("other-seeds", "warning", "same episodes.*OneEpisode.rng; seed argument"),
    "ForgetsItsGenerator": ("seed", "warning", "reset.. without a seed; same second episode"),
    "NeedsASeed": ("reset", "error", r"reset\(\) raised TypeError; reset\(seed\)"),
    "RemembersTheEpisodeBefore": ("reset", "error", "a fresh environment; forgets"),
    "GlobalGenerator": ("shared-state", "error", "interleaved.*reward; one process"),
    "ClockOfTheClass": ("shared-state", "error", "interleaved.*reward; one process"),
    "CannotBePickled": ("copies", "warning", "pickle.dumps.*raised; a copy"),
    "LosesItsGenerator": ("copies", "error", "pickle.*the copy has a different reward; no copy"),
    "RebuiltByEzPickle": (
        "copies",
        "warning",
        "the copy has a different outcome; no copy",
    ),
    "SharesWithItsCopy": ("copies", "error", "deepcopy.*the copy; no copy"),
    "OrderOfASet": ("hashing", "error", "PYTHONHASHSEED.*different list of agents; every process"),
    "HashOfANumberedName": ("hashing", "error", "PYTHONHASHSEED.*reward of; every process"),
    "NumberOfTheProcess": ("processes", "error", "another process.*reward of; every process"),
    "SelectsNobody": ("selection", "error", "agent_selection 'three'; one of agents"),
    "ObservesAtRandom": ("last", "error", "observation of last; at every call"),
    "ObservingCounts": ("last", "error", "called twice per step; does not change"),
    "LastTellsAnotherInfo": ("last", "error", "info of last; infos"),
    "PaysTwice": ("cumulative-rewards", "error", "last action; the sum of rewards"),
    "KeepsWhatItPaid": ("cumulative-rewards", "error", "last action; the sum of rewards"),
    "NeverClears": ("cumulative-rewards", "error", "pays it again; one step"),
    "DeadStay": ("dead-step", "error", "took None.*still in agents; removes it"),
    "DeadAreRemoved": ("dead-step", "error", "without a last turn; selected once more"),
    "RefusesNone": ("dead-step", "error", "raised ValueError; removes it"),
}
"""The check that finds a planted fault, its severity, and regexes for its texts: seen; expected."""

ALSO = {
    "ObservesAtRandom": {"seed"},  # it is both: nothing seeds it, and it changes between looks
}
"""What a fault is besides."""

FIRST_OF_CHECK = {check: fault for fault, (check, *_) in reversed(FAULTS.items())}.values()

ELSEWHERE = {"OrderOfASet", "HashOfANumberedName", "NumberOfTheProcess"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault in FIRST_OF_CHECK else [pytest.mark.slow])
        for fault in FAULTS
    ],
)
def test_a_planted_fault_is_found_under_its_name_and_nothing_else_is(fault: str) -> None:
    check, severity, texts = FAULTS[fault]
    make = PLANTED[fault]
    result = check_env(make, limit=300, processes=fault in ELSEWHERE)
    found = {finding.check for finding in result.findings}
    assert found == {check} | ALSO.get(fault, set()), result.text()
    findings = [finding for finding in result.findings if finding.check == check]
    assert {finding.severity for finding in findings} == {severity}, result.text()
    seen, expected = texts.split("; ")
    assert any(
        re.search(seen, finding.seen) and re.search(expected, finding.expected)
        for finding in findings
    ), result.text()
    assert all(finding.advice for finding in findings)
    assert max(map(len, result.text().splitlines())) <= 80


def test_every_check_has_a_planted_fault() -> None:
    planted = {check for check, _, _ in FAULTS.values()}
    assert planted == set(CHECKS)
    kinds = (faulty_envs.Walk, Count)
    helpers = {"Walk", "Count", "Strict", "Punishing", "Edited", "Prints"}
    classes = {
        name
        for name, found in PLANTED.items()
        if isinstance(found, type) and issubclass(found, kinds)
    }
    assert classes - helpers == set(FAULTS)


class WithoutChance(faulty_envs.Walk):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed)
        self.place = dict.fromkeys(self.possible_agents, 2)
        return self.shown(), self.infos()

    def reward(self, agent: str) -> Any:
        return float(self.place[agent])


def test_every_seed_alike_is_a_note_and_a_finding_where_chance_was_stated() -> None:
    unstated = check_env(WithoutChance, processes=False)
    assert unstated.findings == ()
    shown("\n".join(unstated.notes), "seeds 0, 1, 2")
    stated = check_env(WithoutChance, stochastic=True, processes=False)
    assert [finding.check for finding in stated.findings] == ["other-seeds"]
    assert check_env(WithoutChance, stochastic=False, processes=False).notes == ()
    [fixed] = check_env(OneEpisode, stochastic=True, processes=False).findings
    assert (fixed.check, fixed.severity) == ("other-seeds", "error")
    assert check_env(OneEpisode, stochastic=False, processes=False).findings == ()
    [finding] = check_env(faulty_envs.Walk, stochastic=False, processes=False).findings
    assert finding.check == "other-seeds"
    shown(finding.seen, "deterministic")


# --- Further seeds, in the time of the check ------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Count the looks at the clock, and let a millisecond pass with each: as many steps in a second
    on every machine."""
    count = itertools.count()
    monkeypatch.setattr(Clock, "seconds", lambda clock: next(count) / 1000)
    return count


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize(
    ("make", "check"),
    [
        (faulty_repeats.CoinOfRandom, "seed"),
        (faulty_repeats.CoinOfNumpy, "seed"),
        (faulty_repeats.CoinNeverSeeded, "seed"),
        (faulty_repeats.CoinSeededOnce, "reset"),
        (faulty_repeats.NeverCountsAnew, "reset"),
    ],
)
def test_chance_in_few_episodes_and_a_reset_that_does_not_reset(make: Any, check: str) -> None:
    random.seed(0)  # chance that no environment seeds: a test that fails fails again
    np.random.seed(0)  # noqa: NPY002
    result = check_env(make, processes=False, seconds=5)
    [finding] = result.findings
    assert (finding.check, finding.severity) == (check, "error"), result.text()
    if check == "seed":
        assert {"reset", "shared-state", "copies"} <= set(result.not_run)


SOUND_ARENAS = [faulty_repeats.Arena, faulty_envs.Walk, Count]


@pytest.mark.parametrize("make", SOUND_ARENAS)
def test_the_time_is_spent_on_further_seeds_of_a_sound_environment(
    make: Any, looks: Iterator[int]
) -> None:
    result = check_env(make, processes=False, seconds=1)
    assert result.findings == (), result.text()
    assert 900 < next(looks) < 1_100
    without_time = check_env(make, processes=False)
    assert result.episodes > without_time.episodes
    assert result.steps > without_time.steps


@pytest.mark.parametrize("seconds", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_turns_in_a_parallel_environment_are_a_note(seconds: float | None) -> None:
    result = check_env(turns_in_parallel.Alternating, processes=False, seconds=seconds)
    assert result.findings == (), result.text()
    [note] = result.notes
    shown(note, "one", "two", "AEC", "action_mask", "is_parallelizable")
    masked = check_env(turns_in_parallel.AlternatingWithMasks, processes=False, seconds=seconds)
    assert masked.findings == (), masked.text()
    assert not any("AEC" in note for note in masked.notes)


class Many(faulty_envs.OtherDtype, faulty_envs.NanReward, faulty_envs.InfoGrows):
    """Three faults at once."""


def test_all_faults_of_an_environment_are_reported_together() -> None:
    result = check_env(Many, processes=False)
    assert [finding.check for finding in result.findings] == ["observation", "reward", "info"]
    first = result.findings[0]
    assert (first.agent, first.seed, first.step, first.others) == ("early", 0, 0, ("late",))
    assert first.count == 3 * (6 + 8)  # both agents, every step of every seed
    assert first.place == "early, seed 0, reset (42 times, also late)"


def test_what_was_not_run_is_said_loudly() -> None:
    result = check_env(lambda: faulty_envs.Walk())
    assert result.findings == ()
    assert set(result.not_run) == {"processes", "hashing"}
    shown(result.not_run["hashing"], "make")
    text = result.text()
    shown(text, "NOT RUN", "processes, hashing: make")
    shown(text.splitlines()[-1], "2 NOT RUN")


def test_a_process_that_cannot_import_the_environment_is_said_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("only_in_this_process")
    kind = type("Here", (faulty_envs.Walk,), {"__module__": module.__name__})
    monkeypatch.setattr(module, "Here", kind, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    result = check_env(kind)
    assert result.findings == ()
    shown(result.not_run["processes"], "'only_in_this_process'", "make")


def test_what_stands_on_repeatability_is_not_run_without_it() -> None:
    result = check_env(NotSeeded, processes=False)
    assert {"reset", "shared-state", "copies", "other-seeds"} <= set(result.not_run)
    shown(result.not_run["reset"], "seed")
    assert not set(result.not_run) & set(result.checks)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: 1 / 0, ("make()", "ZeroDivisionError")),
        (lambda: "no environment", ("ParallelEnv", "AECEnv")),
        (functools.cache(faulty_envs.Walk), ("object", "twice")),
    ],
)
def test_what_cannot_be_played_is_one_finding(make: Any, values: tuple[str, ...]) -> None:
    result = check_env(make)
    [finding] = result.findings
    assert (finding.check, finding.severity) == ("api", "error")
    shown(finding.seen, *values)
    assert set(result.not_run) | set(result.checks) == set(CHECKS)
    assert result.text().startswith(f"{result.environment} (")


def test_an_environment_by_name_is_called_by_it_where_it_cannot_be_made() -> None:
    result = check_env(NamedEnv("support.faulty_envs:Walk", {"size": 3}))
    assert (result.environment, result.form) == ("support.faulty_envs:Walk", "not made")
    shown(result.findings[0].seen, "'size'")


# --- What may be given ---------------------------------------------------------------------------


def test_an_environment_itself_may_be_given_and_is_not_played() -> None:
    for env, form in ((faulty_envs.Walk(), "parallel"), (Count(), "AEC")):
        result = check_env(env, stochastic=True)
        assert (result.findings, result.not_run, result.form) == ((), {}, form), result.text()
        shown(result.notes[0], "copies")
        assert not hasattr(env, "moves")
        assert not hasattr(env, "t")
    faulty = check_env(faulty_envs.NanReward(), processes=False)
    assert [finding.check for finding in faulty.findings] == ["reward"]


def test_an_environment_that_cannot_be_copied_is_played_itself_and_left_open() -> None:
    class Window(faulty_envs.Walk):
        closed = False

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot pickle a window")

        def close(self) -> None:
            self.closed = True

    env = Window()
    result = check_env(env)
    assert result.findings == ()
    left_out = {"seed", "reset", "copies", "shared-state", "processes", "hashing", "mask-lies"}
    assert left_out <= set(result.not_run)
    shown(result.not_run["seed"], "TypeError", "cannot pickle a window", "function")
    assert {"crash", "observation", "mask", "reward"} <= set(result.checks)
    assert not set(result.not_run) & set(result.checks)
    assert result.episodes == 3
    assert not env.closed


def test_a_module_and_names_may_be_given() -> None:
    for given, form in (
        (two_step_v0, "parallel"),
        ("two_step_v0", "parallel"),
        ("tictactoe_v0", "AEC"),
        ("probe_p01_v0", "parallel"),
        ("support.faulty_envs:Walk", "parallel"),
    ):
        result = check_env(given, processes=False)
        assert (result.findings, result.form) == ((), form), result.text()
    with pytest.raises(UnknownNameError, match="two_step_v0"):
        check_env("two_stp_v0")
    with refused(ValueError, "json", "parallel_env", "module:function"):
        check_env(json)
    [finding] = check_env(3).findings
    shown(finding.seen, "ParallelEnv", "AECEnv")


def test_require_raises_the_report() -> None:
    check_env(faulty_envs.InfoGrows, processes=False).require()  # a warning is no error
    with refused(ConformanceError, "reward", "early", "seed 0", "step 3", "nan"):
        check_env(faulty_envs.NanReward, processes=False).require()


def test_a_result_is_plain_data_too() -> None:
    result = check_env(faulty_envs.NanReward, processes=False)
    data = json.loads(json.dumps(result.to_json()))
    assert (data["errors"], data["warnings"], data["environment"]) == (1, 0, "walk_v0")
    assert data["findings"][0]["check"] == "reward"
    assert data["findings"][0]["step"] == 3


@pytest.mark.parametrize(
    ("arguments", "value"),
    [({"seeds": ()}, "seeds=()"), ({"seeds": (-1,)}, -1), ({"limit": 0}, "limit=0")],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], value: object) -> None:
    with refused(ValueError, value):
        check_env(faulty_envs.Walk, **arguments)


def test_global_generators_and_warnings_are_left_alone(recwarn: pytest.WarningsRecorder) -> None:
    result: CheckResult = check_env(
        functools.partial(corral.make, "arena_v0", **SMALL["arena_v0"]), processes=False
    )
    assert result.findings == ()
    assert len(recwarn) == 0


def test_the_page_lists_the_checks() -> None:
    page = Path(__file__).parents[3] / "docs" / "conformance.md"
    for name, kept in CHECKS.items():
        assert f"| `{name}` | {kept} |\n" in page.read_text(encoding="utf-8")
