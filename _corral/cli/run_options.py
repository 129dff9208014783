"""Options of commands that read a run: they name its third-party and custom parts again.

No command imports code only because a file of the run names it.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["RunApi", "RunArguments", "RunEnv", "RunModel", "RunTrainer"]

RunEnv = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="Third-party environment of the run, by name. Required for such runs, because corral "
        "does not import code that only a file names. Ids of PettingZoo and Gymnasium are found "
        "without it.",
    ),
]
RunArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="<key=value>",
        help="Argument of --env; may be repeated. Default: as in the run.",
    ),
]
RunApi = Annotated[
    str | None, typer.Option("--api", help="API of --env as in training: parallel or aec.")
]
RunModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="<file.py:make>",
        help="For runs with custom networks: the function that creates them, as in training.",
    ),
]
RunTrainer = Annotated[
    str | None,
    typer.Option("--trainer", help="For runs of a custom trainer: file.py:name, as in training."),
]
