"""``corral course``: lists exercises, prints tasks, judges answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.lab.course.exercises import EXERCISES
from support.command import run, within
from support.messages import shown

HEAD = "def shaped_rewards(rewards, potentials, terminated, gamma):\n"
RIGHT = HEAD + (
    "    after = potentials[1:].copy()\n"
    "    after[-1] *= 1 - terminated\n"
    "    return rewards + gamma * after - potentials[:-1]\n"
)
WRONG = HEAD + "    return rewards + potentials[1:]\n"
POLICY_RETURNS = """\
    returns = dict.fromkeys(policies.values(), 0)
    for agent, policy in policies.items():
        if agent not in frozen:
            returns[policy] += sum(step[agent] for step in rewards)
    return returns
"""
STRANGE = HEAD + "    return rewards + 99\n"
RAISES = HEAD + "    return rewards[99]\n"


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    return tmp_path / f"answer_{tmp_path.name}.py"


def test_the_list_has_every_exercise() -> None:
    text = within("course")
    assert max(map(len, text.splitlines())) <= 80
    for exercise in EXERCISES:
        shown(text, exercise.number, exercise.title, exercise.practice)


def test_the_list_names_the_extra_and_the_next_step() -> None:
    lines = within("course").splitlines()
    shown(lines[1], "needs")
    assert [line.split()[0] for line in lines if line.rstrip().endswith("torch")] == ["8", "11"]
    shown(" ".join(lines[-2:]), "corral course 1 > answer1.py", "corral course 1 answer1.py")


def test_a_right_answer_leads_to_the_next_exercise(answer: Path) -> None:
    answer.write_text("def policy_returns(rewards, policies, frozen):\n" + POLICY_RETURNS)
    shown(within("course", 7, answer), "corral course 8 > answer8.py")


def test_the_last_exercise_has_no_next_one(answer: Path) -> None:
    answer.write_text(RIGHT)
    assert "answer13" not in within("course", 12, answer)


def test_a_strange_answer_gets_the_note_of_its_test(answer: Path) -> None:
    answer.write_text(STRANGE)
    shown(within("course", 12, answer, code=1), EXERCISES[11].notes[0])


def test_a_task_is_printed_as_a_python_file() -> None:
    for exercise in EXERCISES:
        assert within("course", exercise.number).strip() == exercise.file.strip()
    shown(within("course", 4), "gae_lambda", "advantages", "corral course 4 answer4.py")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (RIGHT, 0, ["right", 3]),
        (WRONG, 1, ["wrong", "bonus-per-step", "expected", "returned", "potentials"]),
        (STRANGE, 1, ["wrong", "expected", "returned"]),
        (RAISES, 2, ["unusable", "raised", "IndexError", ":2: return rewards[99]"]),
        ("", 2, ["unusable", "no-function", "shaped_rewards"]),
    ],
)
def test_answers_are_judged(answer: Path, text: str, code: int, words: list[str]) -> None:
    answer.write_text(text)
    screen = within("course", 12, answer, code=code)
    shown(screen, 12, *words)
    assert "Traceback" not in screen


def test_a_verdict_as_json(answer: Path) -> None:
    answer.write_text(WRONG)
    values = json.loads(within("course", 12, answer, "--json", code=1))
    assert values["status"] == "wrong"
    assert [each["name"] for each in values["mistakes"]] == ["bonus-per-step"]


def test_wrong_words_end_with_2(tmp_path: Path) -> None:
    shown(within("course", 13, code=2), 13, 12)
    shown(within("course", 4, "nothing.py", code=2), "nothing.py")
    within("course", "four", code=2)


def test_the_command_in_a_process_of_its_own(answer: Path) -> None:
    answer.write_text(RAISES)
    screen = run("course", "12", answer.name, code=2, folder=answer.parent)
    shown(screen, "raised", f"{answer.name}:2")
    assert max(map(len, screen.splitlines())) <= 80
