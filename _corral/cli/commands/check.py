"""``corral check``: test whether an environment satisfies what RL algorithms assume."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Callable
from typing import Annotated, Any

import typer

from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import arguments_of, import_from_here, is_third_party
from corral.cli.output import complain, out, print_json, progress_bar, reported

__all__ = ["add_to"]

SECONDS = 20.0
"""Default of --seconds: time to check one form of an environment, without waiting for a CPU."""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``corral``."""
    app.command()(check)


def _check_env() -> Callable[..., Any]:
    from corral.envs.conformance import check_env

    return check_env


@declared(_check_env)
@reported
def check(
    environment: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), a PettingZoo id, or module:function."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(metavar="<key=value>", help="Argument of the environment; may be repeated."),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="API of a third-party environment: parallel or aec.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds of the episodes, separated by commas.")
    ] = "0,1,2",
    limit: DeclaredNumber = ...,
    stochastic: Annotated[Declared, typer.Option("--stochastic/--deterministic")] = ...,
    processes: Declared = ...,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="<s>",
            help="Time for each form; default: 20. Time that is left goes to further seeds.",
        ),
    ] = None,
    learnable: Annotated[
        bool,
        typer.Option(
            "--learnable",
            help="Instead, test whether choices matter and whether the observation shows which "
            "action is best.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
) -> None:
    """Check an environment for faults.

    Plays whole episodes and reports every fault in masks, spaces, seeds, resets, copies and AEC
    bookkeeping. Environments of corral are checked in each form, parallel and AEC. The exit code
    is 1 for errors, and 0 for warnings only.

    With --learnable, plays scripts (lowest legal action, each constant action, reference teams) on
    the same episodes. It then forks states to find the best action, and measures how well the
    observation predicts it. The exit code is 1 if there is nothing to learn.
    """
    from corral.envs.conformance import CHECKS, check_env

    if list_checks:
        for name, description in CHECKS.items():
            lines = textwrap.wrap(description, max(20, out.width - 20))
            out.print(f"{name:<20}" + ("\n" + " " * 20).join(lines))
        return
    expect("check", environment)
    assert environment is not None  # ``expect`` raises for None
    allowed = SECONDS if seconds is None else seconds
    if learnable:
        _learnable(environment, arguments_of(arg or []), api, _seeds(seeds), allowed, as_json)
        return
    results = []
    for make in _makes(environment, arguments_of(arg or []), api):
        # Output that the environment prints is not part of the report.
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
        complain("some checks were not run; see NOT RUN")
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
    """Print whether choices matter in an environment. Exit with 1 if a fault is found."""
    from corral.adapters.sources import rules_of
    from corral.lab.doctor.choices import learnable

    if is_third_party(environment):
        import_from_here()
    with progress_bar() as progress, contextlib.redirect_stdout(sys.stderr):
        rules = rules_of(environment, arguments, api=api)
        report = learnable(rules, seed=(seeds or [0])[0], seconds=seconds, progress=progress)
    if as_json:
        print_json(report.to_json())
    else:
        out.print(report.text(out.width), soft_wrap=True)
    if report.faults:
        raise typer.Exit(1)


def _makes(environment: str, arguments: dict[str, Any], api: Any) -> list[Any]:
    """Return a maker of each form of an environment."""
    from corral.envs.arguments import known_arguments
    from corral.envs.registry import PROBES, NamedEnv, env_spec, rules_class

    if is_third_party(environment):
        import_from_here()
        make = NamedEnv(environment, arguments, api)
        make.find()  # an unknown name is a mistake of the user, not a fault of the environment
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
    makes[0]()  # an argument out of range is a mistake of the user, not a fault
    return makes


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--seeds {text}: give whole numbers, such as 0,1,2") from None
