"""``corral train``: train a team in an environment."""

from __future__ import annotations

import contextlib
import functools
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect, kind_of, option_of
from corral.cli.options import (
    ANY_OPTION,
    arguments_known,
    import_from_here,
    is_third_party,
    named_as_options,
    settings_of,
    train_options,
)
from corral.cli.output import last_of, out, progress_bar, reported
from corral.cli.train_options import (
    OPTIONS,
    TrainOption,
    arguments_given,
    given_options,
    with_options,
)
from corral.errors import ConfigError, CorralError
from corral.extensions import extension
from corral.text import one_line, pasted

if TYPE_CHECKING:
    from corral.trainers.runs.env_config import EnvConfig
    from corral.trainers.runs.run import Run

__all__ = ["add_to", "interruptible"]

Made = TypeVar("Made")


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command(cls=TrainCommand, context_settings=ANY_OPTION)(train)


@reported
@with_options(OPTIONS)
def train(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), a PettingZoo id such as "
            "classic/connect_four-v3, or module:function; with --resume only a third-party one."
        ),
    ] = None,
    **options: Any,
) -> None:
    """Train a team and write it to a folder.

    The folder (a run) holds weights, checkpoints and the training progress. Arguments of the
    environment and settings of the trainer are options too, such as --trace loads.csv --queue 50
    --gamma 0.9. Help on a pair lists all of them: corral train dfaas_v0 --trainer mappo --help.
    Ctrl-C saves and ends.
    """
    folder, file = options["resume"], options["config"]
    if env is not None and env.startswith("-") and file is not None:
        # ``env`` is an option; the file names the environment.
        context.args.insert(0, env)
        env = None
    import_from_here()
    third_party = env is not None and is_third_party(env)
    # With --resume, --arg is for the third-party environment of the run.
    again = options["arg"] and folder is not None
    if not third_party and not again and (options["arg"] or options["api"]):
        raise ValueError(
            "--arg and --api are for third-party environments; write --name value for built-in ones"
        )
    given = {option: options[option.name] for option in given_options(context)}
    if folder is not None:
        _summarize(_resume(context, folder, env, given))
        return
    values, spelled = _arguments(context, env, file, given)
    with spelled:
        if options["print_config"]:
            if options["from_rule"]:
                raise ValueError(
                    "--print-config does not support --from-rule; leave out one of them"
                )
            _print_config(values)
            return
        begin = _train_from_rule if options["from_rule"] else _train
        run = interruptible(functools.partial(begin, values))
    _summarize(run)


def _arguments(
    context: typer.Context, env: str | None, file: Path | None, given: Mapping[TrainOption, Any]
) -> tuple[dict[str, Any], contextlib.AbstractContextManager[None]]:
    """Return the arguments of ``corral.train`` and a context manager for its errors.

    Options override the file. In the context, errors name an argument as it was given: as an
    option, or as a key of the file. Traces and arrays keep their names in the file.
    """
    from corral.trainers.config_files.read import load_config

    values = arguments_given(given)
    if "stretch" in values:
        raise ValueError("--stretch requires --resume")
    if env is not None or file is None:
        expect("train", env)
        values["env"] = _environment(env, context)
    typed = list(values)
    if file is not None:
        values = load_config(file, **values)
    env, trainer = values["env"], values.get("trainer", "mappo")
    arguments, settings = train_options(context, env, trainer)
    kwargs = {**values.get("env_kwargs", {}), **arguments}
    known = [*arguments_known(env), *(field.name for field in settings_of(trainer))]
    named = {*values, *values.get("env_kwargs", {})} - {*typed, *arguments, *settings}
    merged = {**values, **({"env_kwargs": kwargs} if kwargs else {}), **settings}
    return merged, _spelled(context, known, file, named)


@contextlib.contextmanager
def _spelled(
    context: typer.Context, options: Iterable[str], file: Path | None, keys: Iterable[str]
) -> Iterator[None]:
    """In errors, spell ``options`` as the user typed them; name the file that holds ``keys``."""
    with named_as_options(context, options):
        try:
            yield
        except (CorralError, ValueError) as error:
            message = str(error)
            for key in keys if file is not None else ():
                message = re.sub(rf"\b{key}=", f"{key} = ", message)
            if message == str(error):
                raise
            named = ConfigError(f"{file}: {message}")
            # The traceback still shows the code that raised the error.
            raise named.with_traceback(error.__traceback__) from error


def _train(values: Mapping[str, Any]) -> Run:
    from corral.trainers import driver as training
    from corral.trainers.config_files.read import decoded

    return training.train(**{"progress": True, **decoded(values)})


def _train_from_rule(values: Mapping[str, Any]) -> Run:
    from corral.loads.from_rule.driver import from_rule
    from corral.trainers.config_files.read import decoded

    with progress_bar() as show:
        return from_rule(**{"progress": True, "show": show, **decoded(values)})


def _print_config(values: Mapping[str, Any]) -> None:
    from corral.trainers import driver as training
    from corral.trainers.config_files.read import decoded
    from corral.trainers.config_files.write import config_text, resolved

    run = training.train(**{**decoded(values), "dry_run": True})
    typer.echo(config_text(resolved(run.config, values)), nl=False)


def _resume(
    context: typer.Context, folder: Path, env: str | None, given: Mapping[TrainOption, Any]
) -> Run:
    """Resume the run in ``folder`` without changing its setup."""
    from corral.trainers import driver as training
    from corral.trainers.runs.run import has_custom

    expect("--resume", str(folder))
    fixed = [env] if env is not None and not is_third_party(env) else []
    fixed += context.args[:1]
    # A custom trainer must be named again. The library reports the errors of such runs.
    custom_trainer = bool(has_custom(folder, "trainer_source"))
    again = {
        option: value
        for option, value in given.items()
        if option.name == "trainer" and (custom_trainer or ":" in value)
    }
    new_options = [option for option in given if option.name != "resume" and option not in again]
    fixed += [
        option_of(option.name.rstrip("_"))
        for option in new_options
        if option.used not in ("resume", "both")
    ]
    if fixed:
        raise ValueError(
            f"--resume keeps the setup of the run; leave out {fixed[0]}. A new run with its "
            f"weights may have another: corral train ENV --init {pasted(folder)} {fixed[0]} ..."
        )
    values = {"env": env, "progress": True, **arguments_given(given)}
    plan_of = extension("from_rule.plan")
    if len(given) == 1 and plan_of is not None and plan_of(folder) is not None:
        from corral.loads.from_rule.driver import resume_from_rule

        return interruptible(functools.partial(resume_from_rule, folder, progress=True))
    return interruptible(functools.partial(training.resume, folder, **values))


def interruptible(begin: Callable[[], Made]) -> Made:
    """Return the result of ``begin``. Ctrl-C, on which ``begin`` prints its own message, exits."""
    try:
        return begin()
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None  # exit code of a shell for SIGINT


def _environment(env: str | None, context: typer.Context) -> str:
    """Return ``env``. Raises ValueError if an option stands in its place."""
    if env is None or env.startswith("-"):
        words = [word for word in context.args if kind_of(word) == "environment"]
        name = words[0] if words else "dfaas_v0"
        raise ValueError(f"name the environment first, as in: corral train {name} ...")
    return env


def _rows_in_words(task: EnvConfig) -> str:
    """Return in words which rows of its load a run trains, validates and evaluates on."""
    low, high = task.env_kwargs["rows"]
    first, end = task.held_out["rows"]
    again = "reused for evaluation" if first < high and low < end else "held out"
    validated = "{}:{} for validation".format(*task.validation.get("rows", ("", "")))
    return (
        f"{low}:{high} to train on, {validated if task.validation else 'none for validation'}, "
        f"{first}:{end} {again}"
    )


def _trend_in_words(progress: Any, column: str, settings: Mapping[str, Any]) -> str:
    """Return in words whether a return rose or fell over a run, see ``trends``."""
    from corral.trainers.runs.trends import return_change, reward_change

    copies = int(settings.get("num_envs") or 1)
    change = return_change(progress, column, copies)
    if change is None:
        return "too few updates to tell a trend from noise"
    direction = change.direction(0.05)
    noise = " beyond noise" if direction == "no change" else ""
    text = f"{direction}{noise} (p = {change.p_value:.2g})"
    rewards = reward_change(progress, copies)
    if direction != "fell" and rewards is not None and rewards.direction(0.05) == "fell":
        text += f", but its reward per step fell (p = {rewards.p_value:.2g})"
    return text


def _summarize(run: Run) -> None:
    from corral.trainers.evaluation.zero_sum import is_constant_sum
    from corral.trainers.runs.run import Run

    progress, task = run.progress, run.config.env_config
    last = progress.iloc[-1]
    wall_s = last["wall_s"]
    out.print(f"{run.config.trainer} on {task.env}, seed {run.config.seed}")
    if task.trace is not None:
        out.print(f"Rows of {task.trace.name}: {_rows_in_words(task)}")
    out.print(
        f"{last['env_steps']:,.0f} env steps in {wall_s:.{int(wall_s < 10)}f} s "
        f"({last['env_steps'] / max(wall_s, 1e-9):,.0f}/s)"
    )
    columns = {"team return": "return_team"}
    agents = [f"return_{agent}" for agent in run.config.policies]
    # A constant sum of returns carries no information.
    if is_constant_sum(task.rules(), progress[agents].dropna().to_numpy()):
        learned = [agent for agent in run.config.policies if agent not in run.config.opponents]
        columns = {f"return of {one_line(agent)}": f"return_{agent}" for agent in learned}
    if "points_past" in progress and progress["points_past"].notna().any():
        columns = {"share of points won against its pool, mean": "points_past"}
    for label, column in columns.items():
        rows = progress.dropna(subset=[column])
        if len(rows):
            (value, ended), (first, before) = (
                rows.iloc[at][[column, "episodes"]] for at in (-1, 0)
            )
            change = f" (at first {first:.4g})" if before < ended else ""
            trend = _trend_in_words(progress, column, run.config.settings)
            out.print(
                f"{label} of {last_of(int(ended))}: {value:.4g}{change}; over the run: {trend}"
            )
    if not progress["episodes"].iloc[-1]:
        out.print("No episode has ended yet, so returns are missing.")
    if run.best_by is not None:
        out.print(f"@best is {Run(run.folder, run.config, 'best').source()}")
    if (recommendation := run.recommendation) is not None:
        for line in recommendation.lines():
            out.print(line, soft_wrap=True)
    out.print(f"Run: {run.folder}", soft_wrap=True)
    out.print(f"Evaluate it: corral evaluate {run.config.named(run.folder)}", soft_wrap=True)
