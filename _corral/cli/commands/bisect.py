"""``corral bisect``: find the differences between two trainings that cost the learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

import corral
from corral.cli.declared import Declared, declared
from corral.cli.mistakes import EXAMPLES
from corral.cli.options import arguments_of, import_from_here
from corral.cli.output import check_new, out, print_json, progress_bar, reported
from corral.cli.run_options import RunApi, RunArguments, RunEnv
from corral.extras import require

__all__ = ["add_to"]

Twice = "; twice: for GOOD and for BAD."


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command()(bisect)


@declared(lambda: corral.bisect)
@reported
def bisect(
    good: Annotated[
        str | None,
        typer.Argument(
            help="The training that learns: the folder of a run, a configuration file, an "
            "algorithm record (file.py:name), a script (file.py:train) or a trainer."
        ),
    ] = None,
    bad: Annotated[
        str | None, typer.Argument(help="The training that does not learn, of the same kinds.")
    ] = None,
    steps: Declared = ...,
    seconds: Annotated[Declared, typer.Option(metavar="<s>")] = ...,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder that keeps the trained mixtures. Repeat the command to continue."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="<file.py:make>", help=f"Custom network of runs and files{Twice}"),
    ] = None,
    trainer: Annotated[
        list[str] | None,
        typer.Option(metavar="<file.py:name>", help=f"Custom trainer of runs and files{Twice}"),
    ] = None,
) -> None:
    """Find the differences between two trainings that cost the learning.

    Trains GOOD with some of BAD's settings, functions, network and other parts, each time for a
    short time and with as many seeds as the test needs. Custom code that only a run's files name
    is not executed: name it again.
    """
    if good is None or bad is None:
        raise ValueError(f"name two trainings, as in: {EXAMPLES['bisect']}")
    require("torch", extra="mappo", purpose="train mixtures")
    import_from_here()
    if out_dir is not None:
        check_new(out_dir, folder=True)
    with progress_bar() as show:
        result = corral.bisect(
            good,
            bad,
            env,
            env_kwargs=arguments_of(arg) if arg else None,
            api=cast(Any, api),
            trainer=_paired("--trainer", trainer),
            model=_paired("--model", model),
            steps=steps,
            seconds=seconds,
            out=out_dir,
            progress=show,
        )
    if out_dir is not None:
        result.write(out_dir)
    if as_json:
        print_json(result.to_json())
    else:
        out.print(result.text(out.width), soft_wrap=True)


def _paired(option: str, values: list[str] | None) -> Any:
    """Return a value of both sides, or a pair of values. Raises ValueError for more."""
    if values and len(values) > 2:
        raise ValueError(f"{option}: {len(values)} values; give one, or two: for GOOD and for BAD")
    return None if not values else values[0] if len(values) == 1 else (values[0], values[1])
