"""``corral train`` and ``corral evaluate``: from an environment to an evaluated team."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect, kind_of
from corral.cli.options import (
    ANY_OPTION,
    OptimumWindows,
    Window,
    is_third_party,
    listed,
    named_as_options,
    names,
    row_range,
    third_party_rules,
    train_options,
    value_of,
    whole_number,
)
from corral.cli.output import check_new, out, progress_bar, reported, show_replay, show_table
from corral.text import one_line

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.command(cls=TrainCommand, context_settings=ANY_OPTION)(train)
    app.command()(evaluate)


# --- corral train --------------------------------------------------------------------------------


@reported
def train(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), or module:function of any PettingZoo "
            "environment; with --resume only the latter."
        ),
    ] = None,
    trainer: Annotated[
        str, typer.Option(help="What learns; corral trainers lists them.")
    ] = "sb3_ppo",
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help="Env steps over all environments together, in whole rollouts; default: 100000.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Rows of a trace that are kept for evaluation: a share of them, taken from the "
            "end, or LOW:HIGH; default: 0.3."
        ),
    ] = None,
    policies: Annotated[
        str,
        typer.Option(
            help="shared: one for all agents; separate: one each; or agent=policy,agent=policy."
        ),
    ] = "shared",
    policies_to_train: Annotated[
        str | None,
        typer.Option(help="Policies that learn, with commas; the others only play. Default: all."),
    ] = None,
    opponent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<agent=player>",
            help="Let a reference player play this agent, such as player_1=beat-last; may be "
            "repeated. For the trainers mappo and ippo.",
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<key=value>", help="An argument of module:function; may be repeated."
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; default: a new one in runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help="Env steps between checkpoints; default: a tenth of --steps.",
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(help="Number of latest checkpoints to keep, besides the best.")
    ] = 3,
) -> None:
    """Train a team and write it to a folder.

    The folder (a run) holds weights, checkpoints and the progress of learning. Arguments of the
    environment and settings of the trainer are options too, such as --trace loads.csv --queue 50
    --gamma 0.9. With both names, as in corral train dfaas_v0 --trainer mappo --help, all of them
    are listed below. Ctrl-C saves and ends.
    """
    from corral.trainers import driver as training

    options: dict[str, Any] = {}
    if resume is not None:
        expect("--resume", str(resume))
    else:
        expect("train", env)
        options = train_options(context, _environment(env, context), trainer)
    theirs: Any = None
    if env is not None and is_third_party(env):
        theirs = third_party_rules(env, arg or [])
    elif arg:
        raise ValueError("--arg is for module:function; give --name value for environments of ours")
    saving: dict[str, Any] = {"checkpoint_every": checkpoint_every, "keep": keep, "progress": True}
    if resume is not None:
        fixed = [env] if env is not None and theirs is None else []
        fixed += context.args[:1]
        own = [option for option in context.command.params if option.name in FIXED]
        fixed += [option.opts[0] for option in own if _is_given(context, option.name)]
        if fixed:
            raise ValueError(f"--resume goes on with what the run is; leave out {fixed[0]}")
        run = training.resume(resume, steps=steps, rules=theirs, **saving)
    else:
        assert env is not None  # else ``expect`` has said so
        with named_as_options(env, trainer):
            run = training.train(
                env if theirs is None else theirs,
                trainer=trainer,
                steps=100_000 if steps is None else steps,
                seed=seed,
                held_out=_held_out(held_out),
                policies=_mapping(policies),  # type: ignore[arg-type]  # train() checks it
                policies_to_train=None if policies_to_train is None else listed(policies_to_train),
                opponents=_opponents(opponent or []),
                out=out_dir,
                **saving,
                **options,
            )
    _summarize(run)
    if run.stopped_by is not None:
        raise typer.Exit(128 + run.stopped_by)  # as shells have it: not done, and why


FIXED = ["trainer", "seed", "held_out", "policies", "policies_to_train", "opponent", "out_dir"]
"""Options that a run keeps once it was begun."""


def _environment(env: str | None, context: typer.Context) -> str:
    """Return ``env``. Raises ValueError where an option stands before it."""
    if env is None or env.startswith("-"):
        words = [word for word in context.args if kind_of(word) == "environment"]
        name = words[0] if words else "dfaas_v0"
        raise ValueError(f"name the environment first, as in: corral train {name} ...")
    return env


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _summarize(run: Run) -> None:
    from corral.trainers.evaluation.zero_sum import is_zero_sum

    progress, task = run.progress, run.config.env_config
    last = progress.iloc[-1]
    rows = ""
    if task.trace is not None:
        (low, high), (first, end) = task.env_kwargs["rows"], task.held_out["rows"]
        held_out = "played again to evaluate it" if first < high and low < end else "held out"
        rows = f", trace {task.trace.name} rows {low}:{high} ({first}:{end} {held_out})"
    out.print(f"{run.config.trainer} on {task.env}{rows}, seed {run.config.seed}")
    out.print(
        f"{last['env_steps']:,.0f} env steps in {last['wall_s']:.0f} s "
        f"({last['env_steps'] / max(last['wall_s'], 1e-9):,.0f}/s)"
    )
    columns = {"team return": "return_team"}
    if is_zero_sum(task.rules()):  # the team's is 0 whatever they play
        learned = [agent for agent in run.config.policies if agent not in run.config.opponents]
        columns = {f"return of {one_line(agent)}": f"return_{agent}" for agent in learned}
    for what, column in columns.items():
        returns = progress[column].dropna()
        if len(returns):
            out.print(
                f"{what} of the last 100 episodes: {returns.iloc[-1]:.4g} "
                f"(at first {returns.iloc[0]:.4g})"
            )
    out.print(f"Run: {run.folder}", soft_wrap=True)
    out.print(f"Evaluate it: corral evaluate {run.folder}", soft_wrap=True)


# --- corral evaluate -----------------------------------------------------------------------------


@reported
def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a run, and of others to compare with it.")
    ],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Reference policies of dfaas_v0, pairs with commas; default: 13 of them."
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Another trace than the run's held-out rows: a bundled one or a CSV file."
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="<LOW:HIGH>", help="Rows to play; default: those held out from training."
        ),
    ] = None,
    window: Window = None,
    episodes: Annotated[
        int, typer.Option(help="Number of episodes, in other environments than dfaas_v0.")
    ] = 100,
    optimum_windows: OptimumWindows = 8,
    seed: Annotated[int, typer.Option(help="Seed of random play and sampled actions.")] = 0,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="<module:function>", help="The environment, where it is a third-party one."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<key=value>", help="An argument of module:function; may be repeated."
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; default: the run's folder.")
    ] = None,
) -> None:
    """Evaluate a run beside random and reference policies.

    The team plays greedily, and with sampled actions. In dfaas_v0 it plays the rows that its
    training did not see, beside the optimum; in zero-sum games of two, each agent plays against
    every reference player.
    """
    from corral.data import load_trace
    from corral.trainers.evaluation.judge import evaluate as judge
    from corral.trainers.evaluation.judge import judge_of
    from corral.trainers.evaluation.tables import tables
    from corral.trainers.runs.run import load_run

    for folder in runs:
        expect("evaluate", str(folder))
    theirs: Any = None if env is None else third_party_rules(env, arg or [])
    loaded, *others = (load_run(run, theirs) for run in runs)
    folder = loaded.folder if out_dir is None else out_dir
    check_new(folder, folder=True)
    load = loaded.config.env_config.trace if trace is None else load_trace(trace)
    options: dict[str, Any] = {
        "trace": None if trace is None else load,
        "rows": None if load is None else row_range(rows, None, len(load)),
        "window": window,
    }
    if judge_of(loaded.config.env_config.env):
        options["optimum_windows"] = optimum_windows
        if policies is not None:
            options["references"] = names(policies, lambda name: False)
    plan: dict[str, Any] = {"beside": others, "episodes": episodes, "seed": seed, "out": folder}
    with progress_bar() as show:
        result = judge(loaded, progress=show, **plan, **options)
    if (replay := result.replay) is not None:
        show_replay(replay)
        low, high = loaded.config.env_config.env_kwargs["rows"]
        if trace is None and replay.rows[0] < high and low < replay.rows[1]:
            out.print(f"Rows {low}:{high} are those that it was trained on.", style="dim")
        out.print(f"\nReport: {folder / 'report.html'}", soft_wrap=True)
        return
    for part in tables(result, loaded.config.env_config.rules()):
        out.print(part, style="dim") if isinstance(part, str) else show_table(part)
    out.print(f"Results: {folder / 'results.json'}", soft_wrap=True)


# --- Values of options ---------------------------------------------------------------------------


def _held_out(text: str | None) -> float | tuple[int, int] | None:
    value = None if text is None else value_of(text)
    if value is None or isinstance(value, int | float | tuple):
        return value
    raise ValueError(f"--held-out {text}: give a share such as 0.3, or rows LOW:HIGH")


def _opponents(pairs: list[str]) -> dict[str, str]:
    """agent -> player, of "agent=player"; several may be in one, with commas."""
    found: dict[str, str] = {}
    for text in [part for pair in pairs for part in listed(pair)]:
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
    pairs = [part.partition("=") for part in listed(text)]
    return {agent.strip(): policy.strip() for agent, _, policy in pairs}
