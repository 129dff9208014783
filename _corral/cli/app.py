"""The ``corral`` command. The code behind each command is imported when the command runs."""

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
from corral.cli.base import QUIET, App
from corral.cli.commands import (
    bisect,
    check,
    compare,
    course,
    doctor,
    evaluate,
    games,
    loads,
    runs,
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
    help="Multi-agent environments with action masks: train teams, evaluate and compare them.",
    add_completion=True,
)
for commands in (
    *(loads, train, tune, teach, runs, evaluate, compare, selfplay, check, doctor, bisect),
    *(games, course),
):
    commands.add_to(app)


def main() -> None:
    """Entry point of the ``corral`` command."""
    plain_streams()
    try:
        app()
    except KeyboardInterrupt:  # during the imports, before a command starts
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
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[  # read by ``Group.main``, which also accepts it after a command
        bool, typer.Option("--traceback", help="Also print the traceback of an error.")
    ] = False,
    quiet: Annotated[  # read by ``Group.main``, too
        bool,
        typer.Option(*QUIET, help="Print no progress and no setup; also accepted after a command."),
    ] = False,
) -> None: ...


# --- corral envs ---------------------------------------------------------------------------------


@app.command()
@reported
def envs(
    name: Annotated[str | None, typer.Argument(help="Environment to print the manual of.")] = None,
) -> None:
    """List the environments, or print the manual of one environment."""
    from corral.envs import ENVIRONMENTS, PROBES
    from corral.envs.registry import env_spec, rules_class

    if name is not None:
        from rich.markdown import Markdown  # slow to import

        expect("envs", name)
        # All probes share one module, so a probe's manual is the docstring of its class.
        module = importlib.import_module(env_spec(name).module)
        manual = rules_class(name) if name in PROBES else module
        out.print(Markdown(inspect.getdoc(manual) or ""))
        out.print(_arguments(rules_class(name)))
        return
    table = Table("environment", "play", "description", box=box.SIMPLE_HEAD)
    for spec in ENVIRONMENTS.values():
        play = "simultaneous" if spec.simultaneous else "in turns"
        table.add_row(spec.name, play, spec.summary)
    out.print(table)
    out.print(f"Probes with exactly known answers: {min(PROBES)} .. {max(PROBES)}.")
    out.print("corral envs NAME prints a manual: spaces, rewards, rules, arguments.")


def _arguments(rules: type) -> Table:
    """Return a table of an environment's arguments: name, default and meaning."""
    table = Table("argument", "default", "meaning", box=box.SIMPLE_HEAD)
    modes = ", ".join(rules.render_modes)  # type: ignore[attr-defined]
    table.add_row("render_mode", "None", f"{modes}, or None.")
    meanings = documented(rules)
    for name, parameter in inspect.signature(rules).parameters.items():
        table.add_row(name, repr(parameter.default), meanings.get(name, ""))
    return table


# --- corral trainers -----------------------------------------------------------------------------


@app.command()
@reported
def trainers(
    name: Annotated[str | None, typer.Argument(help="Trainer to print the settings of.")] = None,
) -> None:
    """List the trainers, or print the settings of one trainer."""
    from corral.envs import ENVIRONMENTS, make_rules
    from corral.trainers.base import BUILT_IN, trainer_class
    from corral.trainers.base import trainers as every_trainer
    from corral.trainers.kinds import PRESETS, defaults_for

    if name is None:
        table = Table("trainer", "installed", "description", box=box.SIMPLE_HEAD)
        missing_extras = {spec.name: extra for spec in BUILT_IN.values() if (extra := spec.lacks())}
        for trainer, summary in every_trainer().items():
            installed = f"needs {missing_extras[trainer]}" if trainer in missing_extras else "yes"
            installed += ", default" if trainer == TrainCommand.trainer else ""
            table.add_row(trainer, installed, summary)
        out.print(table)
        if missing_extras:
            out.print("needs NAME: corral train prints how to install the extra NAME.")
        out.print("corral trainers NAME prints a trainer's settings: options of corral train.")
        return
    expect("trainers", name)
    table = Table("setting", "default", "meaning", box=box.SIMPLE_HEAD)
    cls = trainer_class(name)
    unused = getattr(cls.Settings, "unused", ())
    settings = {f.name: f for f in fields(cls.Settings) if f.name not in unused}
    for field in settings.values():
        table.add_row(option_of(field.name), text_of(field.default), meaning(field))
    out.print(table)
    turns = cls.capabilities.turns
    for spec in ENVIRONMENTS.values():
        if spec.simultaneous or turns:
            defaults = defaults_for(make_rules(spec.name), cls, seed=0).given()
            _print_settings(f"Defaults in {spec.name}", defaults)
    for preset, about in PRESETS.items():
        if turns or not about.in_turn:
            _print_settings(f"--preset {preset} ({about.words()})", about.of(cls))


def _print_settings(title: str, values: Mapping[str, Any]) -> None:
    if values:
        out.print(f"{title}: {', '.join(f'{key} {text_of(v)}' for key, v in values.items())}.")
