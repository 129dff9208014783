"""``corral export``: a run as files that others play."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from corral.cli.mistakes import expect
from corral.cli.output import out, reported
from corral.cli.run_options import OwnModel

__all__ = ["export"]


@reported
def export(
    run: Annotated[
        str, typer.Argument(help="Folder of a run, or one of its checkpoints: RUN@best.")
    ],
    format: Annotated[
        str,
        typer.Option(
            help="numpy: decides with NumPy alone; onnx: a graph for each policy; weights: what "
            "the library that trained them reads."
        ),
    ] = "numpy",
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="<FOLDER>", help="Where to; default: export/FORMAT in the run."
        ),
    ] = None,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended", help="Of a run from a rule: what it recommends, team or rule."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder of --out.")
    ] = False,
    model: OwnModel = None,
) -> None:
    """Write the policies of a run to files that others play.

    docs/gateway.md says how to put them to work.
    """
    from corral.errors import RunError
    from corral.trainers.runs.run import load_run

    expect("export", run)
    loaded = load_run(run, model=model)
    found = loaded.recommendation if recommended else loaded
    if found is None:
        raise RunError(f"{run} recommends nothing: leave out --recommended")
    for path in found.export(format, out_dir, overwrite=overwrite):
        out.print(str(path), soft_wrap=True, markup=False, highlight=False)
