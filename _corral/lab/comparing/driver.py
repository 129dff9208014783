"""``corral.compare``: finished runs, in groups, beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike
from corral.envs.arguments import nonnegative_int
from corral.envs.core import Array
from corral.envs.registry import Api
from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import (
    Given,
    Group,
    Member,
    load_groups,
)
from corral.lab.comparing.marl_eval import is_file, read_marl_eval
from corral.lab.comparing.scores import mean_returns, require_new_seed, scores_of
from corral.lab.comparing.statistics import MIN_SEEDS
from corral.progress import Progress
from corral.trainers.runs.run import Run, but_logs

__all__ = ["compare"]


def compare(
    groups: Mapping[str, Sequence[Given] | Given],
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
    progress: Progress = lambda what, done, total: None,
) -> Comparison:
    """Return which group of runs is better, and how sure that is.

        corral.compare({"mappo": ["runs/a-seed0", ...], "ippo": ["runs/b-seed0", ...]})

    Each run plays the same episodes, greedily, on a seed that none was trained with; a load is
    replayed on rows that were held out. See ``corral.lab.comparing.scores`` for what is
    measured, ``.verdict`` for what groups must show to be called better, docs/comparing.md for what
    the numbers mean.

    Args:
        groups: label -> runs or their folders, RUN@best for a checkpoint; or one JSON file of
            marl-eval's form, which BenchMARL writes: its runs then stand beside by the mean return
            over agents, on episodes of its own.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``.
        episodes: episodes that each run plays; a load is replayed as a whole.
        seed: seed of episodes, others than those of training with it, and of intervals.
        workers: processes that step a third-party environment; 0: this one.
        unequal_steps: compare runs of unequal env steps, too.
        unfinished: compare runs that are not finished, too.
        out: a folder for tables and pictures, see ``Comparison.write``; default: none.
        progress: is called with what goes on, how much of it is done, and how much there is.

    Raises:
        RunError: a folder without a run, or a run that is not finished.
        ValueError: fewer than two groups, an empty one, a run that is given twice, runs of other
            games, arguments, rows, loads or env steps, a file of another form, or a seed that a
            run was trained with.
    """
    episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    listed = {
        str(label): [given] if isinstance(given, str | Path | Run) else but_logs(given)
        for label, given in groups.items()
    }
    files, told = _read(listed)
    of_runs = {label: given for label, given in listed.items() if label not in files}
    if not of_runs:
        raise ValueError("no group of runs: give one, what files hold stands beside it")
    named: dict[str, Any] = {"env_kwargs": env_kwargs, "api": api, "trainer": trainer}
    found, notes = load_groups(
        of_runs, env, model=model, unequal_steps=unequal_steps, unfinished=unfinished, **named
    )
    theirs = {name: group for within in files.values() for name, group in within.items()}
    if len(found) + len(theirs) < 2:
        raise ValueError("one group of runs: name another to compare it with")
    for name in theirs:
        if name in found or sum(name in within for within in files.values()) > 1:
            raise ValueError(f"two groups are called {name}: give each a name")
    runs = {run.name: run for group in found.values() for run in group}
    require_new_seed([*runs.values()], seed)
    rules = next(iter(runs.values())).config.env_config.rules()
    plan: dict[str, Any] = {
        "episodes": episodes,
        "seed": seed,
        "workers": workers,
        "progress": progress,
    }
    metric, scores = (mean_returns if theirs else scores_of)(runs, **plan)
    over = len(rules.agents) if theirs else 1
    ours = {
        label: tuple(_member(run, scores[run.name], over) for run in group)
        for label, group in found.items()
    }
    result = Comparison(
        env=next(iter(runs.values())).config.env_config.env,
        metric=metric,
        groups={**ours, **theirs},
        notes=[*notes, *told, *_told_of_few({**ours, **theirs})],
        agents=1 if theirs else len(rules.agents),
        seed=seed,
        versions=next(iter(runs.values())).config.versions,
    )
    if out is not None:
        result.write(out)
    return result


def _read(groups: Mapping[str, Sequence[Given]]) -> tuple[dict[str, dict[str, Group]], list[str]]:
    """Return what the files among the groups hold, label -> name -> runs, and what to say of it.

    Files of one group are read as one: BenchMARL writes one for each run.
    """
    read: dict[str, dict[str, Group]] = {}
    notes = []
    for label, given in groups.items():
        if not any(map(is_file, given)):
            continue
        if not all(map(is_file, given)):
            raise ValueError(f"{label} holds runs and files: give each a group of its own")
        within: dict[str, Group] = {}
        tasks = set()
        for path in given:
            task, found = read_marl_eval(str(path))
            tasks.add(task)
            for algorithm, runs in found.items():
                within[algorithm] = (*within.get(algorithm, ()), *runs)
        if len(tasks) > 1:
            raise ValueError(f"{label} holds files of several tasks: {', '.join(sorted(tasks))}")
        named = {label: next(iter(within.values()))}
        if len(within) > 1:
            named = {f"{label}-{algorithm}": runs for algorithm, runs in within.items()}
        read[label] = named
        steps = max(run.env_steps for group in named.values() for run in group)
        notes.append(
            f"{', '.join(named)}: read from files of {min(tasks)}, {steps:,} env steps. Scores are "
            "those of its own last evaluation, on other episodes; a return is the mean over agents."
        )
    return read, notes


def _member(run: Run, score: float, over: int) -> Member:
    """Return a run with its score, and the team's return in training divided by ``over``."""
    progress = run.progress
    curve = progress.dropna(subset=["return_team"])
    steps, returns = curve["env_steps"].to_numpy(float), curve["return_team"].to_numpy(float) / over
    elapsed: Array = curve["wall_s"].to_numpy(float)
    if np.ptp(returns) == 0 if len(returns) else True:
        steps, returns, elapsed = steps[:0], returns[:0], elapsed[:0]  # nothing is to be seen
    last = int(progress["env_steps"].iloc[-1])
    if run.at is not None:
        last = int(run.checkpoint().name.split("_")[1])
    return Member(run.name, run.config.seed, last, score, steps, returns, elapsed)


def _told_of_few(groups: Mapping[str, Group]) -> list[str]:
    few = [f"{name} {len(group)}" for name, group in groups.items() if len(group) < MIN_SEEDS]
    if not few:
        return []
    return [f"No intervals below {MIN_SEEDS} runs, they would be too narrow: {', '.join(few)}."]
