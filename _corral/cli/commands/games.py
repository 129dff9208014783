"""``corral watch``: show an episode in a window, as a clip, or as text."""

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
from corral.cli.run_options import RunApi, RunArguments, RunEnv, RunModel, RunTrainer
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
            help="An environment (corral envs lists them; third-party: its id or "
            "module:function), a run, or RUN@best."
        ),
    ],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Policy of the agents: random, nearest/chase and others in arena_v0, "
            "overflow/equal and others in dfaas_v0, or the folder of a run (RUN@best: a "
            "checkpoint). Default: the run's team, else random."
        ),
    ] = None,
    out_path: Annotated[
        Path | None,
        typer.Option("--out", help="Write a clip: FILE.gif, or FILE.mp4 if ffmpeg is installed."),
    ] = None,
    ansi: Annotated[bool, typer.Option("--ansi", help="Print each step as text.")] = False,
    seed: Declared = ...,
    steps: Declared = ...,
    fps: Declared = ...,
    sampled: Annotated[
        bool | None,
        typer.Option(
            "--sampled/--greedy",
            help="Sample actions, or play the most likely ones. Default: as the run plays.",
        ),
    ] = None,
    pixels: DeclaredNumber = ...,
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: RunModel = None,
    trainer: RunTrainer = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the clip.")] = False,
) -> None:
    """Show an episode in a window or as a clip.

    --out writes a clip instead, --ansi prints text. Arguments of the environment are options too:
    --height 6 --walls mask. See corral envs NAME. Third-party environments draw themselves; give
    their arguments as --arg key=value.
    """
    expect("watch", game)
    if out_path is not None:
        if ansi:
            raise ValueError("give --out or --ansi, not both")
        check_new(out_path, overwrite=overwrite)
    if out_path is not None or ansi:  # no window: keep SDL from looking for a screen
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    third_party = env is not None or is_third_party(game)
    if third_party or any(option is not None for option in (model, trainer)):
        import_from_here()
    arguments = {} if env is not None else _arguments(game, model, trainer)
    # For an unknown name, ``corral.watch`` raises the error.
    known = bool(arguments) or third_party or Path(game).is_dir()
    env_kwargs = read_options(context, arguments)[0] if known and context.args else {}
    if arg:
        if arguments:
            raise ValueError(f"--arg {arg[0]}: write --name value for built-in environments")
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
            api=api,  # type: ignore[arg-type]  # checked by ``corral.watch``
            **env_kwargs,
        )
    _print_summary(shown)


def _print_text(fps: float | None, text: str) -> None:
    """Print a frame as text. In a terminal, wait between frames to keep ``fps``."""
    out.print(text, soft_wrap=True)
    out.print()
    time.sleep(1 / fps if fps and out.can_animate else 0.0)


def _print_summary(shown: Watched) -> None:
    from corral.envs.registry import REGISTERED
    from corral.trainers.evaluation.scores import MAX_AGENTS

    returns = list(shown.returns.values())
    by_agent = ", ".join(f"{one_line(agent)} {value:.4g}" for agent, value in shown.returns.items())
    if len(returns) > MAX_AGENTS:
        by_agent = f"{len(returns)} agents: {min(returns):.4g} to {max(returns):.4g}"
    summary = f"team return {sum(returns):.4g} ({by_agent})"
    zero_sum = shown.env in REGISTERED and REGISTERED[shown.env].zero_sum
    if zero_sum or (shown.env not in REGISTERED and not sum(returns)):
        summary = f"returns: {by_agent}"
    steps = f"{shown.steps} step" + "s" * (shown.steps != 1) + ", not over" * (not shown.over)
    out.print(f"{shown.env}, {shown.policies}: {steps}, {summary}", soft_wrap=True)
    if shown.path is not None:
        size = shown.path.stat().st_size / 1000
        out.print(f"Clip: {shown.path} ({shown.frames} frames, {size:,.0f} kB)", soft_wrap=True)


def _arguments(
    game: str, model: str | None, trainer: str | None
) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a built-in environment, or of a run's environment; else {}."""
    from corral.envs.registry import registered_name, rules_class
    from corral.trainers.runs.run import is_run, load_run

    try:
        known = registered_name(game) is not None or not is_run(game)
        name = game if known else load_run(game, model=model, trainer=trainer).config.env_config.env
        return inspect.signature(rules_class(name)).parameters
    except (CorralError, OSError, ValueError):  # ``corral.watch`` reports the error
        return {}
