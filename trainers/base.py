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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Protocol

from corral.envs.core import Array, Rules
from corral.envs.episode_stats import Episode
from corral.envs.policy import Policy
from corral.errors import ArgumentError, RunError, UnknownNameError
from corral.extensions import required_extension
from corral.extras import require
from corral.named import is_named, named_object, source_digest
from corral.trainers.capabilities import Capabilities
from corral.trainers.content import Content

__all__ = [
    "BUILT_IN",
    "Algorithm",
    "Content",
    "Episode",
    "FoundTrainer",
    "StepwiseTrainer",
    "Trainer",
    "Update",
    "find_trainer",
    "trainer_class",
    "trainers",
]


@dataclass(frozen=True)
class Update:
    """One update: the rollout that was played, and the metrics of learning from it."""

    env_steps: int  # played since the run began, by all environments together
    episodes: Sequence[Episode]  # that ended in the rollout
    metrics: dict[str, float]  # losses and the like; fewer where nothing was learned from
    seconds: dict[str, float]  # spent in "env", "inference", "learning"
    rewards: Mapping[str, float] | None = None  # agent -> its mean reward per env step of it


class Trainer(ABC):
    """Learns policies for the agents of an environment.

    ``Settings`` is a frozen dataclass of JSON values, see ``corral.trainers.settings``: the options
    of ``corral train`` are made of it. ``capabilities`` say what else the trainer can be given;
    members with a default here may be left out.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]
    capabilities: ClassVar[Capabilities] = Capabilities()
    in_place_of: ClassVar[str | None] = None
    """Name of a registered trainer that this class is, with something given in Python."""

    rollout_of: ClassVar[str] = "num_envs x n_steps"
    """Settings that make ``rollout_steps``."""
    algorithm: ClassVar[Any] = None
    """The record that it learns by, for trainers that are made of one."""
    rules: Rules[Any]
    settings: Any
    env_steps: int
    """Steps played since the run began."""
    casting: Any = None
    """Who plays which seat, with ``Seats.pool``: a ``corral.trainers.selfplay.cast.Cast``."""

    @abstractmethod
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
        """``policies`` names each agent's policy, of all agents but ``Seats.opponents``; those not
        to train only play. What ``capabilities`` declare may come as further keywords.

        ``steps``: env steps that are planned; what is annealed ends there, and stays at its end.
        """

    @property
    @abstractmethod
    def policies(self) -> Mapping[str, Policy]:
        """agent -> its policy, as learned so far."""

    @property
    def resumes_exactly(self) -> bool:
        """True where ``load`` restores the very moment; else episodes begin anew."""
        return False

    @property
    def rollout_steps(self) -> int:
        """Env steps between two updates."""
        return 1

    @property
    def remark(self) -> str | None:
        """A line that a new run says."""
        return None

    @property
    def learns_from(self) -> Any:
        """The ``Run`` that teaches, or None; known after ``check``."""
        return None

    @abstractmethod
    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Train until ``steps`` env steps are played, and yield after each update.

        Default: all that are planned. In whole rollouts: as many as fit, at least one.
        """

    @abstractmethod
    def save(self) -> Content:
        """Return all that decides how training goes on."""

    @abstractmethod
    def load(self, content: Content) -> None:
        """Go on from what ``save`` returned. Raises CheckpointError where it does not fit."""

    @staticmethod
    def env_kwargs_for(env: Any, env_kwargs: Any, settings: Mapping[str, Any], api: Any) -> Any:
        """Return the environment's arguments with what ``settings`` say of them."""
        return env_kwargs

    def check(self) -> None:  # noqa: B027 - nothing is missing, unless a trainer says so
        """Raise what is missing to learn, before a new run gets its folder."""

    def begin_timing(self) -> None:  # noqa: B027
        """Get ready for rollouts that are timed and thrown away: like most of a run."""

    def observe(self, observer: Any) -> Callable[[], None] | None:
        """Let a ``corral.trainers.observers.Observer`` look on from now; return a function that
        ends that. None: this trainer shows nothing."""
        return None

    def callbacks(self) -> Sequence[Any]:
        """Return callbacks that every run of it has, such as the ``PoolKeeper`` of a casting."""
        return ()

    def wrap_batches(self, wrap: Callable[[Any], Any]) -> bool:
        """Play in ``wrap(batch)`` instead of the batch, so that metrics see whole episodes; called
        before anything is played. False: this trainer plays where no batch is seen."""
        return False

    def export(self, folder: Path) -> list[Path]:
        """Write the policies in the format of the library behind, into an empty folder."""
        raise RunError(f"trainer {self.name} has no format of its own to export")

    def close(self) -> None:  # noqa: B027
        """End worker processes, if there are any; may be called again."""


class StepwiseTrainer(Trainer):
    """A trainer that plays and learns apart, and whose weights can be had: for
    ``Session.sample``, ``update``, ``weights`` and ``set_weights``."""

    rollout: Any
    """What ``collect`` played."""

    @abstractmethod
    def begin(self) -> None:
        """Begin episodes, or go on where a checkpoint was taken."""

    @abstractmethod
    def collect(self) -> tuple[list[Episode], dict[str, float]]:
        """Play a rollout; return the episodes that ended, and the seconds."""

    @abstractmethod
    def show_rollout(self) -> None:
        """Show the rollout that ``collect`` played to the observers."""

    @abstractmethod
    def learn_from(self, episodes: list[Episode], seconds: dict[str, float]) -> Update:
        """Learn from the rollout that ``collect`` played and told so of; return the update."""

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """Return copies of all weights, by name."""

    @abstractmethod
    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Go on with other ``weights``, as ``weights`` gives them."""


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
    if not (isinstance(kind, type) and issubclass(kind, Trainer)):
        is_a = "a function" if inspect.isfunction(found) else f"of {type(found).__name__}"
        is_a = "a class that is no trainer" if isinstance(found, type) else is_a
        raise ArgumentError(
            f"trainer={given!r:.200} is {is_a}: give a name ({', '.join(trainers())}), "
            "file.py:name, a record of corral.algorithms, or a subclass of corral.trainers.Trainer"
        )
    name = str(kind.name)
    if name in trainers():
        with contextlib.suppress(ImportError):
            known = trainer_class(name)
            if kind.in_place_of == name and issubclass(kind, known):
                return FoundTrainer(name, kind, None)
            if kind is known or (record and known.algorithm is found):
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
            loaded = point.load()
            if not (isinstance(loaded, type) and issubclass(loaded, Trainer)):
                raise ArgumentError(
                    f"{point.value}, registered as trainer {name}, is no subclass of "
                    "corral.trainers.Trainer"
                )
            return loaded
    raise UnknownNameError.of("trainer", name, trainers())
