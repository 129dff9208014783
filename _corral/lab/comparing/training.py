"""Train the runs of a comparison that are not there yet, side by side."""

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
    """Return the folders of each trainer's runs: OUT/mappo-seed0, ..."""
    return {
        trainer: [out / f"{trainer.replace('/', '_')}-seed{seed}" for seed in range(seeds)]
        for trainer in trainers
    }


def jobs_of(
    out: Path, env: str, trainers: Sequence[str], seeds: int, options: Sequence[str] = ()
) -> list[Job]:
    """Return a run for each trainer and seed, all trainers of a seed before the next: what is
    there when it is broken off can be compared."""
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
    """Return how many runs are missing, and of how many env steps each."""
    missing = [job for job in jobs if not is_finished(job.folder)]
    steps = inspect.signature(train).parameters["steps"].default
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        value = value if equals else "".join(options[at + 1 : at + 2])
        if name == "--steps" and value.isdigit():
            steps = int(value)
    return Pace(len(missing), steps, processes)


def trained(jobs: Sequence[Job], processes: int = 1) -> Iterator[Ended]:
    """Train ``jobs`` and yield each as it ends; those that are finished are not trained again.

    Raises RunError at the first that ends badly, with what its process said last.
    """
    for ended in play(jobs, processes):
        if ended.code:
            raise RunError(f"{ended.job.folder} ended with {ended.code}: {ended.words}")
        yield ended
