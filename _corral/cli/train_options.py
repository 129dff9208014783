"""Options of ``corral train`` that are arguments of ``corral.train`` or ``corral.resume``.

One more is one more ``TrainOption`` in ``OPTIONS``. Settings of trainers and arguments of
environments stand nowhere here: they are made from their own declarations (``options.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from corral.cli.options import (
    arguments_of,
    keep_of,
    listed,
    opponents_of,
    policies_of,
    settings_of_policies,
    share_or_rows,
    whole,
)

__all__ = ["OPTIONS", "TrainOption", "arguments_given", "given_options", "with_options"]


@dataclass(frozen=True)
class TrainOption:
    """An option of ``corral train``, and the argument of the library that it becomes."""

    name: str  # --held-out for held_out
    help: Any  # a sentence, or an option as Typer takes it
    kind: Any = str  # what is typed: str, int, bool, Path, or list[str] where it may be repeated
    read: Callable[[Any], Any] = lambda value: value  # what was typed -> the argument's value
    default: Any = None
    argument: str | None = None  # its name in the library, where it is not ``name``
    used: Literal["train", "resume", "both", "command"] = "train"
    """Which function takes it; with --resume one of ``train`` alone is refused, as what a run is
    stays what it was. What only the ``command`` reads goes to neither."""

    @property
    def parameter(self) -> inspect.Parameter:
        """It as a parameter of a function that Typer makes a command of."""
        option = typer.Option(help=self.help) if isinstance(self.help, str) else self.help
        optional = self.kind if self.default is not None else self.kind | None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[optional, option],
        )


def metrics_of(pairs: list[str]) -> dict[str, str]:
    """name -> file.py:function, of "name=file.py:function"."""
    named = {}
    for text in pairs:
        name, equals, function = text.partition("=")
        if not equals or not name or not function:
            raise ValueError(f"--metric {text}: give name=file.py:function")
        named[name] = function
    return named


OPTIONS = (
    TrainOption(
        "config",
        "A TOML or JSON file with what is not given here, or the config.json of a run, to repeat "
        "it in a new folder.",
        Path,
        used="command",
    ),
    TrainOption(
        "print_config",
        typer.Option(
            "--print-config",
            help="Print all that would be used, defaults too, as TOML for --config, and end.",
        ),
        bool,
        default=False,
        used="command",
    ),
    TrainOption(
        "trainer",
        "What learns: corral trainers lists them, or file.py:name of your own; with --resume only "
        "one of your own.",
        default="mappo",
    ),
    TrainOption(
        "steps",
        whole("Env steps over all environments together, in whole rollouts; default: 100000."),
        int,
        used="both",
    ),
    TrainOption(
        "minutes",
        typer.Option(
            help="How long it may take, in place of --steps, which are planned from the speed of "
            "the first rollouts.",
        ),
        float,
    ),
    TrainOption(
        "from_rule",
        typer.Option(
            "--from-rule",
            help="Of dfaas_v0: clone the best rule of the load, go on by policy iteration, and say "
            "which to play, team or rule, by days of validation. Takes --minutes (default: 5) or "
            "--steps.",
        ),
        bool,
        default=False,
        used="command",
    ),
    TrainOption(
        "horizon",
        whole(
            "Env steps that are planned in all, where --steps is a first portion: what is "
            "annealed ends there. Default: --steps."
        ),
        int,
    ),
    TrainOption("seed", whole("Seed of everything that is drawn."), int, default=0),
    TrainOption(
        "held_out",
        "Rows of a trace that are kept for evaluation: a share of them, taken from the "
        "end, or LOW:HIGH; default: 0.3.",
        read=partial(share_or_rows, "--held-out"),
    ),
    TrainOption(
        "validation",
        "Rows of the rest that are kept for validation: a share, in whole windows, or LOW:HIGH; "
        "0: none; default: 0.2.",
        read=partial(share_or_rows, "--validation"),
    ),
    TrainOption(
        "policies",
        "shared: one for all agents; separate: one each; or agent=policy,agent=policy. "
        "Default: shared where the spaces of all agents are equal, else separate, or where "
        "--preset says so.",
        read=policies_of,
    ),
    TrainOption(
        "policies_to_train",
        "Policies that learn, with commas; the others only play. Default: all.",
        read=listed,
    ),
    TrainOption(
        "opponent",
        typer.Option(
            metavar="<agent=player>",
            help="Who plays this agent, which then never learns: a reference player "
            "(player_1=beat-last), a run (player_1=runs/a@best), or a mix with weights, drawn for "
            "each episode (player_1=runs/a@best:2,random:1); may be repeated. For the trainers in "
            "corral itself (mappo, ippo, a2c, ...).",
        ),
        list[str],
        read=opponents_of,
        argument="opponents",
    ),
    TrainOption(
        "self_play",
        typer.Option(
            metavar="<past=0.2,...>",
            help="Play a share of the episodes against frozen snapshots: past=0.2,every=20000,"
            "keep=20,draw=pfsp (or uniform, latest); also seat=player_1 (who learns then) and "
            "also=perfect:0.1 (other players among them). For the trainers in corral itself.",
        ),
    ),
    TrainOption(
        "model",
        typer.Option(
            metavar="<file.py:make>",
            help="A function that makes the networks, file.py:name or module:name; with --resume "
            "again. For the trainers in corral itself (mappo, ippo, a2c, ...).",
        ),
        used="both",
    ),
    TrainOption(
        "init",
        typer.Option(
            metavar="<RUN>",
            help="Start from the weights of another run, RUN or RUN@best, with a fresh optimizer. "
            "For the trainers in corral itself (mappo, ippo, a2c, ...).",
        ),
    ),
    TrainOption(
        "init_critic",
        typer.Option(
            "--init-critic/--no-init-critic", help="With --init: take the critic too, if it fits."
        ),
        bool,
        default=True,
    ),
    TrainOption(
        "preset",
        "Settings that suit the kind of game: auto, none, or the name of one, which corral "
        "trainers NAME lists.",
        default="auto",
    ),
    TrainOption(
        "arg",
        typer.Option(
            metavar="<key=value>",
            help="An argument of an environment of others; may be repeated.",
        ),
        list[str],
        read=arguments_of,
        argument="env_kwargs",
        used="both",
    ),
    TrainOption("api", "parallel or aec, for one of others that has both.", used="both"),
    TrainOption(
        "out",
        "Folder of the run; default: a new one in runs/.",
        Path,
    ),
    TrainOption("resume", "Go on with the run in this folder.", Path, used="command"),
    TrainOption(
        "stretch",
        typer.Option(
            "--stretch",
            help="With --resume and --steps: plan anew, so that what is annealed ends at --steps.",
        ),
        bool,
        default=False,
        used="resume",
    ),
    TrainOption(
        "checkpoint_every",
        whole("Env steps between checkpoints; default: a tenth of --steps."),
        int,
        used="both",
    ),
    TrainOption(
        "keep",
        "Checkpoints to keep, besides the best: a number, or all; default: 3.",
        read=keep_of,
        used="both",
    ),
    TrainOption(
        "set_",
        typer.Option(
            "--set",
            metavar="<policy.setting=value>",
            help="A setting of one policy, such as agent_0.learning_rate=1e-3; may be repeated.",
        ),
        list[str],
        read=settings_of_policies,
        argument="settings_of",
    ),
    TrainOption(
        "callback",
        typer.Option(
            metavar="<file.py:name>",
            help="A corral.Callback, or a function that is called with each row of progress.csv; "
            "may be repeated.",
        ),
        list[str],
        argument="callbacks",
        used="both",
    ),
    TrainOption(
        "metric",
        typer.Option(
            metavar="<name=file.py:name>",
            help="A function that gives a number of each whole episode: its mean, min and max go "
            "into progress.csv. May be repeated.",
        ),
        list[str],
        read=metrics_of,
        argument="metrics",
        used="both",
    ),
    TrainOption(
        "sink",
        typer.Option(
            metavar="<name>",
            help="Where rows of progress.csv go besides: a name, or file.py:name; may be repeated.",
        ),
        list[str],
        argument="sinks",
        used="both",
    ),
    TrainOption(
        "stop",
        typer.Option(
            metavar="<column>=number>",
            help="Stop when a column of progress.csv meets a bound: --stop 'return_team>=15' or "
            "'wall_s>=600', in quotation marks; may be repeated.",
        ),
        list[str],
        used="both",
    ),
    TrainOption(
        "evaluate_every",
        whole(
            "Evaluate greedy play every so many env steps; the best checkpoint is the best by it."
        ),
        int,
        used="both",
    ),
)


def with_options(options: Iterable[TrainOption]) -> Callable[..., Any]:
    """Return a decorator that puts ``options`` in place of a command's ``**options``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [option.parameter for option in options]
        command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return command

    return decorate


def given_options(context: typer.Context) -> list[TrainOption]:
    """Return those of ``OPTIONS`` that were typed, in this order."""

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name != "DEFAULT"

    return [option for option in OPTIONS if is_given(option.name)]


def arguments_given(given: Mapping[TrainOption, Any]) -> dict[str, Any]:
    """Return the arguments of the library that options and what was typed for them make."""
    return {
        option.argument or option.name: option.read(typed)
        for option, typed in given.items()
        if option.used != "command"
    }
