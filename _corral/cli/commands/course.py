"""``corral course``: exercises for the tutorial, and a judge of answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from corral.cli.output import out, print_json, reported

if TYPE_CHECKING:
    from corral.lab.course.judging import Verdict

__all__ = ["add_to"]

EXIT = {"right": 0, "wrong": 1, "unusable": 2}
STYLE = {"right": "green", "wrong": "red", "unusable": "yellow"}


def add_to(app: typer.Typer) -> None:
    """Add the command to ``corral``."""
    app.command()(course)


@reported
def course(
    exercise: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Print the task of this exercise.")
    ] = None,
    answer: Annotated[
        Path | None, typer.Argument(metavar="FILE.py", help="Check the answer in this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """List exercises, print a task, or check an answer.

    A task is a Python file with a starter. Save it with: corral course 4 > answer4.py

    Hidden tests check the answer. Ends with 0 for a right answer, with 1 for a wrong one, and with
    2 for an unusable one: it raises, or returns another type or shape, or takes too long.
    """
    from corral.lab.course.judging import exercise_of, judge

    if exercise is None:
        _list_exercises()
    elif answer is None:
        out.print(exercise_of(exercise).file.rstrip(), soft_wrap=True)
    else:
        verdict = judge(exercise, answer)
        if as_json:
            print_json(verdict.to_json())
        else:
            _print_verdict(verdict, answer)
        raise typer.Exit(EXIT[verdict.status])


def _list_exercises() -> None:
    from corral.lab.course.exercises import EXERCISES

    table = Table("", "exercise", "practice", "needs", box=box.SIMPLE_HEAD)
    for each in EXERCISES:
        table.add_row(str(each.number), each.title, each.practice, "torch" if each.extra else "")
    out.print(table)
    out.print("Begin with corral course 1 > answer1.py and write your answer into the file.")
    out.print("Then check it: corral course 1 answer1.py")


def _print_verdict(verdict: Verdict, answer: Path) -> None:
    """Print the status, the known mistakes and the first test with a wrong output."""
    from corral.lab.course.exercises import EXERCISES
    from corral.lab.course.judging import exercise_of

    exercise, probes = exercise_of(verdict.number), len(verdict.outcomes)
    head = Text(f"Exercise {verdict.number}, {exercise.title.lower()}: ")
    head.append(verdict.status, style=f"bold {STYLE[verdict.status]}")
    out.print(head)
    if verdict.finding is not None:
        found = verdict.finding
        out.print(f"\n{found.name}: {found.message}", soft_wrap=True)
        if found.line is not None:
            out.print(f"{answer}:{found.line}: {found.code}", soft_wrap=True)
        return
    right = sum(each.right for each in verdict.outcomes)
    out.print(f"{right} of {probes} tests have the expected output.")
    if verdict.status == "right":
        if exercise.ours:
            out.print(f"corral has it as {exercise.ours}.")
        if (following := verdict.number + 1) <= len(EXERCISES):
            out.print(f"Next: corral course {following} > answer{following}.py")
        return
    relation = "It partly resembles" if verdict.partly else "It resembles"
    for mistake in verdict.mistakes:
        out.print(f"\n{relation} the known mistake {mistake.name}.", style="bold")
        out.print(f"{mistake.explanation}\nHint: {mistake.hint}")
    if verdict.partly:
        out.print("Other outputs are wrong, too.")
    if not verdict.mistakes:
        out.print("\nIt resembles no known mistake.", style="bold")
    first = next(each for each in verdict.outcomes if not each.right)
    out.print(f"\nThe first wrong output is that of test {verdict.outcomes.index(first) + 1}:")
    if first.note:
        out.print(first.note)
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in first.given.items():
        table.add_row(name, value)
    table.add_row("expected", first.expected, style="green")
    table.add_row("returned", first.returned, style="red")
    out.print(table)
