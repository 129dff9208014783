"""``corral.compare``: compare groups of finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike
from corral.envs.arguments import nonnegative_int
from corral.envs.core import Array
from corral.envs.registry import Api
from corral.errors import concise
from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import (
    Group,
    Member,
    RunLike,
    load_groups,
)
from corral.lab.comparing.marl_eval import is_file, read_marl_eval
from corral.lab.comparing.scores import mean_returns, require_new_seed, scores_of
from corral.lab.comparing.statistics import MIN_SEEDS
from corral.progress import Progress, cell_progress
from corral.trainers.runs.run import Run, without_logs

__all__ = ["compare"]


@concise
def compare(
    groups: Mapping[str, Sequence[RunLike] | RunLike],
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
    episodes: int = 100,
    seed: int = 0,
    workers: int = 0,
    unequal_steps: bool = False,
    unfinished: bool = False,
    out: str | Path | None = None,
    progress: Progress = cell_progress,
) -> Comparison:
    """Return a comparison of groups of runs, with intervals and a verdict.

        corral.compare({"mappo": ["runs/a-seed0", ...], "ippo": ["runs/b-seed0", ...]})

    All runs play the same episodes, greedily, on a seed unused in training. A load is replayed on
    held-out rows. ``corral.lab.comparing.scores`` documents the scores. docs/comparing.md explains
    the numbers and the conditions of a verdict.

    Args:
        groups: label -> runs or their folders, RUN@best for a checkpoint; or one JSON file in
            marl-eval format, which BenchMARL writes. Its scores are mean returns over agents, from
            other episodes.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``.
        episodes: number of episodes per run; a load is replayed as a whole.
        seed: seed of the episodes, which differ from those of training with this seed, and of the
            bootstrap intervals.
        workers: processes that step a third-party environment; 0: this process.
        unequal_steps: allow runs with unequal env steps.
        unfinished: allow runs that are not finished.
        out: a folder for tables and pictures, see ``Comparison.write``; default: none.
        progress: called with a label, the amount done and the total.

    Raises:
        RunError: a folder without a run, or a run that is not finished.
        ValueError: fewer than two groups, an empty group, a duplicate run, runs with different
            environments, arguments, rows, loads or env steps, an invalid file, or a seed that was
            used in training.
    """
    episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    if not isinstance(groups, Mapping):
        raise TypeError(
            "compare takes groups of runs, by name, each with several seeds: "
            'corral.compare({"a": ["runs/a-seed0", "runs/a-seed1"], "b": ["runs/b-seed0"]})'
        )
    members_of = {
        str(label): [members] if isinstance(members, str | Path | Run) else without_logs(members)
        for label, members in groups.items()
    }
    files, file_notes = _read(members_of)
    run_groups = {label: members for label, members in members_of.items() if label not in files}
    if not run_groups:
        raise ValueError(
            "no group of runs: files can only be compared with runs; add a group of runs"
        )
    run_options: dict[str, Any] = {"env_kwargs": env_kwargs, "api": api, "trainer": trainer}
    runs_of, notes = load_groups(
        run_groups,
        env,
        model=model,
        unequal_steps=unequal_steps,
        unfinished=unfinished,
        **run_options,
    )
    file_groups = {name: group for names in files.values() for name, group in names.items()}
    if len(runs_of) + len(file_groups) < 2:
        raise ValueError("only one group: add another group to compare it with")
    for name in file_groups:
        if name in runs_of or sum(name in names for names in files.values()) > 1:
            raise ValueError(f"two groups are named {name}: give each group a different name")
    runs = {run.name: run for group in runs_of.values() for run in group}
    require_new_seed([*runs.values()], seed)
    rules = next(iter(runs.values())).config.env_config.rules()
    plan: dict[str, Any] = {
        "episodes": episodes,
        "seed": seed,
        "workers": workers,
        "progress": progress,
    }
    metric, scores = (mean_returns if file_groups else scores_of)(runs, **plan)
    over = len(rules.agents) if file_groups else 1
    scored_groups = {
        label: tuple(_member(run, scores[run.name], over) for run in group)
        for label, group in runs_of.items()
    }
    result = Comparison(
        env=next(iter(runs.values())).config.env_config.env,
        metric=metric,
        groups={**scored_groups, **file_groups},
        notes=[*notes, *file_notes, *_notes_on_few_runs({**scored_groups, **file_groups})],
        agents=1 if file_groups else len(rules.agents),
        seed=seed,
        versions=next(iter(runs.values())).config.versions,
    )
    if out is not None:
        result.write(out)
    return result


def _read(groups: Mapping[str, Sequence[RunLike]]) -> tuple[dict[str, dict[str, Group]], list[str]]:
    """Return label -> name -> runs for the groups that are files, and notes about them.

    All files of a group are merged, because BenchMARL writes one file per run.
    """
    read: dict[str, dict[str, Group]] = {}
    notes = []
    for label, members in groups.items():
        if not any(map(is_file, members)):
            continue
        if not all(map(is_file, members)):
            raise ValueError(f"{label} contains runs and files: put them in separate groups")
        runs_of: dict[str, Group] = {}
        tasks = set()
        for path in members:
            task, algorithms = read_marl_eval(str(path))
            tasks.add(task)
            for algorithm, runs in algorithms.items():
                runs_of[algorithm] = (*runs_of.get(algorithm, ()), *runs)
        if len(tasks) > 1:
            raise ValueError(f"{label} contains files of several tasks: {', '.join(sorted(tasks))}")
        named = {label: next(iter(runs_of.values()))}
        if len(runs_of) > 1:
            named = {f"{label}-{algorithm}": runs for algorithm, runs in runs_of.items()}
        read[label] = named
        steps = max(run.env_steps for group in named.values() for run in group)
        notes.append(
            f"{', '.join(named)}: read from files of {min(tasks)}, {steps:,} env steps. The scores "
            "come from the files' last evaluation, on other episodes; a return is the mean over "
            "agents."
        )
    return read, notes


def _member(run: Run, score: float, over: int) -> Member:
    """Return a run with its score and its training curve: the team return divided by ``over``."""
    progress = run.progress
    curve = progress.dropna(subset=["return_team"])
    steps, returns = curve["env_steps"].to_numpy(float), curve["return_team"].to_numpy(float) / over
    elapsed: Array = curve["wall_s"].to_numpy(float)
    if np.ptp(returns) == 0 if len(returns) else True:
        steps, returns, elapsed = steps[:0], returns[:0], elapsed[:0]  # the curve is flat or empty
    last = int(progress["env_steps"].iloc[-1])
    if run.at is not None:
        last = int(run.checkpoint().name.split("_")[1])
    return Member(run.name, run.config.seed, last, score, steps, returns, elapsed)


def _notes_on_few_runs(groups: Mapping[str, Group]) -> list[str]:
    few = [f"{name} {len(group)}" for name, group in groups.items() if len(group) < MIN_SEEDS]
    if not few:
        return []
    return [
        f"No intervals below {MIN_SEEDS} runs, because they would be too narrow: {', '.join(few)}."
    ]
