"""``corral check``: the report at 80 columns, exit status, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.envs.conformance.report import CHECKS
from support import forked
from support.command import run
from support.messages import shown

TESTS = Path(__file__).parents[1]
QUICK = ("--no-processes", "--seeds", "0,1", "--seconds", "0.5")


def check(*arguments: str, code: int = 0, columns: str = "80") -> str:
    """Run in the folder of the tests, where the module ``support.faulty_envs`` is found."""
    return run("check", *arguments, code=code, folder=TESTS, columns=columns)


@pytest.mark.slow  # checks whole games, twice
def test_one_of_ours_is_checked_in_both_forms() -> None:
    output = check("two_step_v0", "--seconds", "1")
    shown(output, "two_step_v0 (parallel)", "two_step_v0 (AEC)")
    assert output.count("0 errors, 0 warnings; ") == 2
    shown(output, 23)
    assert "NOT" not in output  # run
    assert max(map(len, output.splitlines())) <= 80


def test_the_report_of_a_fault_word_for_word() -> None:
    output = check("support.faulty_envs:NanReward", *QUICK, code=1)
    head, _, rest = output.partition("\n")
    assert head.startswith("walk_v0 (parallel): ")
    assert (
        rest
        == """
ERROR reward: early, seed 0, step 3 (4 times, also late)
  seen     a reward of nan
  expected a finite number
  advice   look for a division by 0, a log of 0, or an array in place of a
           number

NOT RUN
  processes, hashing: processes=False

1 error, 0 warnings; 17 checks run, 2 NOT RUN (see above)
"""
    )


@pytest.mark.parametrize("columns", ["60", "100"])
def test_the_report_fits_the_terminal(columns: str) -> None:
    output = check("support.faulty_envs:AllowsWhatRaises", *QUICK, code=1, columns=columns)
    assert "mask-lies" in output
    assert max(map(len, output.splitlines())) <= int(columns)


def test_warnings_alone_end_with_0() -> None:
    output = check("support.faulty_envs:InfoGrows", *QUICK)
    shown(output, "WARNING", "info", "early")
    assert output.count("WARNING") == 1
    assert "ERROR" not in output


def test_json_is_all_there_is_on_stdout() -> None:
    words = ["-m", "corral", "check", "support.faulty_envs:Prints", "--json", *QUICK]
    done = forked.run(words, folder=TESTS)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["errors"], result["warnings"], result["findings"]) == (0, 0, [])
    assert result["seeds"] == [0, 1]
    assert set(result["checks"]) | set(result["not_run"]) <= set(CHECKS)
    shown(done.stderr, "a step")


def test_arguments_reach_the_environment() -> None:
    output = check("arena_v0", "--arg", "width=2", "--arg", "max_cycles=5", *QUICK)
    shown(output, "NOT")
    steps = [int(word.split()[0].replace(",", "")) for word in output.split("episodes, ")[1:]]
    episodes = [int(word.split()[-1].replace(",", "")) for word in output.split(" episodes, ")[:-1]]
    assert len(steps) == len(episodes) == 2
    for count, played in zip(steps, episodes, strict=True):
        assert 0 < count < 12 * played  # by default an episode has 100 steps


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("dfaas_v1",), "did you mean 'dfaas_v0'"),
        (("no_such_module:env",), "no module named 'no_such_module'"),
        (("support.faulty_envs:Wlak",), "named 'Wlak'; did you mean 'Walk'"),
        (("support.faulty_envs:__doc__",), "support.faulty_envs:__doc__ is a str"),
        (("arena_v0", "--arg", "widht=3"), "did you mean 'width'"),
        (("arena_v0", "--arg", "width=0"), "give a whole number, 1 or more"),
        (("arena_v0", "--arg", "width"), "give key=value"),
        (("arena_v0", "--seeds", "a"), "give whole numbers"),
        ((), "name an environment"),
    ],
)
def test_mistakes_of_the_user_are_told_in_a_line(arguments: tuple[str, ...], told: str) -> None:
    output = check(*arguments, code=2)
    assert output.startswith("corral: ")
    assert told in output


def test_the_checks_are_listed() -> None:
    lines = check("--list").splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == list(CHECKS)
    assert max(map(len, lines)) <= 80
