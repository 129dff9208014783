"""``corral train``, ``corral evaluate``, ``corral trainers``: from a load to a judged team."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from corral.cli.options import names, row_range, value_of
from corral.cli.output import check_new, in_options, out, progress_bar, reported, show_table
from corral.cli.third_party import is_third_party, third_party_rules
from corral.errors import UnknownNameError

if TYPE_CHECKING:
    from corral.trainers.base import Trainer
    from corral.trainers.loads.replay import Replay
    from corral.trainers.runs.run import Run

__all__ = ["ANY_OPTION", "add_to", "named_options"]

OWN_OPTIONS = (
    "trainer",
    "steps",
    "seed",
    "held_out",
    "policies",
    "policies_to_train",
    "opponent",
    "out",
    "resume",
    "checkpoint_every",
    "keep",
)
"""Of ``corral train`` itself: for the nearest name of one that is misspelt."""

ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.command(context_settings=ANY_OPTION)(train)
    app.command()(evaluate)
    app.command()(trainers)


# --- corral train --------------------------------------------------------------------------------


@reported
def train(
    context: typer.Context,
    environment: Annotated[
        str | None,
        typer.Argument(
            help="An environment, see corral envs, or module:function of any PettingZoo one; with "
            "--resume only the latter."
        ),
    ] = None,
    trainer: Annotated[str, typer.Option(help="See corral trainers.")] = "sb3_ppo",
    steps: Annotated[
        int | None,
        typer.Option(
            help="Env steps, over all copies together, in whole rollouts; default: 100000."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same weights.")] = 0,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Of a trace, what is kept for evaluation: a share of its end, or rows LOW:HIGH; "
            "default: 0.3."
        ),
    ] = None,
    policies: Annotated[
        str, typer.Option(help="shared, separate, or agent=policy,agent=policy,...")
    ] = "shared",
    policies_to_train: Annotated[
        str | None, typer.Option(help="Comma-separated; the others only play. Default: all.")
    ] = None,
    opponent: Annotated[
        list[str] | None,
        typer.Option(
            help="agent=player: a reference player that plays this agent, such as "
            "player_1=beat-last; may be repeated. For trainers mappo and ippo."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(help="key=value, an argument of a module:function; may be repeated."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="The run's folder; default: one in runs/.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder instead.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Env steps between checkpoints; default: a tenth.")
    ] = None,
    keep: Annotated[int, typer.Option(help="Checkpoints to keep, besides the best.")] = 3,
) -> None:
    """Train a team, and leave a run behind: weights, checkpoints, progress.

    Arguments of the environment and settings of the trainer are options too: --trace loads.csv
    --queue 50 --gamma 0.9. See corral envs NAME and corral trainers NAME. Ctrl-C saves and ends.
    """
    from corral.trainers import driver as training

    theirs = None
    if environment is not None and is_third_party(environment):
        theirs = third_party_rules(environment, arg or [])
    elif arg:
        raise ValueError("--arg is for module:function; give --name value for environments of ours")
    if resume is not None:
        told = [environment] if environment is not None and theirs is None else []
        told += context.args[:1]
        told += [option for name, option in FIXED.items() if _is_given(context, name)]
        if told:
            raise ValueError(f"--resume goes on with what the run is; leave out {told[0]}")
        run = training.resume(
            resume,
            steps=steps,
            rules=theirs,  # type: ignore[arg-type]  # played by the trainers all the same
            checkpoint_every=checkpoint_every,
            keep=keep,
            progress=True,
        )
    else:
        if environment is None or environment.startswith("-"):
            raise ValueError("name an environment (see corral envs), or a run with --resume")
        env, settings = _told_apart(context.args, environment, trainer)
        try:
            run = training.train(
                environment if theirs is None else theirs,  # type: ignore[arg-type]
                trainer=trainer,
                steps=100_000 if steps is None else steps,
                seed=seed,
                env=env,
                held_out=_held_out(held_out),
                policies=_mapping(policies),  # type: ignore[arg-type]  # train() checks it
                policies_to_train=None if policies_to_train is None else _list(policies_to_train),
                opponents=_opponents(opponent or []),
                out=out_dir,
                checkpoint_every=checkpoint_every,
                keep=keep,
                progress=True,
                **settings,
            )
        except ValueError as error:
            options = _options(environment, trainer)
            raise ValueError(in_options(str(error), options)) from error
    _tell(run)
    if run.stopped_by is not None:
        raise typer.Exit(128 + run.stopped_by)  # as shells have it: not done, and why


FIXED = {
    "trainer": "--trainer",
    "seed": "--seed",
    "held_out": "--held-out",
    "policies": "--policies",
    "policies_to_train": "--policies-to-train",
    "opponent": "--opponent",
    "out_dir": "--out",
}
"""What a run is once it was begun."""


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _tell(run: Run) -> None:
    from corral.trainers.evaluation.zero_sum import is_zero_sum

    progress, task = run.progress, run.config.task
    last = progress.iloc[-1]
    rows = ""
    if task.trace is not None:
        (low, high), (first, end) = task.arguments["rows"], task.held_out["rows"]
        held_out = "played again to judge it" if first < high and low < end else "held out"
        rows = f", trace {task.trace.name} rows {low}:{high} ({first}:{end} {held_out})"
    out.print(f"{run.config.trainer} on {task.environment}{rows}, seed {run.config.seed}")
    out.print(
        f"{last['env_steps']:,.0f} env steps in {last['wall_s']:.0f} s "
        f"({last['env_steps'] / max(last['wall_s'], 1e-9):,.0f}/s)"
    )
    told = {"team return": "return_team"}
    if is_zero_sum(task.rules()):  # the team's is 0 whatever they play
        learned = [agent for agent in run.config.policies if agent not in run.config.opponents]
        told = {f"return of {agent}": f"return_{agent}" for agent in learned}
    for what, column in told.items():
        returns = progress[column].dropna()
        if len(returns):
            out.print(
                f"{what} of the last 100 episodes: {returns.iloc[-1]:.4g} "
                f"(at first {returns.iloc[0]:.4g})"
            )
    out.print(f"Run: {run.folder}", soft_wrap=True)
    out.print(f"Judge it: corral evaluate {run.folder}", soft_wrap=True)


# --- corral evaluate -----------------------------------------------------------------------------


@reported
def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a run, and of others to judge beside it.")
    ],
    policies: Annotated[
        str | None,
        typer.Option(help="Reference policies, comma-separated pairs; default: 13 of them."),
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Another load: a bundled trace or a CSV file.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="LOW:HIGH, other rows than those held out.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Steps of a window; default: a day, else 288.")
    ] = None,
    episodes: Annotated[
        int, typer.Option(help="For other environments than dfaas_v0: episodes to play.")
    ] = 100,
    optimum_windows: Annotated[
        int, typer.Option(help="Windows that get a linear program, where one is needed.")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of random play and sampled actions.")] = 0,
    environment: Annotated[
        str | None,
        typer.Option(help="module:function, for runs of a third-party environment."),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(help="key=value, an argument of module:function; may be repeated."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; default: the run's.")
    ] = None,
) -> None:
    """Judge a run, greedy and sampled, beside random, the reference policies and the optimum.

    In dfaas_v0 on the rows that its training did not see; in zero-sum games of two seat by seat,
    against each reference player in the other seat.
    """
    from corral.data import load_trace
    from corral.trainers.evaluation.judge import evaluate as judge
    from corral.trainers.evaluation.judge import judge_of
    from corral.trainers.evaluation.tables import tables
    from corral.trainers.runs.run import load_run

    theirs: Any = None if environment is None else third_party_rules(environment, arg or [])
    loaded, *others = (load_run(run, theirs) for run in runs)
    folder = loaded.folder if out_dir is None else out_dir
    check_new(folder, folder=True)
    load = loaded.config.task.trace if trace is None else load_trace(trace)
    options: dict[str, Any] = {
        "trace": None if trace is None else load,
        "rows": None if load is None else row_range(rows, None, len(load)),
        "window": window,
    }
    if judge_of(loaded.config.task.environment):
        options["optimum_windows"] = optimum_windows
        if policies is not None:
            options["references"] = names(policies, lambda name: False)
    with progress_bar() as show:
        result = judge(
            loaded,
            beside=others,
            episodes=episodes,
            seed=seed,
            out=folder,
            progress=show,
            **options,
        )
    if result.replay is not None:
        _show_replay(loaded, result.replay, on_own_load=trace is None)
        out.print(f"\nReport: {folder / 'report.html'}", soft_wrap=True)
        return
    for part in tables(result, loaded.config.task.rules()):
        out.print(part, style="dim") if isinstance(part, str) else show_table(part)
    out.print(f"Results: {folder / 'results.json'}", soft_wrap=True)


def _show_replay(run: Run, replay: Replay, *, on_own_load: bool) -> None:
    """Print the table of a replay, how it was played, and whether ``run`` had seen its rows."""
    from corral.trainers.loads.text import describe, score_table

    show_table(score_table(replay))
    for line in describe(replay):
        out.print(line, style="dim")
    trained = run.config.task.arguments["rows"]
    if on_own_load and replay.rows[0] < trained[1] and trained[0] < replay.rows[1]:
        out.print(f"Rows {trained[0]}:{trained[1]} are those that it was trained on.", style="dim")


# --- corral trainers -----------------------------------------------------------------------------


@reported
def trainers(
    name: Annotated[str | None, typer.Argument(help="Print this trainer's settings.")] = None,
) -> None:
    """List the trainers, or print the settings of one."""
    from corral.trainers.base import trainer_class
    from corral.trainers.base import trainers as known
    from corral.trainers.presets import PRESETS

    table = Table(box=box.SIMPLE_HEAD)
    if name is None:
        for heading in ("trainer", "what it is"):
            table.add_column(heading)
        for trainer, summary in known().items():
            table.add_row(trainer, summary)
        out.print(table)
        out.print("corral trainers NAME prints its settings: the options of corral train.")
        return
    for heading in ("setting", "default", "meaning"):
        table.add_column(heading)
    for field in _settings(trainer_class(name)):
        option = "--" + field.name.replace("_", "-")
        table.add_row(option, _shown(field.default), field.metadata.get("help", ""))
    out.print(table)
    for environment, preset in PRESETS.items():
        told = ", ".join(f"{key} {value}" for key, value in preset.items())
        out.print(f"In {environment} the default is: {told}.")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _settings(trainer: type[Trainer]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(trainer.Settings)


# --- Options that are not known beforehand -------------------------------------------------------


def _told_apart(
    words: list[str], environment: str, trainer: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of the environment, and settings of the trainer, from --name value pairs."""
    from corral.trainers.base import trainer_class
    from corral.trainers.runs.env_config import GIVEN_BY_TRAINING

    arguments = _arguments_of(environment)
    kinds = {field.name: str(field.type) for field in _settings(trainer_class(trainer))}
    env: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for name, text in named_options(words):
        key = name.replace("-", "_")
        switched_off = key.startswith("no_") and text == "true"
        if switched_off and (key.removeprefix("no_") in arguments or key[3:] in kinds):
            key, text = key.removeprefix("no_"), "false"
        if key in kinds:
            value = value_of(text)
            wrap = kinds[key].startswith("tuple") and not isinstance(value, tuple)
            settings[key] = (value,) if wrap else value
        elif key in arguments:
            env[key] = text if key == "trace" else value_of(text)
        else:
            known = [*OWN_OPTIONS, *kinds, *(set(arguments) - set(GIVEN_BY_TRAINING))]
            options = ["--" + each.replace("_", "-") for each in known]
            raise UnknownNameError.of("option", f"--{name}", options)
    return env, settings


def _arguments_of(environment: str) -> Mapping[str, Any]:
    """The arguments of an environment of ours; others are given by --arg."""
    from corral.envs.registry import rules_class

    if is_third_party(environment):
        return {}
    return inspect.signature(rules_class(environment)).parameters


def _options(environment: str, trainer: str) -> list[str]:
    """All arguments of the environment, and settings of the trainer."""
    from corral.trainers.base import trainer_class

    arguments = _arguments_of(environment)
    return [*arguments, *(field.name for field in _settings(trainer_class(trainer)))]


def named_options(words: list[str]) -> list[tuple[str, str]]:
    """(name, text) of "--name text", "--name=text" and "--name" alone, which is "true"."""
    pairs: list[tuple[str, str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"{word!r} stands alone; options are --name value")
        name, equals, text = word.removeprefix("--").partition("=")
        if not equals:
            is_value = bool(rest) and not re.match(r"--[a-z]", rest[0])
            text = rest.pop(0) if is_value else "true"
        pairs.append((name, text))
    return pairs


def _held_out(text: str | None) -> float | tuple[int, int] | None:
    value = None if text is None else value_of(text)
    if value is None or isinstance(value, int | float | tuple):
        return value
    raise ValueError(f"--held-out {text}: give a share such as 0.3, or rows LOW:HIGH")


def _list(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def _opponents(pairs: list[str]) -> dict[str, str]:
    """agent -> player, of "agent=player"; several may be in one, with commas."""
    found: dict[str, str] = {}
    for text in [part for pair in pairs for part in _list(pair)]:
        agent, equals, player = (part.strip() for part in text.partition("="))
        if not (agent and equals and player):
            raise ValueError(f"--opponent {text}: give agent=player, such as player_1=random")
        if agent in found:
            raise ValueError(f"--opponent {text}: {agent} has {found[agent]} already; give one")
        found[agent] = player
    return found


def _mapping(text: str) -> str | Mapping[str, str]:
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in _list(text)]
    return {agent.strip(): policy.strip() for agent, _, policy in pairs}
