"""``corral watch``: an episode in a window, as a clip, or as text."""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import corral
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import (
    ANY_OPTION,
    arguments_of,
    import_from_here,
    is_third_party,
    named_as_options,
    read_options,
)
from corral.cli.output import check_new, out, reported
from corral.cli.run_options import OwnApi, OwnArguments, OwnEnv, OwnModel, OwnTrainer
from corral.errors import CorralError
from corral.text import one_line

if TYPE_CHECKING:
    from corral.trainers.evaluation.watch import Watched

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to the ``corral`` command."""
    app.command(context_settings=ANY_OPTION)(watch)


@declared(lambda: corral.watch)
@reported
def watch(
    context: typer.Context,
    game: Annotated[
        str,
        typer.Argument(
            help="An environment (corral envs lists them; one of others by its id or "
            "module:function), a run, or RUN@best."
        ),
    ],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Who plays: random, nearest/chase and others in arena_v0, overflow/equal and "
            "others in dfaas_v0, or the folder of a run (RUN@best: a checkpoint of it). Default: "
            "the run's own team, else random."
        ),
    ] = None,
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write a clip: FILE.gif, or FILE.mp4 where ffmpeg is installed."
        ),
    ] = None,
    ansi: Annotated[bool, typer.Option("--ansi", help="Print each step as text.")] = False,
    seed: Declared = ...,
    steps: Declared = ...,
    fps: Declared = ...,
    sampled: Declared = ...,
    pixels: DeclaredNumber = ...,
    env: OwnEnv = None,
    arg: OwnArguments = None,
    api: OwnApi = None,
    model: OwnModel = None,
    trainer: OwnTrainer = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the clip.")] = False,
) -> None:
    """Watch an episode, in a window or as a clip.

    With --out it is written as a clip, with --ansi printed as text. Arguments of the environment
    are options too: --height 6 --walls mask. See corral envs NAME. Environments of others draw
    themselves, and take theirs as --arg key=value.
    """
    expect("watch", game)
    if out_path is not None:
        if ansi:
            raise ValueError("give --out or --ansi, not both")
        check_new(out_path, overwrite=overwrite)
    if out_path is not None or ansi:  # no window: SDL is not to look for a screen, and complain
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    others = env is not None or is_third_party(game)
    if others or any(each is not None for each in (model, trainer)):
        import_from_here()
    arguments = {} if env is not None else _arguments(game, model, trainer)
    # Else ``watch`` says that there is no such.
    known = bool(arguments) or others or Path(game).is_dir()
    env_kwargs = read_options(context, arguments)[0] if known and context.args else {}
    if arg:
        if arguments:
            raise ValueError(f"--arg {arg[0]}: give --name value for corral's own environments")
        env_kwargs |= arguments_of(arg)
    with named_as_options(context, ["out", *arguments]):
        shown = corral.watch(
            game,
            policies=policies,
            out=out_path,
            text=functools.partial(_print_text, fps) if ansi else None,
            seed=seed,
            steps=steps,
            fps=fps,
            sampled=sampled,
            pixels=pixels,
            model=model,
            trainer=trainer,
            env=env,
            api=api,  # type: ignore[arg-type]  # checked there
            **env_kwargs,
        )
    _tell(shown)


def _print_text(fps: float | None, text: str) -> None:
    """Print a picture as text; in a terminal, at the pace asked for."""
    out.print(text, soft_wrap=True)
    out.print()
    time.sleep(1 / fps if fps and out.is_terminal else 0.0)


def _tell(shown: Watched) -> None:
    from corral.envs.registry import REGISTERED
    from corral.trainers.evaluation.tables import MOST_AGENTS

    returns = list(shown.returns.values())
    each = ", ".join(f"{one_line(agent)} {value:.4g}" for agent, value in shown.returns.items())
    if len(returns) > MOST_AGENTS:
        each = f"{len(returns)} agents: {min(returns):.4g} to {max(returns):.4g}"
    said = f"team return {sum(returns):.4g} ({each})"
    zero_sum = shown.env in REGISTERED and REGISTERED[shown.env].zero_sum
    if zero_sum or (shown.env not in REGISTERED and not sum(returns)):
        said = f"returns: {each}"
    steps = f"{shown.steps} step" + "s" * (shown.steps != 1) + ", not over" * (not shown.over)
    out.print(f"{shown.env}, {shown.policies}: {steps}, {said}", soft_wrap=True)
    if shown.path is not None:
        size = shown.path.stat().st_size / 1000
        out.print(f"Clip: {shown.path} ({shown.frames} frames, {size:,.0f} kB)", soft_wrap=True)


def _arguments(
    game: str, model: str | None, trainer: str | None
) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of an environment of ours, or of that of a run; else none."""
    from corral.envs.registry import registered_name, rules_class
    from corral.trainers.runs.run import is_run, load_run

    try:
        known = registered_name(game) is not None or not is_run(game)
        name = game if known else load_run(game, model=model, trainer=trainer).config.env_config.env
        return inspect.signature(rules_class(name)).parameters
    except (CorralError, OSError, ValueError):  # ``watch`` says what is wrong
        return {}
