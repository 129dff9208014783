"""The ``corral`` command: a thin front door. The packages behind it do the work."""

from __future__ import annotations

import importlib
import inspect
import signal
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

import corral
from corral.cli.base import App
from corral.cli.commands import (
    check,
    compare,
    course,
    doctor,
    evaluate,
    games,
    loads,
    selfplay,
    teach,
    train,
    tune,
)
from corral.cli.help import TrainCommand, documented, meaning, text_of
from corral.cli.mistakes import expect, option_of
from corral.cli.output import out, plain_streams, reported

__all__ = ["app", "main"]

app = App(
    name="corral",
    help="Multi-agent environments with action masks; trainers, and tests of who plays them.",
)
for commands in (
    *(loads, train, tune, teach, evaluate, compare, selfplay, check, doctor, games, course),
):
    commands.add_to(app)


def main() -> None:
    """Entry point of the ``corral`` command."""
    plain_streams()
    try:
        app()
    except KeyboardInterrupt:  # before a command begins, while modules are imported
        sys.exit(128 + signal.SIGINT)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"corral {corral.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[  # read by ``Group.main``, which takes it after a command too
        bool, typer.Option("--traceback", help="Print the traceback of an error, too.")
    ] = False,
) -> None: ...


# --- corral envs ---------------------------------------------------------------------------------


@app.command()
@reported
def envs(
    name: Annotated[str | None, typer.Argument(help="Print this environment's manual.")] = None,
) -> None:
    """List the environments, or print the manual of one."""
    from corral.envs import ENVIRONMENTS, PROBES
    from corral.envs.registry import env_spec, rules_class

    if name is not None:
        from rich.markdown import Markdown  # and its parser: slow to import

        expect("envs", name)
        # Probes share a module: the manual of one is its class's.
        module = importlib.import_module(env_spec(name).module)
        manual = rules_class(name) if name in PROBES else module
        out.print(Markdown(inspect.getdoc(manual) or ""))
        out.print(_arguments(rules_class(name)))
        return
    table = Table("environment", "play", "what it is", box=box.SIMPLE_HEAD)
    for spec in ENVIRONMENTS.values():
        play = "at once" if spec.simultaneous else "in turns"
        table.add_row(spec.name, play, spec.summary)
    out.print(table)
    out.print(f"And probes with exact answers: {min(PROBES)} .. {max(PROBES)}.")
    out.print("corral envs NAME prints its manual: spaces, rewards, rules, arguments.")


def _arguments(rules: type) -> Table:
    """Return a table of the arguments of an environment: name, default and meaning."""
    table = Table("argument", "default", "meaning", box=box.SIMPLE_HEAD)
    modes = ", ".join(rules.render_modes)  # type: ignore[attr-defined]
    table.add_row("render_mode", "None", f"one of {modes}; or None.")
    meanings = documented(rules)
    for name, parameter in inspect.signature(rules).parameters.items():
        table.add_row(name, repr(parameter.default), meanings.get(name, ""))
    return table


# --- corral trainers -----------------------------------------------------------------------------


@app.command()
@reported
def trainers(
    name: Annotated[str | None, typer.Argument(help="Print this trainer's settings.")] = None,
) -> None:
    """List the trainers, or print the settings of one."""
    from corral.envs import ENVIRONMENTS, make_rules
    from corral.trainers.base import BUILT_IN, trainer_class
    from corral.trainers.base import trainers as every_trainer
    from corral.trainers.kinds import PRESETS, defaults_for

    if name is None:
        table = Table("trainer", "here", "what it is", box=box.SIMPLE_HEAD)
        lacking = {spec.name: extra for spec in BUILT_IN.values() if (extra := spec.lacks())}
        for trainer, summary in every_trainer().items():
            here = f"needs {lacking[trainer]}" if trainer in lacking else "yes"
            here += ", default" if trainer == TrainCommand.trainer else ""
            table.add_row(trainer, here, summary)
        out.print(table)
        if lacking:
            out.print("needs NAME: corral train says how the extra NAME is installed.")
        out.print("corral trainers NAME prints its settings: the options of corral train.")
        return
    expect("trainers", name)
    table = Table("setting", "default", "meaning", box=box.SIMPLE_HEAD)
    kind = trainer_class(name)
    unused = getattr(kind.Settings, "unused", ())
    settings = {f.name: f for f in fields(kind.Settings) if f.name not in unused}
    for field in settings.values():
        table.add_row(option_of(field.name), text_of(field.default), meaning(field))
    out.print(table)
    turns = kind.capabilities.turns
    for spec in ENVIRONMENTS.values():
        if spec.simultaneous or turns:
            defaults = defaults_for(make_rules(spec.name), kind, seed=0).given()
            _print_settings(f"In {spec.name} the default is", defaults)
    for preset, about in PRESETS.items():
        if turns or not about.in_turn:
            _print_settings(f"--preset {preset} ({about.words()})", about.of(kind))


def _print_settings(title: str, values: Mapping[str, Any]) -> None:
    if values:
        out.print(f"{title}: {', '.join(f'{key} {text_of(v)}' for key, v in values.items())}.")
