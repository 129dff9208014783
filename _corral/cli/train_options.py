"""Options of ``corral train`` that are arguments of ``corral.train`` or ``corral.resume``.

To add an option, add a ``TrainOption`` to ``OPTIONS``. Settings of trainers and arguments of
environments are not listed here: ``options.py`` makes options from their declarations.
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
    """An option of ``corral train`` that becomes an argument of the library."""

    name: str  # --held-out for held_out
    help: Any  # a sentence, or a Typer option
    kind: Any = str  # type on the command line: str, int, bool, Path, or list[str] if repeatable
    read: Callable[[Any], Any] = lambda value: value  # converts the command line's value
    default: Any = None
    argument: str | None = None  # name of the library's argument, if it is not ``name``
    used: Literal["train", "resume", "both", "command"] = "train"
    """The function that takes the argument: train, resume, or both. --resume rejects an option of
    ``train`` alone, because it would change the run. Only the CLI reads ``command`` options."""

    @property
    def parameter(self) -> inspect.Parameter:
        """The option as a parameter, for the signature that Typer reads."""
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
        "TOML or JSON file with values for options that are not given here; or the config.json of "
        "a run, to repeat that run in a new folder.",
        Path,
        used="command",
    ),
    TrainOption(
        "print_config",
        typer.Option(
            "--print-config",
            help="Print all values, including defaults, as TOML for --config, and exit.",
        ),
        bool,
        default=False,
        used="command",
    ),
    TrainOption(
        "trainer",
        "Trainer: a name that corral trainers lists, or file.py:name for a custom trainer; with "
        "--resume only a custom trainer.",
        default="mappo",
    ),
    TrainOption(
        "steps",
        whole("Env steps of all environment copies together, in whole rollouts; default: 100000."),
        int,
        used="both",
    ),
    TrainOption(
        "minutes",
        typer.Option(
            help="Time budget in minutes, instead of --steps. The speed of the first rollouts "
            "decides how many steps fit.",
        ),
        float,
    ),
    TrainOption(
        "from_rule",
        typer.Option(
            "--from-rule",
            help="For dfaas_v0: train a team that starts as the best rule for the load, and "
            "recommend the team or the rule, based on validation days. --steps sets the length, "
            "--minutes (default: 5) bounds it.",
        ),
        bool,
        default=False,
        used="command",
    ),
    TrainOption(
        "horizon",
        whole(
            "Planned env steps in total, if --steps is only the first part. Annealing ends at "
            "this step. Default: --steps."
        ),
        int,
    ),
    TrainOption("seed", whole("Seed of all random numbers."), int, default=0),
    TrainOption(
        "held_out",
        "Rows of the trace held out for evaluation: a share, taken from the end, or LOW:HIGH; "
        "default: 0.3.",
        read=partial(share_or_rows, "--held-out"),
    ),
    TrainOption(
        "validation",
        "Rows kept for validation, of the rows that are not held out: a share, in whole windows, "
        "or LOW:HIGH; 0: none; default: 0.2.",
        read=partial(share_or_rows, "--validation"),
    ),
    TrainOption(
        "policies",
        "shared: one policy for all agents; separate: one per agent; or a list "
        "agent=policy,agent=policy. Default: shared if the spaces of all agents are equal, else "
        "separate; a preset may set it.",
        read=policies_of,
    ),
    TrainOption(
        "policies_to_train",
        "Policies to train, separated by commas; the other policies stay frozen. Default: all.",
        read=listed,
    ),
    TrainOption(
        "opponent",
        typer.Option(
            metavar="<agent=player>",
            help="Player of an agent that does not learn: a reference player (player_1=beat-last), "
            "a run (player_1=runs/a@best), or a weighted mix, drawn per episode "
            "(player_1=runs/a@best:2,random:1); may be repeated. Only for corral's own trainers "
            "(mappo, ippo, a2c, ...).",
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
            "keep=20,draw=pfsp (or uniform, latest). Optional: seat=player_1 (the only agent that "
            "learns in these episodes) and also=perfect:0.1 (more opponents). Only for corral's "
            "own trainers.",
        ),
    ),
    TrainOption(
        "model",
        typer.Option(
            metavar="<file.py:make>",
            help="Function that creates the networks, file.py:name or module:name; with --resume "
            "give it again. Only for corral's own trainers (mappo, ippo, a2c, ...).",
        ),
        used="both",
    ),
    TrainOption(
        "init",
        typer.Option(
            metavar="<RUN>",
            help="Start from the weights of another run, RUN or RUN@best, with a new optimizer. "
            "Only for corral's own trainers (mappo, ippo, a2c, ...).",
        ),
    ),
    TrainOption(
        "init_critic",
        typer.Option(
            "--init-critic/--no-init-critic",
            help="With --init: also start from the critic's weights, if they fit.",
        ),
        bool,
        default=True,
    ),
    TrainOption(
        "preset",
        "Settings for a kind of game: auto, none, or the name of a preset. corral trainers NAME "
        "lists the presets.",
        default="auto",
    ),
    TrainOption(
        "arg",
        typer.Option(
            metavar="<key=value>",
            help="Argument for a third-party environment; may be repeated.",
        ),
        list[str],
        read=arguments_of,
        argument="env_kwargs",
        used="both",
    ),
    TrainOption("api", "API of a third-party environment: parallel or aec.", used="both"),
    TrainOption(
        "out",
        "Folder of the run; default: a new folder in runs/.",
        Path,
    ),
    TrainOption(
        "overwrite",
        typer.Option(
            "--overwrite",
            help="If --out contains a run, remove all files in it when training starts.",
        ),
        bool,
        default=False,
    ),
    TrainOption("resume", "Resume the run in this folder.", Path, used="command"),
    TrainOption(
        "stretch",
        typer.Option(
            "--stretch",
            help="With --resume and --steps: plan annealing again, so that it ends at --steps.",
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
        "Number of checkpoints to keep besides the best, or all; default: 3.",
        read=keep_of,
        used="both",
    ),
    TrainOption(
        "set_",
        typer.Option(
            "--set",
            metavar="<policy.setting=value>",
            help="Setting of one policy, such as agent_0.learning_rate=1e-3; may be repeated.",
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
            help="Function that returns a number for each complete episode; progress.csv gets its "
            "mean, min and max. May be repeated.",
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
            help="Additional destination of the rows of progress.csv: a name, or file.py:name; "
            "may be repeated.",
        ),
        list[str],
        argument="sinks",
        used="both",
    ),
    TrainOption(
        "stop",
        typer.Option(
            metavar="<column>=number>",
            help="Stop when a column of progress.csv reaches a bound, quoted: --stop "
            "'return_team>=15' or 'wall_s>=600'; may be repeated.",
        ),
        list[str],
        used="both",
    ),
    TrainOption(
        "evaluate_every",
        whole(
            "Evaluate greedy play every N env steps. @best is then the checkpoint with the best "
            "evaluation."
        ),
        int,
        used="both",
    ),
)


def with_options(options: Iterable[TrainOption]) -> Callable[..., Any]:
    """Return a decorator that replaces ``**options`` of a command by ``options``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [option.parameter for option in options]
        command.__signature__ = signature.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]
        return command

    return decorate


def given_options(context: typer.Context) -> list[TrainOption]:
    """Return the elements of ``OPTIONS`` that are on the command line, in their order."""

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name != "DEFAULT"

    return [option for option in OPTIONS if is_given(option.name)]


def arguments_given(given: Mapping[TrainOption, Any]) -> dict[str, Any]:
    """Return the library's arguments from options and their values on the command line."""
    return {
        option.argument or option.name: option.read(typed)
        for option, typed in given.items()
        if option.used != "command"
    }
