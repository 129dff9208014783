"""Train the missing runs of a comparison in parallel."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from corral.errors import RunError
from corral.lab.jobs import Ended, Job, is_finished, play
from corral.lab.pace import Pace
from corral.trainers.driver import train

__all__ = ["folders_of", "jobs_of", "pace_of", "trained"]


def folders_of(out: Path, trainers: Sequence[str], seeds: int) -> dict[str, list[Path]]:
    """Return trainer -> folders of its runs: OUT/mappo-seed0, ..."""
    return {
        trainer: [out / f"{trainer.replace('/', '_')}-seed{seed}" for seed in range(seeds)]
        for trainer in trainers
    }


def jobs_of(
    out: Path, env: str, trainers: Sequence[str], seeds: int, options: Sequence[str] = ()
) -> list[Job]:
    """Return one job per trainer and seed. All trainers of a seed come before the next seed.

    So the finished runs of an interrupted comparison cover all trainers.
    """
    folders = folders_of(out, trainers, seeds)
    return [
        Job(
            folders[trainer][seed],
            (env, "--trainer", trainer, "--seed", str(seed), *options),
        )
        for seed in range(seeds)
        for trainer in trainers
    ]


def pace_of(jobs: Sequence[Job], processes: int, options: Sequence[str]) -> Pace:
    """Return the pace of the missing runs: their number and their env steps."""
    missing = [job for job in jobs if not is_finished(job.folder)]
    steps = inspect.signature(train).parameters["steps"].default
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        value = value if equals else "".join(options[at + 1 : at + 2])
        if name == "--steps" and value.isdigit():
            steps = int(value)
    return Pace(len(missing), steps, processes)


def trained(jobs: Sequence[Job], processes: int = 1) -> Iterator[Ended]:
    """Train ``jobs`` and yield each one when it ends; finished runs are not trained again.

    Raises RunError if a run fails, with the last line of its output.
    """
    for ended in play(jobs, processes):
        if ended.code:
            raise RunError(f"{ended.job.folder} ended with {ended.code}: {ended.last_line}")
        yield ended
