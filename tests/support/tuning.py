"""Trainings of a study in this process, one after the other: a test need not wait for imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from corral.lab.jobs import Ended, Job, is_finished

__all__ = ["SMALL", "in_this_process"]

SMALL: dict[str, Any] = {"steps": 100, "num_envs": 4, "n_steps": 5, "net_arch": (8,)}
SMALL["checkpoint_every"] = 1000  # one, at the end


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Let studies train in this process; return the list that each training goes into."""
    from corral.cli.app import app

    begun: list[Job] = []

    def play(
        jobs: Iterable[Job | None],
        processes: int = 1,
        *,
        watch: Callable[[Job], bool] | None = None,
        threads: int | None = None,
    ) -> Iterator[Ended]:
        for job in jobs:
            assert job is not None, "it waits for what nobody plays"
            code = None
            if not is_finished(job.folder):
                begun.append(job)
                result = CliRunner().invoke(app, job.cli_arguments())
                job.log.write_text(result.output)
                code = result.exit_code
            yield Ended(job, code)

    monkeypatch.setattr("corral.lab.tuning.trials.play", play)
    return begun
