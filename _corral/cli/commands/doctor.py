"""``corral doctor``: judge whether a run learns, or test a learner of any framework."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from corral.cli.mistakes import EXAMPLES, expect
from corral.cli.options import arguments_of, import_from_here, listed, whole
from corral.cli.output import out, print_json, progress_bar, reported
from corral.cli.run_options import RunApi, RunArguments, RunEnv, RunModel, RunTrainer
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
            help="Examine a learner on the probes instead: a function learn(make_env, steps, "
            "seed) of any framework, or the name of a corral trainer.",
        ),
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="<P4,P7>",
            help="With --learner: probes, separated by commas; default: P1 to P14.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="With --learner: factor on the env steps of the probes; default: 1."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="With --learner: seconds after which a probe counts as failed; default: none."
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit/--no-audit", help="Compare value estimates with true returns, by forking."
        ),
    ] = True,
    clone: Annotated[
        bool,
        typer.Option(
            "--clone/--no-clone", help="Test if the network can imitate the best reference team."
        ),
    ] = True,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="If the run does not learn, check its environment, and test if choices matter.",
        ),
    ] = True,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="<stock>",
            help="Instead, train mixtures of the run's parts and corral's own (stock), and name "
            "the part that costs the learning.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="<s>",
            help="Time of the diagnosis of a run; default: 45, with --against 300. With more, it "
            "examines more.",
        ),
    ] = None,
    seed: Annotated[int, whole("Seed of the examination.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = (False),
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: RunModel = None,
    trainer: RunTrainer = None,
) -> None:
    """State whether a run learns, and if not, the most likely causes.

    Plays the run, its untrained policies, random play and reference teams on the same seeds.
    Repeats a short part of the run's training, reads its progress, and compares its value
    estimates with true returns. The run's folder is not changed. With --learner, it examines a
    learner of any framework on probes with exactly known answers. With --against stock, it trains
    mixtures of the run's algorithm, network, settings and wrappers with corral's own.

    The exit code is 0 if the run learns (with --learner: passes; with --against: no part costs the
    learning), else 1.
    """
    import_from_here()
    if learner is None:
        for option, value in (("--probes", probes), ("--budget", budget), ("--limit", limit)):
            if value is not None:
                raise ValueError(f"{option} requires --learner: corral doctor --learner ...")
        if run is None:
            raise ValueError(
                f"name the folder of a run, as in: {EXAMPLES['doctor']}; or name a learner: "
                "corral doctor --learner file.py:learn"
            )
        expect("doctor", run)
        run_options = {
            "env_kwargs": arguments_of(arg) if arg else None,
            "api": api,
            "trainer": trainer,
        }
        if against is not None:
            if against != "stock":
                raise ValueError(
                    f"--against {against}: give stock, corral's own parts. Two trainings of your "
                    "own: corral bisect GOOD BAD"
                )
            options = {**run_options, "model": model}
            if _harmful_part(run, env, options, seconds, as_json):
                raise typer.Exit(1)
            return
        plan: dict[str, Any] = {
            **{"audited": audit, "cloned": clone, "checked": check},
            "seed": seed,
        }
        if seconds is not None:
            plan["seconds"] = seconds
        healthy = _diagnose(run, env, {**run_options, **plan, "model": model}, as_json)
    else:
        if run is not None:
            raise ValueError(
                f"give {run} or --learner {learner}, not both: they are examined separately"
            )
        options_of_runs: dict[str, Any] = {
            "--against": against,
            "--seconds": seconds,
            "--env": env,
            "--arg": arg,
            "--api": api,
            "--model": model,
            "--trainer": trainer,
        }
        for option, value in options_of_runs.items():
            if value:
                raise ValueError(f"{option} applies to runs only; leave it out with --learner")
        plan = {"seed": seed, "budget": 1.0 if budget is None else budget, "limit": limit}
        healthy = _examine(learner, None if probes is None else listed(probes), plan, as_json)
    if not healthy:
        raise typer.Exit(1)


def _diagnose(run: str, env: str | None, options: dict[str, Any], as_json: bool) -> bool:
    from corral.errors import RunError

    require("torch", extra="mappo", purpose="examine a run")
    from corral.lab.doctor.diagnose import diagnose
    from corral.lab.doctor.text import diagnosis_lines

    # Output that the environment prints is not part of the report.
    with progress_bar() as show, contextlib.redirect_stdout(sys.stderr):
        report = diagnose(Path(run), env, **options, progress=show)
    if as_json:
        print_json(report.to_json())
    else:
        for line, style in diagnosis_lines(report, out.width):
            out.print(line, style=style or None, soft_wrap=True)
    if not report.looked_at:
        raise RunError(f"{run}: nothing could be examined, see above")
    return report.healthy


def _harmful_part(
    run: str, env: str | None, options: dict[str, Any], seconds: float | None, as_json: bool
) -> bool:
    require("torch", extra="mappo", purpose="train mixtures")
    from corral.lab.bisect.driver import SECONDS
    from corral.lab.bisect.stock import against

    with progress_bar() as show, contextlib.redirect_stdout(sys.stderr):
        result = against(run, env, **options, seconds=seconds or SECONDS, progress=show)
    if as_json:
        print_json(result.to_json())
    else:
        out.print(result.text(out.width), soft_wrap=True)
    return result.verdict == "found"


def _examine(
    learner: str, probes: list[str] | None, options: dict[str, Any], as_json: bool
) -> bool:
    from corral.lab.doctor.examination import examination

    with progress_bar() as show, contextlib.redirect_stdout(sys.stderr):
        report = examination(learner, probes, **options, progress=show)
    if as_json:
        print_json(report.to_json())
    else:
        out.print(report.text(out.width, learner=learner), soft_wrap=True)
    return bool(report.passed)
