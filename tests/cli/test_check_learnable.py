"""``corral check --learnable``, and the time budget of ``corral check``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import run, within
from support.messages import shown

TESTS = Path(__file__).parents[1]


def test_a_sound_environment_verdict_first() -> None:
    lines = within("check", "two_step_v0", "--learnable").splitlines()
    assert lines[0] == "two_step_v0: Choices matter, and the observation shows which."
    assert lines[-1].startswith("0 faults; ")
    assert any(line.startswith("always 1 ") for line in lines)
    assert any(line.startswith("agent_0, random ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_fault_ends_with_1() -> None:
    output = within("check", "probe_p01_v0", "--learnable", code=1)
    shown(output.splitlines()[0], "probe_p01_v0")
    assert sum(line.startswith("FAULT") for line in output.splitlines()) == 1


@pytest.mark.slow
def test_arguments_and_json() -> None:
    given = ("--arg", "shown=False", "--seconds", "120", "--json")
    found = json.loads(
        within("check", "support.planted_choices:guess", "--learnable", *given, code=1)
    )
    assert [fault["cause"] for fault in found["faults"]] == ["hidden"] * 2
    assert found["scripts"]["rows"][0]["name"] == "random"


@pytest.mark.slow
def test_third_party_environments_by_copies_of_their_states() -> None:
    """Each agent is paid for its own action: always 2 is best."""
    output = run("check", "support.faulty_envs:Walk", "--learnable", folder=TESTS)
    lines = shown(output, "pickle").splitlines()
    assert {line.split()[0] for line in lines if "random  " in line} >= {"early,", "late,"}
    assert lines[-1].startswith("0 faults; ")


def test_mistakes_are_told() -> None:
    shown(within("check", "arena_v1", "--learnable", code=2), "'arena_v0'")
    given = ("--learnable", "--seconds", "0")
    shown(within("check", "two_step_v0", *given, code=2), "--seconds 0")


@pytest.mark.slow
def test_a_check_keeps_to_its_time() -> None:
    """A hundred actions, 20 ms a step, 1,000 steps: whole episodes would take 20 s each."""
    given = ("--no-processes", "--seconds", "4", "--json")
    [result] = json.loads(run("check", "support.slow_env:Slow", *given, folder=TESTS))["results"]
    assert result["errors"] == 0
    assert result["steps"] < 1_000  # 200, and the fewest episodes of ten steps, and masks
    shown(result["not_run"]["endless"], "episode")
    assert any("10" in note.split() for note in result["notes"])
    assert {"seed", "reset", "shared-state", "copies", "mask-lies"} <= set(result["checks"])
