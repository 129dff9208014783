"""``corral export``: write a run's policies to files for use outside corral."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from corral.cli.mistakes import expect
from corral.cli.output import out, reported
from corral.cli.run_options import RunModel

__all__ = ["export"]


@reported
def export(
    run: Annotated[
        str, typer.Argument(help="Folder of a run, or one of its checkpoints: RUN@best.")
    ],
    format: Annotated[
        str,
        typer.Option(
            help="numpy: policies that need only NumPy; onnx: one graph per policy; weights: "
            "files for the library that trained the policies."
        ),
    ] = "numpy",
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="<FOLDER>", help="Folder; default: export/FORMAT in the run."
        ),
    ] = None,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended",
            help="For a run of --from-rule: export its recommendation, the team or the rule.",
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder of --out.")
    ] = False,
    model: RunModel = None,
) -> None:
    """Write a run's policies to files for use outside corral.

    docs/gateway.md explains how to deploy them.
    """
    from corral.errors import RunError
    from corral.trainers.runs.run import load_run

    expect("export", run)
    loaded = load_run(run, model=model)
    policies = loaded.recommendation if recommended else loaded
    if policies is None:
        raise RunError(f"{run} has no recommendation; leave out --recommended")
    for path in policies.export(format, out_dir, overwrite=overwrite):
        out.print(str(path), soft_wrap=True, markup=False, highlight=False)
