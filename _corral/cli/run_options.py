"""Options of commands that read a run: they name again what is not corral's own.

Nothing is imported because a file names it.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["OwnApi", "OwnArguments", "OwnEnv", "OwnModel", "OwnTrainer"]

OwnEnv = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="For runs in environments of others: what was trained in, by name; nothing is "
        "imported because a file names it.",
    ),
]
OwnArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="<key=value>",
        help="An argument of --env; may be repeated. Default: the run's.",
    ),
]
OwnApi = Annotated[str | None, typer.Option("--api", help="parallel or aec, as in training.")]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="<file.py:make>",
        help="For runs with networks of your own: the function that makes them, as in training.",
    ),
]
OwnTrainer = Annotated[
    str | None,
    typer.Option(
        "--trainer", help="file.py:name, for runs by a trainer of your own, as in training."
    ),
]
