"""What defines a run: config.json, and the versions it was made with."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from corral.errors import (
    ArgumentError,
    CheckpointError,
    ConfigError,
    CorralError,
    RunError,
    UnknownNameError,
)
from corral.files import read_json, reason, write_file
from corral.text import pasted
from corral.trainers.base import FoundTrainer, Trainer, find_trainer, trainer_class
from corral.trainers.capabilities import Seats
from corral.trainers.file_types import is_record, require_plain
from corral.trainers.pool import Pool
from corral.trainers.runs import own_model as own_model_of
from corral.trainers.runs.env_config import EnvConfig, given_again
from corral.trainers.runs.own_model import OwnModel, tell_of_source
from corral.trainers.settings import make_settings, settings_by_policy
from corral.trainers.sizes import require_sizes

__all__ = [
    "CONFIG",
    "DAMAGE",
    "FORMAT",
    "HARMLESS",
    "RunConfig",
    "canonical_values",
    "config_values",
    "require_format",
    "require_same_values",
    "versions",
]

CONFIG = "config.json"

FORMAT = 2
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""Errors that values of the wrong kind cause."""

NOT_WRITTEN = ("env_config", "own_rules", "own_trainer", "own_source", "own_model")
"""Fields of RunConfig that config.json does not hold by these names."""

MISSING: dict[str, Any] = {
    **{
        "keep": 3,
        "validation": {},
        "settings_of": {},
        "trainer_source": None,
        "defaults": {},
        "init": None,
        "seen": [],
        "self_play": None,
        "opponent_runs": {},
    },
}
"""What stands for keys that an earlier version did not write."""

HARMLESS = (
    *("defaults", "format", "init.run", "keep", "model.name"),
    *("settings.device", "steps", "versions"),
)
"""Keys of config.json that may change while a run stays what it is."""

SPARED = ("seen", "self_play", "opponent_runs")
"""Keys that are left out where they say nothing: earlier checkpoints have none of them."""

MOST_BYTES = 64 * 2**20
"""Of config.json."""

MOST_NAMED = 5
"""Keys that an error names."""


@dataclass(frozen=True)
class RunConfig:
    """All that defines a run; with the versions it was made with, equal configs learn the same."""

    env_config: EnvConfig
    trainer: str
    settings: dict[str, Any]
    seed: int
    steps: int  # env steps asked for
    policies: dict[str, str]  # agent -> name of its policy, or of what plays it
    policies_to_train: tuple[str, ...]
    versions: dict[str, str]
    horizon: int  # env steps planned: where what is annealed ends
    keep: int | Literal["all"] = 3  # checkpoints that stay, besides the best
    opponents: dict[str, str] = field(default_factory=dict)  # agent -> a player, or a mix, as text
    opponent_runs: dict[str, dict[str, Any]] = field(default_factory=dict)  # RUN@N -> its digest
    settings_of: dict[str, dict[str, Any]] = field(default_factory=dict)  # policy -> its own
    defaults: dict[str, Any] = field(default_factory=dict)  # kind of game, and what it gave
    init: dict[str, Any] | None = None  # the run whose weights it started from, and its digest
    seen: list[list[Any]] = field(default_factory=list)  # rows, by what it came of
    self_play: dict[str, Any] | None = None  # a pool of snapshots, see ``corral.Pool``
    trainer_source: dict[str, str | None] | None = None  # of a trainer that is not registered
    own_trainer: type[Trainer] | None = None  # that trainer: it is given, and never looked up
    own_source: dict[str, str | None] | None = None  # where that came from, of a run that is read
    own_model: OwnModel | None = None  # written as "model": its name, and its source's digest

    @property
    def learners(self) -> tuple[str, ...]:
        """The agents whose policies learn."""
        return tuple(
            agent
            for agent, policy in self.policies.items()
            if agent not in self.opponents and policy in self.policies_to_train
        )

    def write(self, folder: Path) -> None:
        """Write config.json, whole or not at all."""
        text = json.dumps(self._values(folder), indent=2, allow_nan=False)
        write_file(folder / CONFIG, text + "\n", folder=folder)

    def canonical(self) -> dict[str, Any]:
        """Return its canonical form: see ``canonical_values``. Every checkpoint keeps it; its
        manifest holds the digest."""
        return canonical_values(self._values(None))

    def _values(self, folder: Path | None) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if name not in NOT_WRITTEN}
        for name in SPARED:
            if not own[name]:
                own.pop(name)
        found = {"format": FORMAT, **self.env_config.write(folder), **own}
        return found if self.own_model is None else {**found, "model": self.own_model.as_json()}

    def require_same(self, checkpoint: Path, made_with: Any, *, but: Collection[str] = ()) -> None:
        """Raise CheckpointError where a checkpoint was made ``made_with`` another canonical form:
        see ``require_same_values``."""
        require_same_values(checkpoint, self.canonical(), made_with, but=but)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that config.json may hold."""
        names = [field.name for field in dataclasses.fields(cls) if field.name not in NOT_WRITTEN]
        of_env = [field.name for field in dataclasses.fields(EnvConfig)]
        return ["format", "model", *(name for name in of_env if name not in NOT_WRITTEN), *names]

    @classmethod
    def read(
        cls, folder: Path, trainer: Any = None, model: Any = None, **env_source: Any
    ) -> RunConfig:
        """Read config.json. ``trainer`` is what ``find_trainer`` takes, for a run by one of a
        user's own; ``model`` and ``env_source`` are what ``given_again`` takes.

        Raises RunError where there is none, or one of another format, and what ``given_again``
        raises.
        """
        path = folder / CONFIG
        values = config_values(folder)
        try:
            names = {field.name for field in dataclasses.fields(cls)} - set(NOT_WRITTEN)
            read = {name: values[name] for name in names}
            read["policies_to_train"] = tuple(read["policies_to_train"])
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {_in_words(error)}") from error
        # Outside of what takes errors for damage: here they are of what the caller gave.
        given = given_again(values, folder, **env_source)
        own = None if trainer is None else find_trainer(trainer)
        own_model = own_model_of.given_again(values.get("model"), folder, model)
        try:
            if own is not None:
                _require_trainer(folder, values, own)
            env_config = EnvConfig.read(values, folder, given)
            own_trainer = None if own is None else own.kind
            own_source = None if own is None else own.source
            given_here: dict[str, Any] = {"own_trainer": own_trainer, "own_source": own_source}
            return cls(env_config, **read, **given_here, own_model=own_model)
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {_in_words(error)}") from error

    def named(self, folder: Path) -> str:
        """Return a run's folder as words of a command, with what must be named again."""
        text = (self.trainer_source or {}).get("text")
        own_trainer = f" --trainer {pasted(text)}" if text else ""
        own_model = own_model_of.named_again(self.own_model)
        return self.env_config.named(folder) + own_trainer + own_model

    def tell_of_changes(self, folder: Path) -> None:
        """Say on stderr where the source of a trainer or a model of one's own has changed."""
        if self.own_source is not None and self.trainer_source is not None:
            before, now = self.trainer_source.get("sha256"), self.own_source.get("sha256")
            if before != now:
                what = self.trainer_source.get("text") or self.trainer
                tell_of_source(folder, f"trainer {what}")
        if self.own_model is not None:
            self.own_model.tell_of_changes(folder)

    def trainer_class(self) -> type[Trainer]:
        """Return the class of its trainer. Raises UnknownNameError, MissingExtraError."""
        if self.own_trainer is None and self.trainer_source is not None:
            raise UnknownNameError(
                f"{self.trainer} is a trainer of one's own, and nothing is imported because a run "
                f"names it: {_again(self.trainer_source)}"
            )
        try:
            return self.own_trainer or trainer_class(self.trainer)
        except UnknownNameError as error:
            raise UnknownNameError(
                f"{error}. A trainer of one's own is given as trainer=, its class, as in "
                "corral.load_run(folder, trainer=...)"
            ) from None

    def make_trainer(self) -> Trainer:
        """Return the trainer as it begins. Raises what its class, settings and rules raise."""
        kind = self.trainer_class()
        can, more = kind.capabilities, dict[str, Any]()
        if self.opponents and not can.opponents:
            raise ValueError(
                f"trainer {self.trainer} plays no opponents={self.opponents}; give one in corral "
                "itself (mappo, ippo, a2c, ...)"
            )
        if self.own_model is not None:
            if not can.model:
                raise ValueError(own_model_of.refusal(self.trainer))
            more["model"] = self.own_model.make
        if self.env_config.validation and can.validation:
            more["validation_rules"] = self.env_config.validation_rules()
        if self.self_play is not None and not can.pool:
            raise ValueError(
                f"trainer {self.trainer} has no pool of snapshots to play against; give one in "
                "corral itself (mappo, ippo, a2c, ...)"
            )
        if self.opponents or self.self_play is not None:
            more["seats"] = Seats(self.opponents, self.opponent_runs, self._pool())
        if self.settings_of:
            named = [name for a, name in self.policies.items() if a not in self.opponents]
            found = settings_by_policy(kind, self.settings, self.settings_of, named)
            more["settings_of"] = found
        learned = {a: name for a, name in self.policies.items() if a not in self.opponents}
        rules, settings = self.env_config.rules(), make_settings(kind, self.settings)
        require_sizes(rules, settings, more.get("settings_of", {}), set(learned.values()))
        return kind(
            rules,
            settings,
            seed=self.seed,
            policies=learned,
            policies_to_train=self.policies_to_train,
            steps=self.horizon,
            **more,
        )

    def _pool(self) -> Pool | None:
        try:
            return None if self.self_play is None else Pool.of(self.self_play)
        except ArgumentError as error:  # of a config.json, not of a caller
            raise TypeError(str(error)) from error


def canonical_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of the values of a config.json: all that defines the run.

    It lacks ``HARMLESS`` keys, those that say nothing, and the names of files beside it: their
    digests are there. Nothing is made of the values.
    """
    found: dict[str, Any] = json.loads(json.dumps(values, sort_keys=True, allow_nan=False))
    for key in HARMLESS:
        first, _, second = key.partition(".")
        table = found.get(first) if second else found
        if isinstance(table, dict):
            table.pop(second or first, None)
    for name in SPARED:
        if not found.get(name):
            found.pop(name, None)
    found["env_kwargs"] = {
        name: {key: each for key, each in value.items() if key != "file"}
        if is_record(value)
        else value
        for name, value in found["env_kwargs"].items()
    }
    return found


def require_same_values(
    checkpoint: Path, canonical: Mapping[str, Any], made_with: Any, *, but: Collection[str] = ()
) -> None:
    """Raise CheckpointError where a checkpoint was made ``made_with`` another canonical form.

    Keys in ``but`` may differ. The message names those that differ.
    """
    if not isinstance(made_with, dict):
        raise CheckpointError(
            f"{checkpoint}: does not say which configuration made it: an earlier, unreleased "
            "version of corral did. Train it again"
        )
    now, then = _flat(canonical), _flat(made_with)
    names = sorted({*now, *then}.difference(HARMLESS))
    odd = [key for key in names if now.get(key) != then.get(key)]
    if odd := [key for key in odd if key not in but]:
        told = "; ".join(
            f"{key} is {now.get(key, 'not given')} here, the checkpoint was made with "
            f"{then.get(key, 'none')}"
            for key in odd[:MOST_NAMED]
        )
        more = f"; and {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
        if odd == ["horizon"]:
            remedy = "Put that back, or plan anew: --stretch (stretch=True)"
        else:
            remedy = f"Put back {CONFIG}, or the checkpoints, that were there"
        raise CheckpointError(
            f"{checkpoint}: another configuration made it: {told}{more}. {remedy}; to begin "
            "another run with these weights, give the run whose they are as --init (init=)"
        )


def _require_trainer(folder: Path, values: Mapping[str, Any], own: FoundTrainer) -> None:
    """Raise RunError where the trainer that is given is not the one that a run was trained by."""
    name, source = values["trainer"], values["trainer_source"]
    if own.name == name and (source is None or own.source is not None):
        return
    text = None if source is None else source.get("text")
    trained_by = f"{name} of {text}" if text else name
    this = f"{own.name} of corral" if own.source is None else own.source.get("text") or own.name
    remedy = "leave out --trainer (trainer=)" if source is None else _again(source)
    raise RunError(f"{folder} was trained by {trained_by}, and this is {this}: {remedy}")


def _again(source: Mapping[str, Any]) -> str:
    """Return how to give a trainer of one's own again, that came from ``source``."""
    where = "as the argument trainer of corral.resume, load_run, evaluate or watch"
    if text := source.get("text"):
        return f"give it again. On the command line: --trainer {text}. In Python: {text!r} {where}"
    return (
        f"give it again. In Python: the record or class that it was trained with, {where}. On the "
        "command line: --trainer file.py:name, of a file that holds it"
    )


def config_values(folder: Path) -> dict[str, Any]:
    """Return the values of a config.json, those that it may lack filled in; nothing is made of
    them. Raises RunError where there is none, or it is damaged or of another format."""
    path = folder / CONFIG
    try:
        values = read_json(path, MOST_BYTES, folder=folder)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder} is no run: it has no {CONFIG}") from None
    except (OSError, ValueError, MemoryError) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}") from error
    try:
        require_plain(path, values)
    except ConfigError as error:
        raise RunError(str(error)) from error
    require_format(path, values)
    return {**MISSING, "horizon": values["steps"], **values}


def require_format(path: Path, values: Any) -> None:
    """Raise RunError where ``values`` are not those of a config.json that this corral reads."""
    if not isinstance(values, dict) or type(values.get("format")) is not int:
        raise RunError(f"{path} is not of corral: it names no format")
    if values["format"] > FORMAT:
        raise RunError(
            f"{path} is of format {values['format']}, this corral reads up to {FORMAT}: "
            "install a newer one"
        )
    if values["format"] < FORMAT:
        raise RunError(
            f"{path} is of format {values['format']}: an earlier, unreleased version of corral "
            f"made this run, and this corral reads format {FORMAT}. Train it again"
        )
    try:
        _require_kinds({**MISSING, "horizon": values.get("steps"), **values})
    except DAMAGE as error:
        raise RunError(f"{path} is damaged: {_in_words(error)}") from error


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return settings.gamma -> its JSON text, for every value that is no mapping itself."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[before + key] = json.dumps(value)  # as 1, 1.0 and true are equal in Python
    return found


def _in_words(error: Exception) -> str:
    """Return what an error says of values of the wrong kind."""
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _require_kinds(values: Mapping[str, Any]) -> None:
    """Raise TypeError, or KeyError, where a value of config.json is of the wrong kind."""
    kinds: dict[type, tuple[str, ...]] = {
        str: ("env", "trainer"),
        int: ("seed", "steps", "horizon"),
        dict: (
            *("env_kwargs", "held_out", "validation", "settings", "settings_of"),
            *("policies", "versions", "opponents", "opponent_runs", "defaults"),
        ),
        list: ("policies_to_train", "seen"),
    }
    for kind, names in kinds.items():
        for name in names:
            if not isinstance(values[name], kind) or isinstance(values[name], bool):
                raise TypeError(f"{name} is {values[name]!r:.40}")
    if not isinstance(values["self_play"], dict | None):
        raise TypeError(f"self_play is {values['self_play']!r:.40}")
    if not isinstance(values["trainer_source"], dict | None):
        raise TypeError(f"trainer_source is {values['trainer_source']!r:.40}")
    if values["keep"] != "all" and not isinstance(values["keep"], int):
        raise TypeError(f"keep is {values['keep']!r:.40}")
    if values.get("api") not in (None, "parallel", "aec"):
        raise TypeError(f"api is {values['api']!r:.40}")
    if (model := values.get("model")) is not None and not (
        isinstance(model, dict)
        and isinstance(model["name"], str)
        and isinstance(model["sha256"], str | None)
    ):
        raise TypeError(f"model is {model!r:.40}")
    for each in values["seen"]:
        if [type(part) for part in each] != [str, int, int]:
            raise TypeError(f"seen has {each!r:.40}")
    played = values["opponents"].values()
    for name in [*values["policies"].values(), *values["policies_to_train"], *played]:
        if not isinstance(name, str):
            raise TypeError(f"a policy is called {name!r:.40}")


# --- Versions ------------------------------------------------------------------------------------

PACKAGES = ("corral", "numpy", "pandas", "gymnasium", "pettingzoo", "scipy")
LEARNING_PACKAGES = ("torch", "stable-baselines3", "sb3-contrib", "supersuit", "ray")


def versions(*, learning: bool = False) -> dict[str, str]:
    """Return the versions of Python and packages, those that learn among them if ``learning``."""
    found = {"python": platform.python_version()}
    for package in PACKAGES + LEARNING_PACKAGES * learning:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if learning and "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
        found["torch threads"] = str(threads)  # results depend on them
    return found
