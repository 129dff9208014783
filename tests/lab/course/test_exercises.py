"""Every solution is right, every wrong answer is called by its mistake, and no other."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.lab.course.exercise import Exercise, Probe
from corral.lab.course.exercises import EXERCISES
from corral.lab.course.judging import equal, judge, known_mistakes, outputs_of
from corral.named import named_object
from support import forked

SECOND_ANSWERS = {
    2: ["wrong-axis-2", "wrong-axis-3"],
    8: ["layers-not-registered-2", "probabilities-not-logits-2"],
    11: ["reference-2"],
    12: ["without-gamma-2", "last-step-not-shaped-2"],
}
FOLDER, ROOT = Path(__file__).parent, Path(__file__).parents[3]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs the extra mappo"
)


def cases(many: Callable[[Exercise], list[Any]]) -> list[Any]:
    """Return the parameters of all exercises; those that need torch are skipped without it."""
    return [
        pytest.param(exercise, each, marks=[needs_torch] * bool(exercise.extra))
        for exercise in EXERCISES
        for each in many(exercise)
    ]


def ids(value: Any) -> str:
    return f"{value.number:02}" if isinstance(value, Exercise) else str(value)


def solution_of(exercise: Exercise) -> Path:
    return FOLDER / "solutions" / f"exercise_{exercise.number:02}.py"


def wrong_answer(exercise: Exercise, name: str) -> Any:
    """Return the user's answer with a mistake; ``reversed_`` stands for a builtin's name."""
    file = FOLDER / "mistakes" / f"exercise_{exercise.number:02}.py"
    function = name.replace("-", "_")
    return named_object(f"{file}:{function}{'_' * (function == 'reversed')}", "answer")


def names(exercise: Exercise) -> list[str]:
    return [mistake.name for mistake in exercise.mistakes]


def answers(exercise: Exercise) -> list[str]:
    """Return the names of the wrong answers: a mistake, and a number from its second answer on."""
    return names(exercise) + SECOND_ANSWERS.get(exercise.number, [])


@pytest.mark.parametrize(("exercise", "file"), cases(lambda e: [solution_of(e)]), ids=ids)
def test_solutions_are_right(exercise: Exercise, file: Path) -> None:
    verdict = judge(exercise.number, file)
    assert verdict.status == "right", verdict
    assert len(verdict.outcomes) == len(exercise.probes())
    assert verdict.mistakes == ()


@pytest.mark.parametrize(("exercise", "name"), cases(answers), ids=ids)
def test_wrong_answers_are_called_by_their_mistake(exercise: Exercise, name: str) -> None:
    verdict = judge(exercise.number, wrong_answer(exercise, name))
    assert verdict.status == "wrong", verdict
    assert [mistake.name for mistake in verdict.mistakes] == [re.sub(r"-\d$", "", name)]
    assert not verdict.partly


@pytest.mark.parametrize(("exercise", "name"), cases(names), ids=ids)
def test_mistakes_differ_from_the_solution_and_from_each_other(
    exercise: Exercise, name: str
) -> None:
    """All pairs: each way of a mistake is explained in full by that mistake alone."""
    expected = outputs_of(exercise, exercise.solution)
    (mistake,) = [each for each in exercise.mistakes if each.name == name]
    for way in mistake.ways:
        returned = outputs_of(exercise, way)
        assert not all(equal(a, b) for a, b in zip(expected, returned, strict=True))
        assert known_mistakes(exercise, expected, returned)[0] == (mistake,)


def test_the_course_is_complete() -> None:
    assert [exercise.number for exercise in EXERCISES] == list(range(1, 13))
    assert len({exercise.title for exercise in EXERCISES}) == 12
    assert min(len(exercise.mistakes) for exercise in EXERCISES) >= 2
    assert sum(len(exercise.mistakes) for exercise in EXERCISES) >= 24


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_each_probe_has_a_note_or_none_has(exercise: Exercise) -> None:
    assert len(exercise.notes) in {0, len(exercise.probes())}
    assert bool(exercise.notes) or exercise.number not in {1, 3, 4, 12}


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_a_task_is_a_python_file_that_defines_the_answer(exercise: Exercise) -> None:
    tree = ast.parse(exercise.file)
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert exercise.function in defined
    assert max(map(len, exercise.file.splitlines())) <= 80
    assert str(exercise.number) in (ast.get_docstring(tree) or "").splitlines()[0]


@needs_torch
@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_a_starter_alone_is_not_right(exercise: Exercise, tmp_path: Path) -> None:
    file = tmp_path / f"starter_{exercise.number}.py"
    file.write_text(exercise.file)
    assert judge(exercise.number, file).status != "right"


@needs_torch
@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.ours], ids=ids)
def test_functions_of_corral_that_are_named_exist(exercise: Exercise) -> None:
    module, _, name = exercise.ours.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


@needs_torch
@pytest.mark.parametrize("number", [2, 4, 5, 6])
def test_solutions_equal_functions_of_corral(number: int) -> None:
    """The solutions need no torch."""
    exercise = EXERCISES[number - 1]
    expected = outputs_of(exercise, lambda p: of_corral(number, p))
    returned = outputs_of(exercise, exercise.solution)
    assert all(equal(a, b) for a, b in zip(expected, returned, strict=True))


def of_corral(number: int, p: Probe) -> Any:
    import torch

    from corral.adapters.masked_distribution import MaskedCategorical
    from corral.trainers.on_policy import maths

    tensors = {name: torch.as_tensor(value) for name, value in p.items()}
    if number == 2:
        return MaskedCategorical(tensors["logits"], tensors["mask"] != 0).probs
    if number == 5:
        log_ratio = tensors["log_prob"] - tensors["old_log_prob"]
        return maths.clipped_surrogate(log_ratio, tensors["advantage"], p["clip_range"])
    if number == 6:
        result = np.zeros(p["advantage"].shape)
        result[p["acting"]] = maths.normalized(p["advantage"][p["acting"]])
        return result
    return maths.gae(
        reward=p["rewards"][:, None],
        value=p["values"][:-1, None],
        acted=np.ones((len(p["rewards"]), 1), dtype=bool),
        ended=p["ended"][:, None],
        final_obs_value=p["end_values"][:, None],
        bootstrap_value=p["values"][-1:],
        gamma=p["gamma"],
        gae_lambda=p["gae_lambda"],
    )[:, 0]


def table_of(page: str) -> list[list[str]]:
    """Return the cells of the rows that begin with a number."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [row for row in rows if row[0].isdigit()]


def test_the_page_lists_the_exercises() -> None:
    rows = table_of("course.md")
    assert [row[:3] for row in rows] == [[str(e.number), e.title, e.practice] for e in EXERCISES]
    for row, exercise in zip(rows, EXERCISES, strict=True):
        assert f"({exercise.page})" in row[4]
        page, _, section = exercise.page.partition("#")
        text = (ROOT / "docs" / page).read_text(encoding="utf-8").lower().replace(" ", "-")
        assert f"##-{section}" in text


def test_the_tutorial_names_the_exercises() -> None:
    page = " ".join((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").lower().split())
    assert [e.title for e in EXERCISES if e.title.lower() not in page] == []


def test_the_callback_of_a_real_training_writes_its_column(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    import corral

    made = named_object(f"{solution_of(EXERCISES[8])}:NewFields", "answer")
    run = corral.train(
        "arena_v0",
        env_kwargs={"max_cycles": 24},
        steps=256,
        num_envs=4,
        n_steps=16,
        callbacks=[made()],
        progress=False,
        out=tmp_path / "run",
    )
    column = run.progress["new_fields"]
    assert column.isna().tolist() == [True, False, False, True]
    assert np.all(column.dropna() > 0)


PLAIN, WITH_TORCH = (
    next(exercise for exercise in EXERCISES if bool(exercise.extra) is torch)
    for torch in (False, True)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exercise", "file"),
    [case for case in cases(lambda e: [solution_of(e)]) if case.values[0] in (PLAIN, WITH_TORCH)],
    ids=ids,
)
def test_judging_takes_20_seconds_at_most(exercise: Exercise, file: Path) -> None:
    """In a process of its own that has imported nothing, where imports take most of the time."""
    import subprocess
    import sys

    words = [sys.executable, "-m", "corral", "course", str(exercise.number), str(file)]
    before = os.times()
    done = subprocess.run(words, env=forked.ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    used = [os.times().children_user - before.children_user]
    used.append(os.times().children_system - before.children_system)
    assert sum(used) <= 20  # of the processor, which others may keep busy
