"""The definition of a run: config.json, and the versions it was made with."""

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
from corral.hints import meant
from corral.text import pasted
from corral.trainers.base import ResolvedTrainer, Trainer, find_trainer, trainer_class
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
"""Errors that values of the wrong type cause."""

NOT_WRITTEN = ("env_config", "own_rules", "own_trainer", "own_source", "own_model")
"""Fields of RunConfig that are not keys of config.json."""

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
"""Values of keys that earlier versions did not write."""

HARMLESS = (
    *("defaults", "format", "init.run", "keep", "model.name"),
    *("settings.device", "steps", "versions"),
)
"""Keys of config.json that may change without changing the run's definition."""

OMITTED_IF_EMPTY = ("seen", "self_play", "opponent_runs")
"""Keys that are omitted if empty, as in earlier checkpoints."""

MAX_BYTES = 64 * 2**20
"""Maximum bytes of config.json."""

MAX_NAMED = 5
"""Maximum number of keys in an error."""


@dataclass(frozen=True)
class RunConfig:
    """The complete definition of a run; equal configs with equal versions learn the same."""

    env_config: EnvConfig
    trainer: str
    settings: dict[str, Any]
    seed: int
    steps: int  # requested env steps
    policies: dict[str, str]  # agent -> name of its policy, or of its opponent
    policies_to_train: tuple[str, ...]
    versions: dict[str, str]
    horizon: int  # planned env steps, at which annealing ends
    keep: int | Literal["all"] = 3  # number of checkpoints to keep, besides the best
    opponents: dict[str, str] = field(default_factory=dict)  # agent -> a player or a mix, as text
    opponent_runs: dict[str, dict[str, Any]] = field(default_factory=dict)  # RUN@N -> its digest
    settings_of: dict[str, dict[str, Any]] = field(default_factory=dict)  # policy -> settings
    defaults: dict[str, Any] = field(default_factory=dict)  # kind of game, and its presets
    init: dict[str, Any] | None = None  # run with the initial weights, and its digest
    # data rows seen by runs that this one is based on
    seen: list[list[Any]] = field(default_factory=list)
    self_play: dict[str, Any] | None = None  # a pool of snapshots, see ``corral.Pool``
    trainer_source: dict[str, str | None] | None = None  # for a custom trainer
    own_trainer: type[Trainer] | None = (
        None  # the custom trainer, passed by the caller and never imported
    )
    own_source: dict[str, str | None] | None = None  # source of that trainer, for a loaded run
    own_model: OwnModel | None = None  # written as "model": its name, and its source's digest

    @property
    def learners(self) -> tuple[str, ...]:
        """The agents with trained policies."""
        return tuple(
            agent
            for agent, policy in self.policies.items()
            if agent not in self.opponents and policy in self.policies_to_train
        )

    def write(self, folder: Path) -> None:
        """Write config.json atomically."""
        text = json.dumps(self._values(folder), indent=2, allow_nan=False)
        write_file(folder / CONFIG, text + "\n", folder=folder)

    def canonical(self) -> dict[str, Any]:
        """Return the canonical form: see ``canonical_values``. Every checkpoint stores it, and its
        manifest stores the digest."""
        return canonical_values(self._values(None))

    def _values(self, folder: Path | None) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if name not in NOT_WRITTEN}
        for name in OMITTED_IF_EMPTY:
            if not values[name]:
                values.pop(name)
        complete = {"format": FORMAT, **self.env_config.write(folder), **values}
        return (
            complete if self.own_model is None else {**complete, "model": self.own_model.as_json()}
        )

    def require_same(self, checkpoint: Path, made_with: Any, *, but: Collection[str] = ()) -> None:
        """Raise CheckpointError if a checkpoint was made with another canonical form: see
        ``require_same_values``."""
        require_same_values(checkpoint, self.canonical(), made_with, but=but)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the valid keys of config.json."""
        names = [field.name for field in dataclasses.fields(cls) if field.name not in NOT_WRITTEN]
        of_env = [field.name for field in dataclasses.fields(EnvConfig)]
        return ["format", "model", *(name for name in of_env if name not in NOT_WRITTEN), *names]

    @classmethod
    def read(
        cls, folder: Path, trainer: Any = None, model: Any = None, **env_source: Any
    ) -> RunConfig:
        """Read config.json. ``trainer`` is a custom trainer, as for ``find_trainer``; ``model`` and
        ``env_source`` are as for ``given_again``.

        Raises RunError if config.json is missing or has another format, and the errors of
        ``given_again``.
        """
        path = folder / CONFIG
        values = config_values(folder)
        try:
            names = {field.name for field in dataclasses.fields(cls)} - set(NOT_WRITTEN)
            read = {name: values[name] for name in names}
            read["policies_to_train"] = tuple(read["policies_to_train"])
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {_in_words(error)}") from error
        # Outside of the try blocks, because errors here come from the caller's arguments.
        env = given_again(values, folder, **env_source)
        custom = None if trainer is None else find_trainer(trainer)
        own_model = own_model_of.given_again(values.get("model"), folder, model)
        try:
            if custom is not None:
                _require_trainer(folder, values, custom)
            env_config = EnvConfig.read(values, folder, env)
            own_trainer = None if custom is None else custom.kind
            own_source = None if custom is None else custom.source
            sources: dict[str, Any] = {"own_trainer": own_trainer, "own_source": own_source}
            return cls(env_config, **read, **sources, own_model=own_model)
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {_in_words(error)}") from error

    def named(self, folder: Path) -> str:
        """Return a run's folder as command-line words, with options that must be passed again."""
        text = (self.trainer_source or {}).get("text")
        own_trainer = f" --trainer {pasted(text)}" if text else ""
        own_model = own_model_of.named_again(self.own_model)
        return self.env_config.named(folder) + own_trainer + own_model

    def warn_of_changes(self, folder: Path) -> None:
        """Print a warning if the source of a custom trainer or model has changed."""
        if self.own_source is not None and self.trainer_source is not None:
            before, now = self.trainer_source.get("sha256"), self.own_source.get("sha256")
            if before != now:
                name = self.trainer_source.get("text") or self.trainer
                tell_of_source(folder, f"trainer {name}")
        if self.own_model is not None:
            self.own_model.warn_of_changes(folder)

    def trainer_class(self) -> type[Trainer]:
        """Return the class of the trainer. Raises UnknownNameError, MissingExtraError."""
        if self.own_trainer is None and self.trainer_source is not None:
            raise UnknownNameError(
                f"{self.trainer} is a custom trainer, and for safety loading a run does not import "
                f"it: {_again(self.trainer_source)}"
            )
        try:
            return self.own_trainer or trainer_class(self.trainer)
        except UnknownNameError as error:
            raise UnknownNameError(
                f"{error}. Pass the class of a custom trainer as trainer=, as in "
                "corral.load_run(folder, trainer=...)"
            ) from None

    def make_trainer(self) -> Trainer:
        """Return the trainer at its start. Raises the errors of its class, settings and rules."""
        kind = self.trainer_class()
        capabilities, extra = kind.capabilities, dict[str, Any]()
        if self.opponents and not capabilities.opponents:
            raise ValueError(
                f"trainer {self.trainer} does not support opponents={self.opponents}; use an "
                "in-house trainer (mappo, ippo, a2c, ...)"
            )
        if self.own_model is not None:
            if not capabilities.model:
                raise ValueError(own_model_of.refusal(self.trainer))
            extra["model"] = self.own_model.make
        if self.env_config.validation and capabilities.validation:
            extra["validation_rules"] = self.env_config.validation_rules()
        if self.self_play is not None and not capabilities.pool:
            raise ValueError(
                f"trainer {self.trainer} does not support a pool of snapshots; use an in-house "
                "trainer (mappo, ippo, a2c, ...)"
            )
        if self.opponents or self.self_play is not None:
            extra["seats"] = Seats(self.opponents, self.opponent_runs, self._pool())
        if self.settings_of:
            policies = [name for a, name in self.policies.items() if a not in self.opponents]
            checked = settings_by_policy(kind, self.settings, self.settings_of, policies)
            extra["settings_of"] = checked
        learned = {a: name for a, name in self.policies.items() if a not in self.opponents}
        rules, settings = self.env_config.rules(), make_settings(kind, self.settings)
        require_sizes(rules, settings, extra.get("settings_of", {}), set(learned.values()))
        return kind(
            rules,
            settings,
            seed=self.seed,
            policies=learned,
            policies_to_train=self.policies_to_train,
            steps=self.horizon,
            **extra,
        )

    def _pool(self) -> Pool | None:
        try:
            return None if self.self_play is None else Pool.of(self.self_play)
        except ArgumentError as error:  # caused by config.json, not by the caller
            raise TypeError(str(error)) from error


def canonical_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of the values of a config.json, which defines the run.

    It omits ``HARMLESS`` keys, empty optional keys, and names of separate files, which are
    represented by digests. No objects are created from the values.
    """
    canonical: dict[str, Any] = json.loads(json.dumps(values, sort_keys=True, allow_nan=False))
    for key in HARMLESS:
        first, _, second = key.partition(".")
        table = canonical.get(first) if second else canonical
        if isinstance(table, dict):
            table.pop(second or first, None)
    for name in OMITTED_IF_EMPTY:
        if not canonical.get(name):
            canonical.pop(name, None)
    canonical["env_kwargs"] = {
        name: {key: entry for key, entry in value.items() if key != "file"}
        if is_record(value)
        else value
        for name, value in canonical["env_kwargs"].items()
    }
    return canonical


def require_same_values(
    checkpoint: Path, canonical: Mapping[str, Any], made_with: Any, *, but: Collection[str] = ()
) -> None:
    """Raise CheckpointError if a checkpoint was made with another canonical form, ``made_with``.

    Keys in ``but`` may differ. The message lists the differences.
    """
    if not isinstance(made_with, dict):
        raise CheckpointError(
            f"{checkpoint}: its configuration is missing, because an earlier, unreleased version "
            "of corral wrote it. Train it again"
        )
    now, then = _flat(canonical), _flat(made_with)
    names = sorted({*now, *then}.difference(HARMLESS))
    changed = [key for key in names if now.get(key) != then.get(key)]
    if changed := [key for key in changed if key not in but]:
        differences = "; ".join(
            f"{key} is {now.get(key, 'missing')} in {CONFIG}, but "
            f"{then.get(key, 'missing')} in the checkpoint"
            for key in changed[:MAX_NAMED]
        )
        more = f"; and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
        if changed == ["horizon"]:
            remedy = "Restore it, or change the plan: --stretch (stretch=True)"
        else:
            remedy = f"Restore the original {CONFIG} or checkpoints"
        raise CheckpointError(
            f"{checkpoint}: made with another configuration: {differences}{more}. {remedy}; to "
            "start a new run with these weights, pass the original run as --init (init=)"
        )


def _require_trainer(folder: Path, values: Mapping[str, Any], custom: ResolvedTrainer) -> None:
    """Raise RunError if the passed trainer is not the one that trained the run."""
    name, source = values["trainer"], values["trainer_source"]
    if custom.name == name and (source is None or custom.source is not None):
        return
    text = None if source is None else source.get("text")
    trained_by = f"{name} of {text}" if text else name
    current = (
        f"{custom.name} of corral"
        if custom.source is None
        else custom.source.get("text") or custom.name
    )
    remedy = "omit --trainer (trainer=)" if source is None else _again(source)
    raise RunError(f"{folder} was trained by {trained_by}, not by {current}: {remedy}")


def _again(source: Mapping[str, Any]) -> str:
    """Return how to pass a custom trainer from ``source`` again."""
    place = "as the argument trainer of corral.resume, load_run, evaluate or watch"
    if text := source.get("text"):
        return f"pass it again. On the command line: --trainer {text}. In Python: {text!r} {place}"
    return (
        f"pass it again. In Python: the record or class used for training, {place}. On the command "
        "line: --trainer file.py:name, with a file that contains it"
    )


def config_values(folder: Path) -> dict[str, Any]:
    """Return the values of a config.json, with defaults for missing keys. No objects are created
    from them. Raises RunError if it is missing, damaged or has another format."""
    path = folder / CONFIG
    try:
        values = read_json(path, MAX_BYTES, folder=folder)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder} is not a run: {_missing(folder)}") from None
    except (OSError, ValueError, MemoryError) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}") from error
    try:
        require_plain(path, values)
    except ConfigError as error:
        raise RunError(str(error)) from error
    require_format(path, values)
    return {**MISSING, "horizon": values["steps"], **values}


def _missing(folder: Path) -> str:
    """Return why ``folder`` has no config.json, with a run inside or the one that may be meant."""
    for inside in sorted(folder.glob(f"*/{CONFIG}")):
        try:
            require_format(inside, read_json(inside, MAX_BYTES, folder=inside.parent))
        except (OSError, ValueError, MemoryError, RunError):
            continue  # another library's file
        return f"it has no {CONFIG}; pass a run inside, such as {inside.parent}"
    runs = [path.parent.name for path in folder.parent.glob(f"*/{CONFIG}")]
    near = [str(folder.with_name(name)) for name in meant(folder.name, runs)]
    suggestion = f"; did you mean {near[0]}?" if near else ""
    return (f"it has no {CONFIG}" if folder.exists() else "it does not exist") + suggestion


def require_format(path: Path, values: Any) -> None:
    """Raise RunError if ``values`` are not a config.json with a supported format."""
    if not isinstance(values, dict) or type(values.get("format")) is not int:
        raise RunError(f"{path} is not from corral: it has no format number")
    if values["format"] > FORMAT:
        raise RunError(
            f"{path} has format {values['format']}, but this version of corral reads up to "
            f"{FORMAT}: install a newer version"
        )
    if values["format"] < FORMAT:
        raise RunError(
            f"{path} has format {values['format']}, from an earlier, unreleased version of corral; "
            f"this version reads format {FORMAT}. Train it again"
        )
    try:
        _require_kinds({**MISSING, "horizon": values.get("steps"), **values})
    except DAMAGE as error:
        raise RunError(f"{path} is damaged: {_in_words(error)}") from error


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return dotted keys such as settings.gamma -> JSON text, for every value except mappings."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{before}{key}.")
        else:
            # text, because 1, 1.0 and true are equal in Python
            flat[before + key] = json.dumps(value)
    return flat


def _in_words(error: Exception) -> str:
    """Return the message of an error that is caused by values of the wrong type."""
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _require_kinds(values: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError for a value of config.json with the wrong type."""
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
    for entry in values["seen"]:
        if [type(part) for part in entry] != [str, int, int]:
            raise TypeError(f"seen has {entry!r:.40}")
    played = values["opponents"].values()
    for name in [*values["policies"].values(), *values["policies_to_train"], *played]:
        if not isinstance(name, str):
            raise TypeError(f"a policy has the name {name!r:.40}")


# --- Versions ------------------------------------------------------------------------------------

PACKAGES = ("corral", "numpy", "pandas", "gymnasium", "pettingzoo", "scipy")
LEARNING_PACKAGES = ("torch", "stable-baselines3", "sb3-contrib", "supersuit", "ray")


def versions(*, learning: bool = False) -> dict[str, str]:
    """Return the versions of Python and packages, including learning packages if ``learning``."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES + LEARNING_PACKAGES * learning:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if learning and "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
        installed["torch threads"] = str(threads)  # results depend on them
    return installed
