"""The next commands for a run that does not learn although no fault was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from corral.data import Trace, bundled
from corral.errors import CorralError
from corral.lab.doctor.choices import Learnable
from corral.lab.doctor.verdict.learning import Learning
from corral.results import plain
from corral.text import pasted
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run

__all__ = ["Step", "next_steps"]

LONGER = 4
"""Factor on the env steps of a run that is trained further."""

MINUTE = 60

SPLIT = ("rows", "start")
"""Arguments that the division of the data sets."""


@dataclass(frozen=True)
class Step:
    """One next step: a reason, and a command that can be pasted into a shell."""

    reason: str
    command: str


def next_steps(run: Run, learning: Learning | None, choices: Learnable | None) -> Iterator[Step]:
    """Yield the next steps, most useful first."""
    config = run.config
    named = config.named(run.folder)
    steps = LONGER * max(1, config.steps)
    longer = Step("train on", f"corral train --resume {named} --steps {steps}")
    if learning is not None and learning.hopeless:
        yield Step("measure how much an opponent wins that knows it", f"corral exploit {named}")
    early = learning is None or learning.too_early
    if early:
        yield longer
    environment = environment_words(run)
    if environment is not None and (choices is None or not settled(choices)):
        yield Step(
            "test longer if choices matter",
            f"corral check {environment} --learnable --seconds {2 * MINUTE}",
        )
    if not early:
        yield longer
    if environment is not None:
        trainer = "ippo" if config.trainer == "mappo" else "mappo"
        out = run.folder.with_name(f"{run.folder.name}-{trainer}")
        yield Step(
            "train another algorithm with its defaults",
            f"corral train {environment} --trainer {trainer} --steps {max(1, config.steps)} "
            f"--out {pasted(out)}",
        )
    if learning is not None:
        yield Step("compare it in more episodes", f"corral evaluate {named}")


def settled(choices: Learnable) -> bool:
    """Return True if the test showed that choices matter: a longer one can add little."""
    return choices.scripts.matters or any(fork.matters for fork in choices.forked)


def environment_words(run: Run) -> str | None:
    """Return the environment of a run as command-line words; None if no words name it."""
    config = run.config.env_config
    if config.own_rules is not None:
        name, kwargs = config.source, dict(config.env_kwargs)
        if name is None:
            return None
    else:
        name, kwargs = config.env, _needed_arguments(config)
    words = [pasted(name)]
    for key, value in kwargs.items():
        text = value.name if isinstance(value, Trace) and value.name in bundled() else value
        if not isinstance(text, str | int | float):
            return None
        words.append(f"--arg {pasted(f'{key}={text}')}")
    return " ".join(words)


def _needed_arguments(config: EnvConfig) -> dict[str, Any]:
    """Return the arguments without which the environment would differ from the default."""
    kept = {
        key: value
        for key, value in config.env_kwargs.items()
        if key not in SPLIT and value is not None
    }
    complete = _comparable(config.env_kwargs)
    for key in list(kept):
        fewer = {name: value for name, value in kept.items() if name != key}
        try:
            same = _comparable(EnvConfig.of(config.env, fewer).env_kwargs) == complete
        except (CorralError, TypeError, ValueError):  # arguments that need each other
            same = False
        kept = fewer if same else kept
    return kept


def _comparable(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: getattr(value, "digest", None) or plain(value) for key, value in kwargs.items()}
    return {key: value for key, value in values.items() if key not in SPLIT}
