"""``corral compare``: compare groups of runs, or trainers over several seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

import corral
from corral.cli.base import Command
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import unknown_option
from corral.cli.options import (
    ANY_OPTION,
    arguments_of,
    import_from_here,
    is_third_party,
    listed,
    whole,
)
from corral.cli.output import check_new, out, progress_bar, reported, show_table
from corral.cli.run_options import RunApi, RunArguments, RunEnv, RunModel, RunTrainer
from corral.errors import RunError, StudyError, UnknownNameError
from corral.files import write_file

__all__ = ["add_to"]

STUDY = "study.json"
"""File with the training command of the runs in a folder, to detect runs of another study."""


class Study(TypedDict):
    """Content of the file STUDY."""

    env: str
    options: list[str]


class CompareCommand(Command):
    """A command in which --against takes all words up to the next option.

    The shell expands a pattern such as runs/b-* to many words.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            joined.append(word := rest.pop(0))
            group = []
            while word == "--against" and rest and not rest[0].startswith("--"):
                group.append(rest.pop(0))
            if group:
                joined.append("\n".join(group))
        return super().parse_args(ctx, joined)


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command(cls=CompareCommand, context_settings=ANY_OPTION)(compare)


@declared(lambda: corral.compare)
@reported
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Folders of finished runs: the first group. Or, with --trainers, an environment "
            "and options of corral train.",
            metavar="RUNS... | ENV",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUNS...",
            help="Another group of runs, up to the next option; may be repeated. LABEL=FILE.json "
            "reads a file in marl-eval format, which BenchMARL writes.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a group, in the order of the groups; may be repeated. Default: the "
            "common part of its folders' names."
        ),
    ] = None,
    trainers: Annotated[
        str | None,
        typer.Option(
            metavar="<mappo,ippo>", help="Trainers to compare in ENV. Missing runs are trained."
        ),
    ] = None,
    seeds: Annotated[int, whole("With --trainers: runs per trainer, with seeds 0, 1, ...")] = 5,
    jobs: Annotated[int, whole("With --trainers: number of runs trained in parallel.")] = 1,
    episodes: Declared = ...,
    seed: Declared = ...,
    unequal_steps: Declared = ...,
    unfinished: Declared = ...,
    workers: DeclaredNumber = ...,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for tables and pictures; default: none. With --trainers, it also holds "
            "the runs; default: runs/compare-ENV.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results in the folder of --out.")
    ] = False,
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: RunModel = None,
    trainer: RunTrainer = None,
) -> None:
    """Compare groups of runs, with intervals and a verdict.

    For finished runs: corral compare runs/a-seed* --against runs/b-seed*. For trainers: corral
    compare arena_v0 --trainers mappo,ippo --seeds 5 --jobs 2. This trains the missing runs first;
    repeat the command to resume it. All runs play the same episodes, greedily, on a seed unused in
    training. A load is replayed on held-out rows. No verdict is given below 5 runs in a group.
    """
    from corral.lab.comparing.comparison import FILES
    from corral.lab.comparing.tables import comparison_tables

    import_from_here()
    words = runs or []
    api_options: dict[str, Any] = {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    api_options |= {"model": model, "trainer": trainer}
    if trainers is None:
        groups = _groups(context, words, against or [], name or [])
        if out_dir is not None:
            check_new(out_dir, folder=True, files=FILES, overwrite=overwrite)
    else:
        if against or not words:
            raise ValueError(
                "--trainers takes an environment and excludes --against, as in: "
                "corral compare arena_v0 --trainers mappo,ippo"
            )
        env, options = words[0], words[1:]
        for option, values in (("--arg", arg or []), ("--api", [api]), ("--model", [model])):
            options += [word for value in values if value for word in (option, str(value))]
        out_dir = out_dir or Path("runs") / f"compare-{env.replace('/', '-').replace(':', '-')}"
        groups = _trained(out_dir, env, listed(trainers), seeds, jobs, options)
        env = env if is_third_party(env) else None
    with progress_bar() as show:
        result = corral.compare(
            groups,
            env,
            **api_options,
            episodes=episodes,
            seed=seed,
            workers=workers,
            unequal_steps=unequal_steps,
            unfinished=unfinished,
            progress=show,
        )
    out.print(result.verdict)
    for part in comparison_tables(result):
        out.print(part, style="dim") if isinstance(part, str) else show_table(part)
    if out_dir is not None:
        written = result.write(out_dir)
        out.print(f"Results: {out_dir}, {', '.join(written)}", soft_wrap=True)
        if "curves.svg" not in written:
            out.print(
                "No learning curves: each run needs at least two different rows, at env steps "
                "that all runs share."
            )


def _groups(
    context: typer.Context, first: list[str], against: list[str], names: list[str]
) -> dict[str, list[str]]:
    """Return label -> runs, or label -> files for a group of result files."""
    from corral.lab.comparing.groups import labels_of
    from corral.trainers.runs.run import without_logs

    for word in first:
        if word.startswith("-"):
            known = [each for one in context.command.get_params(context) for each in one.opts]
            known.remove("--arg")
            raise UnknownNameError(unknown_option(word, known, "See corral compare --help"))
    if not first or not against:
        raise ValueError(
            "name two groups of runs: corral compare runs/a-* --against runs/b-*; or trainers: "
            "corral compare arena_v0 --trainers mappo,ippo"
        )
    groups, labels = [], []
    for i, named in enumerate([first, *(text.split("\n") for text in against)]):
        if not (words := without_logs(named)):
            raise RunError(f"{named[0]} is a log, not a run; name folders of runs")
        label, equals, path = words[0].partition("=")
        is_labeled = bool(equals) and path.endswith(".json") and not Path(words[0]).exists()
        groups.append([path, *words[1:]] if is_labeled else words)
        labels.append(names[i] if i < len(names) else label if is_labeled else None)
    return dict(zip(labels_of(groups, [*labels, *names[len(groups) :]]), groups, strict=True))


def _trained(
    folder: Path, env: str, trainers: list[str], seeds: int, processes: int, options: Sequence[str]
) -> dict[str, list[str]]:
    """Train the missing runs. Return label -> folders of the runs."""
    from corral.lab.comparing.training import folders_of, jobs_of, pace_of, trained
    from corral.lab.jobs import require_room
    from corral.trainers.base import find_trainer

    if len(trainers) < 2 or len({*trainers}) < len(trainers):
        raise ValueError(f"--trainers {','.join(trainers)}: give two or more different trainers")
    if seeds < 1 or processes < 1:
        raise ValueError(f"--seeds {seeds} --jobs {processes}: give 1 or more of each")
    require_room(trainers=len(trainers), seeds=seeds)
    for name in trainers:
        find_trainer(name)
    _require_same_study(folder, {"env": env, "options": list(options)})
    jobs = jobs_of(folder, env, trainers, seeds, options)
    pace = pace_of(jobs, processes, options)
    if pace.runs:
        out.print(pace.planned())
    try:
        for ended in trained(jobs, processes):
            did = "already exists" if ended.code is None else "is trained"
            out.print(f"{ended.job.folder} {did}", style="dim", soft_wrap=True)
            if ended.code == 0 and (text := pace.ended()):
                out.print(text)
    except KeyboardInterrupt:
        out.print("Stopped. Repeat the command to resume.")
        raise typer.Exit(130) from None
    folders = folders_of(folder, trainers, seeds)
    return {trainer: [str(name) for name in group] for trainer, group in folders.items()}


def _require_same_study(folder: Path, study: dict[str, Any]) -> None:
    """Write or check the study file of ``folder``. Raises StudyError if its runs differ."""
    from corral.trainers.file_fields import read_fields
    from corral.trainers.runs.run import is_run

    file = folder / STUDY
    if folder.is_dir() and any(map(is_run, folder.iterdir())):
        try:
            existing = read_fields(file, Study, max_bytes=2**20, error=StudyError, folder=folder)
        except FileNotFoundError:
            existing = study
        except StudyError as error:
            raise StudyError(
                f"{error}; if the folder holds no comparison, give another --out"
            ) from error
        if existing != study:
            command = " ".join([existing["env"], *existing["options"]])
            raise StudyError(f"{file} belongs to corral train {command}; give another --out")
        if file.exists():
            return
    write_file(file, json.dumps(study, indent=1) + "\n", folder=folder)
