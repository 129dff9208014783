"""Training, evaluation and runs: policies that learn and play.

| name | description |
|---|---|
| ``train``, ``resume`` | train a team and write a run; continue a run |
| ``load_run``, ``Run``, ``RunConfig`` | a run on disk; its policies; its configuration |
| ``evaluate``, ``Evaluation``, ``Player`` | evaluate a run; the result; a team and its play mode |
| ``evaluate_team``, ``evaluate_players`` | evaluate any policies in any environment |
| ``evaluate_seat``, ``evaluate_seats`` | evaluate players of a zero-sum game, seat by seat |
| ``watch`` | show an episode |
| ``agreement``, ``Agreement`` | share of decisions in which policies agree with a teacher |
| ``compare``, ``taught_by`` | the agreement of a run, stored with it; a trainer with a teacher |
| ``replay`` | play policies on the same load of ``dfaas_v0`` |
| ``trainers``, ``trainer_class`` | the trainer registry |
| ``Session``, ``Callback`` | training, update by update; functions called during training |
| ``Evaluate``, ``EarlyStop``, ``StopWhen`` | ready-made callbacks |
| ``Sink`` | a destination for training rows |
| ``Trainer``, ``Update``, ``Content`` | protocol, update and checkpoint of a custom trainer |
| ``Capabilities``, ``Seats`` | optional features of a trainer; the players of other seats |
| ``setting``, ``check_settings`` | define the ``Settings`` of a custom trainer |
| ``NetworkPolicy`` | a trained policy, of any backend |

Each name is imported on first access.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from corral.extensions import required_extension
from corral.extras import require

if TYPE_CHECKING:
    from corral.trainers.base import Content, Trainer, Update, trainer_class, trainers
    from corral.trainers.callbacks.evaluation import Evaluate
    from corral.trainers.callbacks.protocol import Callback
    from corral.trainers.callbacks.sinks import Sink
    from corral.trainers.callbacks.stopping import EarlyStop, StopWhen
    from corral.trainers.capabilities import Capabilities, Seats
    from corral.trainers.cloning.agreement import Agreement, agreement
    from corral.trainers.cloning.driver import compare
    from corral.trainers.cloning.trainer import taught_by
    from corral.trainers.driver import resume, train
    from corral.trainers.evaluation.judge import evaluate
    from corral.trainers.evaluation.players import Player
    from corral.trainers.evaluation.scores import Evaluation, evaluate_players, evaluate_team
    from corral.trainers.evaluation.watch import watch
    from corral.trainers.evaluation.zero_sum import evaluate_seat, evaluate_seats
    from corral.trainers.policies import NetworkPolicy
    from corral.trainers.runs.run import Run, load_run
    from corral.trainers.runs.run_config import RunConfig
    from corral.trainers.session import Session
    from corral.trainers.settings import check_settings, setting

    replay: Callable[..., Any]

__all__ = [
    "Agreement",
    "Callback",
    "Capabilities",
    "Content",
    "EarlyStop",
    "Evaluate",
    "Evaluation",
    "NetworkPolicy",
    "Player",
    "Run",
    "RunConfig",
    "Seats",
    "Session",
    "Sink",
    "StopWhen",
    "Trainer",
    "Update",
    "agreement",
    "check_settings",
    "compare",
    "evaluate",
    "evaluate_players",
    "evaluate_seat",
    "evaluate_seats",
    "evaluate_team",
    "load_run",
    "replay",
    "resume",
    "setting",
    "taught_by",
    "train",
    "trainer_class",
    "trainers",
    "watch",
]

_NAMES = {
    "base": ("Content", "Trainer", "Update", "trainer_class", "trainers"),
    "callbacks.evaluation": ("Evaluate",),
    "callbacks.protocol": ("Callback",),
    "callbacks.sinks": ("Sink",),
    "callbacks.stopping": ("EarlyStop", "StopWhen"),
    "capabilities": ("Capabilities", "Seats"),
    "cloning.agreement": ("Agreement", "agreement"),
    "cloning.driver": ("compare",),
    "cloning.trainer": ("taught_by",),
    "driver": ("resume", "train"),
    "evaluation.judge": ("evaluate",),
    "evaluation.players": ("Player",),
    "evaluation.scores": ("Evaluation", "evaluate_players", "evaluate_team"),
    "evaluation.watch": ("watch",),
    "evaluation.zero_sum": ("evaluate_seat", "evaluate_seats"),
    "policies": ("NetworkPolicy",),
    "runs.run": ("Run", "load_run"),
    "runs.run_config": ("RunConfig",),
    "session": ("Session",),
    "settings": ("check_settings", "setting"),
}

_REGISTERED = ("replay",)
"""Names that moved out of this package and are still available here."""


def __getattr__(name: str) -> Any:
    if name == "NetworkPolicy":
        require("torch", extra="mappo", purpose="play trained policies")
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    if name in _REGISTERED:
        return required_extension(f"trainers.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
