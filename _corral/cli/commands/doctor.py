"""``corral doctor``: why a run does not learn, and what a learner of any framework gets wrong."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from corral.cli.mistakes import EXAMPLES, expect
from corral.cli.options import arguments_of, import_from_here, listed, whole
from corral.cli.output import out, print_json, progress_bar, reported
from corral.cli.run_options import OwnApi, OwnArguments, OwnEnv, OwnModel, OwnTrainer
from corral.extras import require

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``corral``."""
    app.command()(doctor)


@reported
def doctor(
    run: Annotated[
        str | None,
        typer.Argument(help="The folder of a run; RUN@best and RUN@N are its checkpoints."),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            metavar="<file.py:learn>",
            help="Examine a learner of any framework on the probes instead: a function "
            "learn(make_env, steps, seed), or a trainer of corral by its name.",
        ),
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="<P4,P7>", help="Of --learner: probes, with commas; default: P1 to P14."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Of --learner: multiplies the env steps of the probes; default: 1."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Of --learner: seconds after which a probe counts as failed; default: none."
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Compare values with the truth, by forks.")
    ] = True,
    clone: Annotated[
        bool,
        typer.Option(
            "--clone/--no-clone", help="Teach the network to play as the best reference team."
        ),
    ] = True,
    seed: Annotated[int, whole("Seed of what is drawn for it.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found as JSON.")] = (
        False
    ),
    env: OwnEnv = None,
    arg: OwnArguments = None,
    api: OwnApi = None,
    model: OwnModel = None,
    trainer: OwnTrainer = None,
) -> None:
    """Say why it does not learn, the most likely cause first.

    Watches a short stretch of the run's own training, reads its progress, and compares what it
    believes with the truth. The run's folder stays as it is. With --learner it examines a learner
    of any framework on probes, whose answers are known exactly.

    Ends with 1 where something is wrong, with 0 where nothing was found.
    """
    import_from_here()
    if learner is None:
        for option, value in (("--probes", probes), ("--budget", budget), ("--limit", limit)):
            if value is not None:
                raise ValueError(f"{option} belongs to --learner: corral doctor --learner ...")
        if run is None:
            raise ValueError(
                f"name the folder of a run, as in: {EXAMPLES['doctor']}; or a learner: corral "
                "doctor --learner file.py:learn"
            )
        expect("doctor", run)
        given = {"env_kwargs": arguments_of(arg) if arg else None, "api": api, "trainer": trainer}
        plan: dict[str, Any] = {"audited": audit, "cloned": clone, "seed": seed}
        healthy = _diagnose(run, env, {**given, **plan, "model": model}, as_json)
    else:
        if run is not None:
            raise ValueError(
                f"give {run} or --learner {learner}, not both: each is looked at alone"
            )
        of_runs: dict[str, Any] = {
            "--env": env,
            "--arg": arg,
            "--api": api,
            "--model": model,
            "--trainer": trainer,
        }
        for option, told in of_runs.items():
            if told:
                raise ValueError(f"{option} belongs to a run; leave it out with --learner")
        plan = {"seed": seed, "budget": 1.0 if budget is None else budget, "limit": limit}
        healthy = _examine(learner, None if probes is None else listed(probes), plan, as_json)
    if not healthy:
        raise typer.Exit(1)


def _diagnose(run: str, env: str | None, options: dict[str, Any], as_json: bool) -> bool:
    from corral.errors import RunError

    require("torch", extra="mappo", purpose="watch how a run learns")
    from corral.lab.doctor.diagnose import diagnose
    from corral.lab.doctor.text import diagnosis_lines

    # What an environment prints is no part of the report.
    with progress_bar() as show, contextlib.redirect_stdout(sys.stderr):
        found = diagnose(Path(run), env, **options, progress=show)
    if as_json:
        print_json(found.to_json())
    else:
        for line, style in diagnosis_lines(found, out.width):
            out.print(line, style=style or None, soft_wrap=True)
    if not found.looked_at:
        raise RunError(f"{run}: nothing of it could be looked at, see above")
    return found.healthy


def _examine(
    learner: str, probes: list[str] | None, options: dict[str, Any], as_json: bool
) -> bool:
    from corral.lab.doctor.examination import examination

    with progress_bar() as show, contextlib.redirect_stdout(sys.stderr):
        found = examination(learner, probes, **options, progress=show)
    if as_json:
        print_json(found.to_json())
    else:
        out.print(found.text(out.width, learner=learner), soft_wrap=True)
    return bool(found.passed)
