"""``corral check``: whether an environment, ours or anybody's, keeps what learners rely on."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from typing import Annotated, Any

import typer

from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import arguments_of, import_from_here, is_third_party
from corral.cli.output import complain, out, print_json, progress_bar, reported
from corral.envs.conformance import CHECKS, check_env

__all__ = ["add_to"]

SECONDS = 20.0
"""Time that a check of one form of an environment may take, unless --seconds says otherwise."""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``corral``."""
    app.command()(check)


@declared(lambda: check_env)
@reported
def check(
    environment: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), an id of PettingZoo, or module:function "
            "of any other."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(metavar="<key=value>", help="An argument of it; may be repeated."),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="parallel or aec, for one of others that has both.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the episodes, with commas.")] = "0,1,2",
    limit: DeclaredNumber = ...,
    stochastic: Annotated[Declared, typer.Option("--stochastic/--deterministic")] = ...,
    processes: Declared = ...,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="<s>",
            help="About how long it may take for each form; default: 20. What was left out is "
            "said.",
        ),
    ] = None,
    learnable: Annotated[
        bool,
        typer.Option(
            "--learnable",
            help="Instead: do choices matter, and does the observation show which is best?",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks, and end.")] = False,
) -> None:
    """Check an environment for faults.

    Plays whole episodes, and reports every fault in masks, spaces, seeds, resets, copies and the
    accounting of AEC. Environments of corral are checked in each of their forms, parallel and AEC.
    Ends with 1 where there are errors, with 0 where there are only warnings.

    With --learnable it plays scripts (the lowest legal action, each constant one, reference teams)
    on common episodes, forks moments of play to see which action is best there, and asks how much
    of that the observation shows. Ends with 1 where there is nothing to learn.
    """
    if list_checks:
        for name, kept in CHECKS.items():
            lines = textwrap.wrap(kept, max(20, out.width - 20))
            out.print(f"{name:<20}" + ("\n" + " " * 20).join(lines))
        return
    expect("check", environment)
    assert environment is not None  # else ``expect`` has said so
    allowed = SECONDS if seconds is None else seconds
    if learnable:
        _learnable(environment, arguments_of(arg or []), api, _seeds(seeds), allowed, as_json)
        return
    results = []
    for make in _makes(environment, arguments_of(arg or []), api):
        # What an environment prints is no part of the report.
        with progress_bar() as progress, contextlib.redirect_stdout(sys.stderr):
            result = check_env(
                make,
                seeds=_seeds(seeds),
                limit=limit,
                stochastic=stochastic,
                processes=processes,
                seconds=allowed,
                progress=progress,
            )
        results.append(result)
        if not as_json:
            if len(results) > 1:
                out.print()
            out.print(result.text(out.width), soft_wrap=True)
    if as_json:
        print_json({"results": [result.to_json() for result in results]})
    if any(result.not_run for result in results) and processes:
        complain("not all checks were run, see NOT RUN")
    if any(result.errors for result in results):
        raise typer.Exit(1)


def _learnable(
    environment: str,
    arguments: dict[str, Any],
    api: Any,
    seeds: list[int],
    seconds: float,
    as_json: bool,
) -> None:
    """Say whether choices matter in an environment; exit with 1 where there are faults."""
    from corral.adapters.sources import rules_of
    from corral.lab.doctor.choices import learnable

    if is_third_party(environment):
        import_from_here()
    with progress_bar() as progress, contextlib.redirect_stdout(sys.stderr):
        rules = rules_of(environment, arguments, api=api)
        found = learnable(rules, seed=(seeds or [0])[0], seconds=seconds, progress=progress)
    if as_json:
        print_json(found.to_json())
    else:
        out.print(found.text(out.width), soft_wrap=True)
    if found.faults:
        raise typer.Exit(1)


def _makes(environment: str, arguments: dict[str, Any], api: Any) -> list[Any]:
    """Return a maker for each form of an environment."""
    from corral.envs.arguments import known_arguments
    from corral.envs.registry import PROBES, NamedEnv, env_spec, rules_class

    if is_third_party(environment):
        import_from_here()
        make = NamedEnv(environment, arguments, api)
        make.find()  # a name that does not exist is the user's mistake, not the environment's
        return [make]
    spec = env_spec(environment)
    try:
        known_arguments(rules_class(environment), arguments)
    except TypeError as error:
        raise ValueError(f"{environment}: {error}") from None
    if spec.name in PROBES:
        arguments = {"name": spec.name, **arguments}
    kinds = ["parallel_env", "env"] if spec.simultaneous else ["env"]
    makes = [NamedEnv(f"{spec.module}:{kind}", arguments) for kind in kinds]
    makes[0]()  # an argument out of range is the user's mistake, not the environment's
    return makes


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--seeds {text}: give whole numbers, such as 0,1,2") from None
