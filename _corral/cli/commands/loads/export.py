"""``corral export``: write a run's policies to files for use outside corral."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from corral.cli.mistakes import expect
from corral.cli.output import complain, out, reported
from corral.cli.run_options import RunModel
from corral.text import pasted

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
    _require_no_advice(Path(run))
    loaded = load_run(run, model=model)
    recommendation = loaded.recommendation if recommended else None
    if recommended and recommendation is None:
        raise RunError(f"{run} has no recommendation; leave out --recommended")
    for path in (recommendation or loaded).export(format, out_dir, overwrite=overwrite):
        out.print(str(path), soft_wrap=True, markup=False, highlight=False)
    if recommendation is not None:
        what = f"rule {recommendation.rule}" if recommendation.play == "rule" else "team"
        complain(f"these files hold the {what}, the recommendation of {run}")


def _require_no_advice(folder: Path) -> None:
    """Raise RunError, with the command that works, if ``folder`` holds an advice."""
    from corral.errors import RunError
    from corral.loads.serve.advised import ADVICE, TEAM, advised
    from corral.trainers.runs.run import is_run

    if not (folder / ADVICE).is_file() or is_run(folder):
        return
    verdict = advised(folder)
    team = "it has no team, so there is nothing to export"
    if verdict.team is not None:
        name = pasted(folder / TEAM)
        team = f"corral export {name} --recommended --out gateway exports the run of its team"
        if verdict.plan == "team":
            team = f"corral export {name}@best --out gateway exports the team of its verdict"
    rule = ""
    if verdict.plan == "rule":
        verb = "Its second choice" if verdict.run == "balancer" else "Its verdict"
        rule = (
            f". {verb} is the rule {verdict.rule}, which needs no export: use its "
            f"pseudo-code, or corral serve {pasted(folder)}"
        )
    raise RunError(f"{folder} is a folder of corral advise, not a run: {team}{rule}")
