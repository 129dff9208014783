"""Compare the parts of a run with corral's own: which of the user's parts costs the learning?

    result = against("runs/mine", trainer="my_file.py:mine")
    print(result.text())

The run is the bad side, its configuration with corral's own parts the good side (``stock_of``). If
they do not differ in learning, the same configuration is trained again without the user's script.
If all of these trainings are better than the run, its script or a callback is the cause.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.adapters.sources import EnvLike
from corral.envs.registry import Api
from corral.lab.bisect.driver import SECONDS, OutOfTime, Trainings, bisected_configs
from corral.lab.bisect.result import Bisection, Cause
from corral.lab.bisect.sides import Difference, stock_of
from corral.lab.bisect.training import MixedConfigs, score_of
from corral.progress import Progress
from corral.trainers.runs.run import load_run

__all__ = ["against"]

AGAIN = 19
"""Number of trainings of the run's configuration. If all are better than the run, p = 1 / 20."""

NO_PART = (
    "These parts cost nothing. If the team plays badly nevertheless, examine the environment: its "
    "observations, rewards and ends. corral check ENV --learnable tests whether choices matter."
)


def against(
    run: str | Path,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
    seconds: float = SECONDS,
    out: str | Path | None = None,
    progress: Progress = lambda label, done, total: None,
) -> Bisection:
    """Find the parts of a run that cost the learning, compared with corral's own parts.

    ``run``, ``env``, ``env_kwargs``, ``api``, ``trainer`` and ``model``: see ``corral.load_run``;
    the rest as for ``corral.bisect``. Raises the errors of both.
    """
    loaded = load_run(run, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
    config, folder = loaded.config, None if out is None else Path(out)
    labels = ("corral's own parts", loaded.name)
    stock = stock_of(config)
    result = bisected_configs(stock, config, labels, None, seconds, folder, progress)
    if result.verdict not in ("equal", "no difference"):
        return result
    # The whole length of the run, because its policies are compared with these trainings.
    mixed = MixedConfigs(config, config, config.steps)
    trainings = Trainings(mixed, seconds, None, "again", progress)
    scores: list[float] = []
    try:
        score = score_of(loaded.policies, config.env_config.rules(), config, config.seed)
        while len(scores) < AGAIN and score < min([*scores, float("inf")]):
            scores.append(trainings.score((), config.seed + 1 + len(scores)))
    except OutOfTime:
        return dataclasses.replace(result, note=f"{result.note} {NO_PART}".strip())
    total = dataclasses.replace(
        result, trainings=result.trainings + len(scores), cpu=result.cpu + trainings.cpu
    )
    if score >= min(scores):
        return dataclasses.replace(total, note=f"{result.note} {NO_PART}".strip())
    script = Difference("script", "", "corral.train", loaded.name)
    cause = Cause((script,), 1 / (AGAIN + 1), statistics.median(scores), score, AGAIN)
    return dataclasses.replace(
        total,
        verdict="found",
        differences=(*result.differences, script),
        causes=(cause,),
        rest_learns=True,
        note="The configuration learns without the run's script: examine its loop and callbacks.",
    )
