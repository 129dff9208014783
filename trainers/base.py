"""The protocol of trainers, and the registry of them.

A trainer is a class that plays an environment and learns from it. ``corral.trainers.train`` drives
it: it writes the run directory, the checkpoints and the progress, and ends cleanly on a signal.
Others add a trainer through the entry-point group ``corral.trainers``:

    [project.entry-points."corral.trainers"]
    my_trainer = "my_package:MyTrainer"
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from corral.envs.core import Array, Rules
from corral.envs.episode_stats import Episode
from corral.envs.policy import Policy
from corral.errors import ArgumentError, CheckpointError, UnknownNameError
from corral.extensions import required_extension
from corral.extras import require
from corral.named import is_named, named_object, source_digest

__all__ = [
    "BUILT_IN",
    "Algorithm",
    "Content",
    "Episode",
    "FoundTrainer",
    "Trainer",
    "Update",
    "find_trainer",
    "require_arrays",
    "trainer_class",
    "trainers",
    "unwrapped",
]


@dataclass(frozen=True)
class Update:
    """One update: the rollout that was played, and the metrics of learning from it."""

    env_steps: int  # played since the run began, by all environments together
    episodes: Sequence[Episode]  # that ended in the rollout
    metrics: dict[str, float]  # losses and the like; fewer where nothing was learned from
    seconds: dict[str, float]  # spent in "env", "inference", "learning"
    rewards: Mapping[str, float] | None = None  # agent -> its mean reward per env step of it


@dataclass(frozen=True, eq=False)
class Content:
    """Content of a checkpoint. Names are lower-case letters, digits and underscores."""

    documents: dict[str, Any]  # name -> JSON value, kept in <name>.json; tuples become lists
    arrays: dict[str, dict[str, Array]]  # name -> named arrays, kept in <name>.safetensors


def require_arrays(
    file: str,
    given: Mapping[str, Array],
    expected: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
) -> None:
    """Raise CheckpointError that names every difference in names, shapes and dtypes."""
    faults = [f"{name!r} is missing" for name in sorted(expected.keys() - given.keys())]
    faults += [f"{name!r} is not expected" for name in sorted(given.keys() - expected.keys())]
    for name in sorted(expected.keys() & given.keys()):
        array, (shape, dtype) = given[name], expected[name]
        if array.shape != tuple(shape) or array.dtype != dtype:
            faults.append(f"{name!r} is {array.dtype} {array.shape}, expected {dtype} {shape}")
    if faults:
        raise CheckpointError(
            f"{file}: does not fit: {'; '.join(faults)}. "
            "Load it with the settings that it was saved with"
        )


def unwrapped(batch: Any) -> Any:
    """Return a batch as it is: what ``wrap_batch`` of a trainer does until it is told otherwise."""
    return batch


class Trainer(Protocol):
    """Learns policies for the agents of an environment.

    ``Settings`` is a frozen dataclass of JSON values, see ``corral.trainers.settings``: the options
    of ``corral train`` are made of it.

    A trainer that needs more to learn than to play has ``check()``, which raises what is missing:
    it is called before a new run gets its folder.

    A trainer with ``plays_opponents = True`` lets others play some agents: it gets ``opponents=``,
    agent -> a player or a mix as text (``corral.trainers.opponents``), where there are any, with
    ``opponent_runs=``, where runs are among them, and ``policies`` leave them out. One with
    ``takes_settings_of = True`` gets ``settings_of=``, policy -> setting -> value, where there are
    any. One with ``plays_turns = False`` refuses games in which agents act in turn. One with
    ``takes_validation = True`` gets ``validation_rules=``, where rows are kept for validation; one
    with ``takes_model = True`` gets ``model=``, a function that makes networks, where one is given.

    One attribute may be set before it learns, where a trainer has it: ``wrap_batch`` (see
    ``unwrapped``) is called with the batch that it plays in, and gives what it is to play in
    instead, so that metrics see whole episodes. With ``observe(observer)`` it lets others look on,
    see ``corral.trainers.observers``. ``remark``, where there is one, is a line that a new run
    says, or None.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
    ) -> None:
        """``policies`` names each agent's policy; those not to train only play.

        ``steps``: env steps that are planned; what is annealed ends there, and stays at its end.
        """

    @property
    def env_steps(self) -> int:
        """Steps played since the run began."""
        ...

    @property
    def policies(self) -> Mapping[str, Policy]:
        """agent -> its policy, as learned so far."""
        ...

    @property
    def resumes_exactly(self) -> bool:
        """True where ``load`` restores the very moment; else episodes begin anew."""
        ...

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Train until ``steps`` env steps are played, and yield after each update.

        Default: all that are planned. In whole rollouts: as many as fit, at least one.
        """
        ...

    def save(self) -> Content:
        """Return all that decides how training goes on."""
        ...

    def load(self, content: Content) -> None:
        """Go on from what ``save`` returned. Raises CheckpointError where it does not fit."""
        ...

    def export(self, folder: Path) -> list[Path]:
        """Write the policies in the format of the library behind, into an empty folder."""
        ...

    def close(self) -> None:
        """End worker processes, if there are any; may be called again."""
        ...


# --- Registry ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainerSpec:
    """An entry of the registry: a trainer of corral, and what it needs. Its class is registered in
    ``corral.registration``."""

    name: str
    needs: tuple[str, str]  # a module, and the extra that brings it
    summary: str

    def lacks(self) -> str | None:
        """Return the extra that learning with it needs and that is not installed; else None."""
        module, extra = self.needs
        both = (module, LEARNS_WITH.get(extra, module))
        return None if all(map(importlib.util.find_spec, both)) else extra


LEARNS_WITH = {"rllib": "ray", "benchmarl": "benchmarl"}
"""Extra -> the module that learns, where another one is enough to play."""


def _on_policy(name: str, summary: str) -> TrainerSpec:
    return TrainerSpec(name, ("torch", "mappo"), summary)


BUILT_IN = {
    spec.name: spec
    for spec in (
        TrainerSpec(
            "sb3_ppo",
            ("stable_baselines3", "sb3"),
            "Stable-Baselines3's PPO; its policy reads the mask from the observation",
        ),
        TrainerSpec(
            "sb3_maskable_ppo",
            ("sb3_contrib", "sb3"),
            "sb3-contrib's MaskablePPO, which is handed the masks",
        ),
        TrainerSpec(
            "sb3_a2c",
            ("sb3_contrib", "sb3"),  # its module has MaskablePPO, too
            "Stable-Baselines3's A2C; its policy reads the mask from the observation",
        ),
        TrainerSpec(
            "sb3_dqn",
            ("stable_baselines3", "sb3"),
            "Stable-Baselines3's DQN; explores and bootstraps with legal actions alone",
        ),
        _on_policy(
            "mappo",
            "PPO for teams of any kind, with a critic that sees everything; in house",
        ),
        _on_policy("ippo", "the same with a critic that sees what its agent sees"),
        _on_policy(
            "ppo_kl",
            "ippo with an adaptive penalty on the KL divergence instead of clipping",
        ),
        _on_policy(
            "a2c",
            "advantage actor-critic: one step on each rollout, with the critic as baseline",
        ),
        _on_policy(
            "pg",
            "policy gradient: each decision is weighed by the rewards that come after it",
        ),
        _on_policy(
            "pg_episode",
            "the same without reward to go: weighed by the return of the whole episode",
        ),
        TrainerSpec(
            "clone",
            ("torch", "mappo"),
            "masked cross-entropy on the decisions of a teacher; corral clone calls it",
        ),
        TrainerSpec(
            "policy_iteration",
            ("torch", "mappo"),
            "regression on what other actions would have earned, by copies of each moment",
        ),
        TrainerSpec(
            "rllib_ppo",
            ("torch", "rllib"),  # to play; to learn, its check() asks for Ray
            "RLlib's PPO, for clusters: played by processes on any number of machines",
        ),
        # To play, they need torch alone; to learn, their check() asks for BenchMARL.
        TrainerSpec(
            "benchmarl_vdn",
            ("torch", "benchmarl"),
            "BenchMARL's VDN: values of the agents' actions that add up to the team's",
        ),
        TrainerSpec(
            "benchmarl_qmix",
            ("torch", "benchmarl"),
            "BenchMARL's QMIX: the same, mixed by a network that sees the global state",
        ),
        TrainerSpec(
            "benchmarl_iql",
            ("torch", "benchmarl"),
            "BenchMARL's IQL: Q-learning, each agent for itself",
        ),
        TrainerSpec(
            "benchmarl_masac",
            ("torch", "benchmarl"),
            "BenchMARL's MASAC: soft actor-critic with a critic that sees everything",
        ),
    )
}

GROUP = "corral.trainers"


def trainers() -> dict[str, str]:
    """Return a line about each trainer: corral's own, and those of other packages."""
    found = {name: spec.summary for name, spec in BUILT_IN.items()}
    for point in metadata.entry_points(group=GROUP):
        found.setdefault(point.name, f"of {point.value}")
    return found


class Algorithm(Protocol):
    """A record of ``corral.algorithms``: what makes a trainer of itself."""

    @property
    def name(self) -> str: ...

    def as_trainer(self) -> type[Trainer]: ...


@dataclass(frozen=True)
class FoundTrainer:
    """A trainer that a user gave in one of the ways that ``find_trainer`` takes."""

    name: str
    kind: type[Trainer]
    source: dict[str, str | None] | None
    """Where it came from, if not from the registry: the "text" that named it, and the "sha256" of
    the file behind it. Goes into config.json, where nothing is ever imported from."""


def find_trainer(given: Any) -> FoundTrainer:
    """Return the trainer that is ``given``: a registered name, "file.py:name" or "module:name", a
    class, or a record of ``corral.algorithms``.

    Raises UnknownNameError, MissingExtraError, and ArgumentError for what is none of these.
    """
    if isinstance(given, str) and not is_named(given):
        return FoundTrainer(given, trainer_class(given), None)
    text, found = None, given
    if isinstance(given, str):
        text, found = given, named_object(given, "trainer")
    record = hasattr(found, "as_trainer") and not isinstance(found, type)
    kind: Any = found.as_trainer() if record else found
    parts = ("name", "Settings", "learn", "save", "load")
    is_class: bool = isinstance(kind, type)
    if not (is_class and all(hasattr(kind, part) for part in parts)):
        is_a = "a function" if inspect.isfunction(found) else f"of {type(found).__name__}"
        is_a = "a class that is no trainer" if isinstance(found, type) else is_a
        raise ArgumentError(
            f"trainer={given!r:.200} is {is_a}: give a name ({', '.join(trainers())}), "
            "file.py:name, a record of corral.algorithms, or a class of corral.trainers.Trainer's "
            "kind"
        )
    name = str(kind.name)
    if name in trainers():
        with contextlib.suppress(ImportError):
            known = trainer_class(name)
            if getattr(kind, "in_place_of", None) == name and issubclass(kind, known):
                return FoundTrainer(name, kind, None)
            if kind is known or (record and getattr(known, "algorithm", None) is found):
                return FoundTrainer(name, known, None)
    return FoundTrainer(name, kind, {"text": text, "sha256": _digest(found, text)})


def _digest(found: Any, text: str | None) -> str | None:
    """Return the SHA-256 of the file behind a trainer of a user's own; None: there is none."""
    if text is not None:
        place = text.rpartition(":")[0]
        file = place if place.endswith(".py") else getattr(sys.modules[place], "__file__", None)
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    if isinstance(found, type):
        return source_digest(found)
    own = [each for each in vars(found).values() if callable(each)]
    own = [each for each in own if not str(each.__module__).startswith("corral.")]
    return source_digest(own[0]) if own else None


def trainer_class(name: str) -> type[Trainer]:
    """Return the trainer called ``name``.

    Raises UnknownNameError, and MissingExtraError where what it stands on is not installed.
    """
    if name in BUILT_IN:
        spec = BUILT_IN[name]
        module, extra = spec.needs
        require(module, extra=extra, purpose=f"train with {name}")
        found: type[Trainer] = required_extension(f"trainer.{name}")
        return found
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            loaded: type[Trainer] = point.load()
            return loaded
    raise UnknownNameError.of("trainer", name, trainers())
