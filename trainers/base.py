"""The trainer protocol and the trainer registry.

A trainer is a class that plays an environment and learns from it. ``corral.trainers.train`` runs
it: it writes the run folder, the checkpoints and the progress, and stops cleanly on a signal.
Third-party packages add a trainer through the entry-point group ``corral.trainers``:

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
from corral.extensions import extension, required_extension
from corral.extras import require
from corral.named import is_named, named_object, source_digest
from corral.trainers.capabilities import Capabilities
from corral.trainers.content import Content

__all__ = [
    "BUILT_IN",
    "Algorithm",
    "Content",
    "Episode",
    "ResolvedTrainer",
    "StepwiseTrainer",
    "Trainer",
    "Update",
    "find_trainer",
    "settings_source",
    "trainer_class",
    "trainers",
]


@dataclass(frozen=True)
class Update:
    """Result of one update: the episodes of the rollout, and the training metrics."""

    env_steps: int  # since the start of the run, summed over all environment copies
    episodes: Sequence[Episode]  # episodes that ended in this rollout
    metrics: dict[str, float]  # losses etc.; fewer if nothing was learned
    seconds: dict[str, float]  # time spent in "env", "inference", "learning"
    rewards: Mapping[str, float] | None = None  # agent -> mean reward per env step of the rollout


class Trainer(ABC):
    """Learns policies for the agents of an environment.

    ``Settings`` is a frozen dataclass of JSON values, see ``corral.trainers.settings``. It defines
    the options of ``corral train``. ``capabilities`` declares optional features of the trainer.
    Members with a default in this class are optional.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]
    capabilities: ClassVar[Capabilities] = Capabilities()
    in_place_of: ClassVar[str | None] = None
    """Name of the registered trainer that this class replaces, configured in Python."""

    rollout_of: ClassVar[str] = "num_envs x n_steps"
    """The settings that determine ``rollout_steps``, as text."""
    algorithm: ClassVar[Any] = None
    """The algorithm record, for trainers that are built from one."""
    rules: Rules[Any]
    settings: Any
    env_steps: int
    """Env steps since the start of the run."""
    casting: Any = None
    """With ``Seats.pool``: the ``corral.trainers.selfplay.cast.Cast`` that assigns seats."""

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
        """Store the arguments; declared ``capabilities`` may add keyword arguments.

        Args:
            rules: the rules of the environment.
            settings: a ``Settings`` instance.
            seed: seed of all random numbers.
            policies: agent -> name of its policy, without the agents of ``Seats.opponents``.
            policies_to_train: the trained policies; other policies play but do not learn.
            steps: planned env steps; annealing ends there, and values stay constant afterwards.
        """

    @property
    @abstractmethod
    def policies(self) -> Mapping[str, Policy]:
        """agent -> its current policy."""

    @property
    def resumes_exactly(self) -> bool:
        """True if ``load`` restores the exact state; False if episodes restart."""
        return False

    @property
    def rollout_steps(self) -> int:
        """Env steps between two updates."""
        return 1

    @property
    def remark(self) -> str | None:
        """A line to print when a new run starts; None: no line."""
        return None

    @property
    def learns_from(self) -> Any:
        """The teacher ``Run``, or None; available after ``check``."""
        return None

    @abstractmethod
    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Train until ``steps`` env steps are played, and yield after each update.

        Default: the planned steps. Only whole rollouts are played: as many as fit, at least one.
        """

    @abstractmethod
    def save(self) -> Content:
        """Return the complete state that training depends on."""

    @abstractmethod
    def load(self, content: Content) -> None:
        """Restore the state that ``save`` returned. Raises CheckpointError if it does not fit."""

    @staticmethod
    def env_kwargs_for(env: Any, env_kwargs: Any, settings: Mapping[str, Any], api: Any) -> Any:
        """Return the environment's arguments, adapted to ``settings``."""
        return env_kwargs

    def check(self) -> None:  # noqa: B027 - optional: most trainers have no requirements
        """Raise an error for missing requirements, before a new run gets its folder."""

    def begin_timing(self) -> None:  # noqa: B027
        """Prepare for rollouts that are timed and then discarded; make them typical of the run."""

    def observe(self, observer: Any) -> Callable[[], None] | None:
        """Register a ``corral.trainers.observers.Observer``; return a function that removes it.

        None: this trainer does not support observers."""
        return None

    def callbacks(self) -> Sequence[Any]:
        """Return callbacks that this trainer needs in every run, such as ``PoolKeeper``."""
        return ()

    def wrap_batches(self, wrap: Callable[[Any], Any]) -> bool:
        """Play in ``wrap(batch)`` instead of the batch, so that metrics receive whole episodes.

        Called before the first step. False: this trainer does not use a batch."""
        return False

    def export(self, folder: Path) -> list[Path]:
        """Write the policies in the format of the underlying library, into an empty folder."""
        raise RunError(f"trainer {self.name} does not support export")

    def close(self) -> None:  # noqa: B027
        """Stop worker processes, if any; safe to call again."""


class StepwiseTrainer(Trainer):
    """A trainer with separate steps for playing and learning, and with accessible weights.

    ``Session.sample``, ``update``, ``weights`` and ``set_weights`` need it."""

    rollout: Any
    """The rollout that ``collect`` played."""

    @abstractmethod
    def begin(self) -> None:
        """Start episodes, or continue from the loaded checkpoint."""

    @abstractmethod
    def collect(self) -> tuple[list[Episode], dict[str, float]]:
        """Play a rollout; return the episodes that ended and the seconds spent."""

    @abstractmethod
    def show_rollout(self) -> None:
        """Pass the rollout of ``collect`` to the observers."""

    @abstractmethod
    def learn_from(self, episodes: list[Episode], seconds: dict[str, float]) -> Update:
        """Learn from the rollout of ``collect``, with the values it returned; return the update."""

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """Return copies of all weights, by name."""

    @abstractmethod
    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replace all weights; ``weights`` has the format that ``weights()`` returns."""


# --- Registry ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainerSpec:
    """A registry entry: a built-in trainer and its requirements. Its class is registered in
    ``corral.registration``."""

    name: str
    needs: tuple[str, str]  # a module, and the extra that installs it
    summary: str

    def lacks(self) -> str | None:
        """Return the extra that is required for learning but not installed; else None."""
        module, extra = self.needs
        both = (module, LEARNS_WITH.get(extra, module))
        return None if all(map(importlib.util.find_spec, both)) else extra

    @property
    def Settings(self) -> type:
        """The settings of the trainer. Most are declared apart from it and need no other library.

        Raises MissingExtraError if the trainer has to be imported and its library is missing."""
        declared: type | None = extension(f"settings.{self.name}")
        return trainer_class(self.name).Settings if declared is None else declared


LEARNS_WITH = {"rllib": "ray", "benchmarl": "benchmarl"}
"""Extra -> the module required for learning, if playing needs only another module."""


def _on_policy(name: str, summary: str) -> TrainerSpec:
    return TrainerSpec(name, ("torch", "mappo"), summary)


BUILT_IN = {
    spec.name: spec
    for spec in (
        TrainerSpec(
            "sb3_ppo",
            ("stable_baselines3", "sb3"),
            "PPO of Stable-Baselines3; its policy reads the action mask from the observation",
        ),
        TrainerSpec(
            "sb3_maskable_ppo",
            ("sb3_contrib", "sb3"),
            "MaskablePPO of sb3-contrib; gets the action masks as a separate input",
        ),
        TrainerSpec(
            "sb3_a2c",
            ("sb3_contrib", "sb3"),  # its module also imports MaskablePPO
            "A2C of Stable-Baselines3; its policy reads the action mask from the observation",
        ),
        TrainerSpec(
            "sb3_dqn",
            ("stable_baselines3", "sb3"),
            "DQN of Stable-Baselines3; explores and bootstraps with legal actions only",
        ),
        _on_policy(
            "mappo",
            "multi-agent PPO with a centralized critic, implemented in corral",
        ),
        _on_policy("ippo", "independent PPO: each critic sees only the observation of its agent"),
        _on_policy(
            "ppo_kl",
            "ippo with an adaptive KL penalty instead of clipping",
        ),
        _on_policy(
            "a2c",
            "advantage actor-critic: one optimizer step per rollout, with the critic as baseline",
        ),
        _on_policy(
            "pg",
            "policy gradient: each decision is weighted by its reward to go",
        ),
        _on_policy(
            "pg_episode",
            "policy gradient: each decision is weighted by the return of its whole episode",
        ),
        TrainerSpec(
            "clone",
            ("torch", "mappo"),
            "behavior cloning: masked cross-entropy on a teacher's decisions; see corral clone",
        ),
        TrainerSpec(
            "policy_iteration",
            ("torch", "mappo"),
            "regression on action values, measured by playing each action in a copy of the game",
        ),
        TrainerSpec(
            "rllib_ppo",
            ("torch", "rllib"),  # for playing; for learning, check() requires Ray
            "PPO of RLlib, for clusters: rollouts run in processes on any number of machines",
        ),
        # For playing they need only torch; for learning, check() requires BenchMARL.
        TrainerSpec(
            "benchmarl_vdn",
            ("torch", "benchmarl"),
            "VDN of BenchMARL: the team value is the sum of the agents' action values",
        ),
        TrainerSpec(
            "benchmarl_qmix",
            ("torch", "benchmarl"),
            "QMIX of BenchMARL: a network with the global state mixes the agents' action values",
        ),
        TrainerSpec(
            "benchmarl_iql",
            ("torch", "benchmarl"),
            "IQL of BenchMARL: independent Q-learning for each agent",
        ),
        TrainerSpec(
            "benchmarl_masac",
            ("torch", "benchmarl"),
            "MASAC of BenchMARL: soft actor-critic with a centralized critic",
        ),
    )
}

GROUP = "corral.trainers"


def trainers() -> dict[str, str]:
    """Return a one-line summary of each trainer, built-in and third-party."""
    summaries = {name: spec.summary for name, spec in BUILT_IN.items()}
    for point in metadata.entry_points(group=GROUP):
        summaries.setdefault(point.name, f"of {point.value}")
    return summaries


class Algorithm(Protocol):
    """A record of ``corral.algorithms``, which can build its trainer class."""

    @property
    def name(self) -> str: ...

    def as_trainer(self) -> type[Trainer]: ...


@dataclass(frozen=True)
class ResolvedTrainer:
    """A trainer resolved by ``find_trainer``: its name, class and source."""

    name: str
    kind: type[Trainer]
    source: dict[str, str | None] | None
    """None for a registered trainer; else the "text" that named it and the "sha256" of its file.
    Stored in config.json. Loading a run never imports from it."""


def find_trainer(given: Any) -> ResolvedTrainer:
    """Resolve a trainer from a registered name, "file.py:name", "module:name", a class, or a record
    of ``corral.algorithms``.

    Raises UnknownNameError, MissingExtraError, and ArgumentError for any other value.
    """
    if isinstance(given, str) and not is_named(given):
        return ResolvedTrainer(given, trainer_class(given), None)
    text, target = None, given
    if isinstance(given, str):
        text, target = given, named_object(given, "trainer")
    record = hasattr(target, "as_trainer") and not isinstance(target, type)
    kind: Any = target.as_trainer() if record else target
    if not (isinstance(kind, type) and issubclass(kind, Trainer)):
        is_a = "a function" if inspect.isfunction(target) else f"of {type(target).__name__}"
        is_a = "a class that is not a trainer" if isinstance(target, type) else is_a
        raise ArgumentError(
            f"trainer={given!r:.200} is {is_a}: pass a name ({', '.join(trainers())}), "
            "file.py:name, a record of corral.algorithms, or a subclass of corral.trainers.Trainer"
        )
    name = str(kind.name)
    if name in trainers():
        with contextlib.suppress(ImportError):
            registered = trainer_class(name)
            if kind.in_place_of == name and issubclass(kind, registered):
                return ResolvedTrainer(name, kind, None)
            if kind is registered or (record and registered.algorithm is target):
                return ResolvedTrainer(name, registered, None)
    return ResolvedTrainer(name, kind, {"text": text, "sha256": _digest(target, text)})


def settings_source(trainer: str) -> Any:
    """Return an object with the ``name`` and ``Settings`` of a trainer, see ``find_trainer``.

    For a built-in trainer it is its ``TrainerSpec``, so that listing settings needs no torch.
    """
    return BUILT_IN[trainer] if trainer in BUILT_IN else find_trainer(trainer).kind


def _digest(target: Any, text: str | None) -> str | None:
    """Return the SHA-256 of the file that defines a user's trainer; None: no such file."""
    if text is not None:
        place = text.rpartition(":")[0]
        file = place if place.endswith(".py") else getattr(sys.modules[place], "__file__", None)
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    if isinstance(target, type):
        return source_digest(target)
    functions = [function for function in vars(target).values() if callable(function)]
    functions = [
        function for function in functions if not str(function.__module__).startswith("corral.")
    ]
    return source_digest(functions[0]) if functions else None


def trainer_class(name: str) -> type[Trainer]:
    """Return the class of the trainer ``name``.

    Raises UnknownNameError, and MissingExtraError if its requirements are not installed.
    """
    if name in BUILT_IN:
        spec = BUILT_IN[name]
        module, extra = spec.needs
        require(module, extra=extra, purpose=f"train with {name}")
        kind: type[Trainer] = required_extension(f"trainer.{name}")
        return kind
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            loaded = point.load()
            if not (isinstance(loaded, type) and issubclass(loaded, Trainer)):
                raise ArgumentError(
                    f"{point.value}, registered as trainer {name}, is not a subclass of "
                    "corral.trainers.Trainer"
                )
            return loaded
    raise UnknownNameError.of("trainer", name, trainers())
