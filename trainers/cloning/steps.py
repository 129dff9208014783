"""Recorded steps: observations, decisions and rewards in one file, for cloning.

The file is NumPy's .npz, without pickle. It contains S steps of E episodes, concatenated:

| entry | type | content |
|---|---|---|
| ``header`` | text | JSON: ``{"format": "corral steps", "version": 1, "env": NAME}``, more |
| ``lengths`` | int [E] | steps of each episode; the sum is S |
| ``AGENT/observation`` | [S, ...] | of the environment; for a Dict: ``AGENT/observation/KEY`` |
| ``AGENT/action_mask`` | [S, A] | 1 for legal actions; all 0 if the agent did not act |
| ``AGENT/action`` | int [S] | the decision; ignored if the agent did not act |
| ``AGENT/choices`` | bool [S, A] | optional: all actions that were equally good |
| ``AGENT/reward`` | float [S] | optional: the reward after the decision; default: 0 |
| ``AGENT/terminated`` | bool [S] | optional: termination; default: at the end of each episode |
| ``AGENT/truncated`` | bool [S] | optional: truncation by a time limit; default: never |
| ``state`` | float [S, G] | optional: the global state, for critics that observe it |

The header may contain ``env_kwargs``, ``agents``, ``teacher``, ``seed`` and ``spaces``. ``spaces``
is the digest from ``spaces_digest``; it is compared if present. ``read_steps`` checks all numbers
before they are used, and reports all faults of a file at once. At most ``MAX_BYTES`` are unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation, Rules
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, Memoryless, take_tree
from corral.errors import StepFault, StepsError
from corral.files import open_regular, reason, strict_json, write_file
from corral.trainers.cloning.checks import faults_of

__all__ = [
    "RecordedTeacher",
    "Steps",
    "read_steps",
    "recorded_arguments",
    "spaces_digest",
    "write_steps",
]

FORMAT, VERSION = "corral steps", 1
MAX_BYTES = 4 * 2**30  # maximum size of all entries, unpacked
MAX_ENTRIES = 10_000
MAX_HEADER = 2**20  # maximum bytes of the header text

CHOICES, RECORDED = "recorded_choices", "recorded_action"
"""Entries of an observation that only ``RecordedTeacher`` reads."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Checked recorded steps. ``arrays`` has the entries of the file, with defaults filled in."""

    name: str
    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    digest: str

    @property
    def lengths(self) -> Array:
        """Return the number of steps of each episode: int64 [E]."""
        return self.arrays["lengths"]

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def episodes(self, chosen: Array) -> Steps:
        """Return only the ``chosen`` episodes: int64 [D]."""
        first = np.cumsum(self.lengths) - self.lengths
        rows = np.concatenate([np.arange(first[e], first[e] + self.lengths[e]) for e in chosen])
        arrays = {key: values[rows] for key, values in self.arrays.items() if key != "lengths"}
        lengths = self.lengths[chosen]
        return Steps(self.name, self.header, {**arrays, "lengths": lengths}, self.digest)

    def divided(self, held_out: float = 0.2) -> tuple[Steps, Steps]:
        """Split into episodes for cloning and the last episodes (at least one) for comparison."""
        count = len(self.lengths)
        if count < 2:
            raise StepsError(
                [
                    StepFault(
                        self.name,
                        "lengths",
                        f"{count} episode; record 2 or more, because the last ones are held out "
                        "for comparison",
                    )
                ]
            )
        kept = max(1, round(held_out * count))
        return self.episodes(np.arange(count - kept)), self.episodes(np.arange(count - kept, count))

    def observation(self, agent: str, rows: Array) -> Observation:
        """Return the observations of ``agent`` in ``rows`` [R], with its recorded decisions."""
        whole = f"{agent}/{OBSERVATION}"
        inner: Any = self.arrays.get(whole)
        if inner is None:
            prefix = f"{whole}/"
            parts = {k: v for k, v in self.arrays.items() if k.startswith(prefix)}
            inner = {key.removeprefix(prefix): values for key, values in parts.items()}
        result: Observation = {OBSERVATION: take_tree(inner, rows)}
        names = {MASK: MASK, RECORDED: "action", CHOICES: "choices"}
        return result | {key: self.arrays[f"{agent}/{name}"][rows] for key, name in names.items()}

    def require_fit(self, rules: Rules[Any]) -> None:
        """Raise StepsError with all faults of these steps for ``rules``."""
        if faults := faults_of(self.name, self.header, self.arrays, rules, spaces_digest(rules)):
            raise StepsError(faults)


class RecordedTeacher(Memoryless):
    """Repeats the recorded decisions; it only works with observations of ``Steps``."""

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return the recorded action, and the actions that were equally good."""
        return Decision(observation[RECORDED], extra={"choices": observation[CHOICES]})


def spaces_digest(rules: Rules[Any]) -> str:
    """Return a digest of the agents with their observation and action spaces."""
    parts = [
        f"{agent}: {_described(rules.observation_space(agent))}, {rules.action_space(agent)}"
        for agent in rules.agents
    ]
    return hashlib.sha256("; ".join(parts).encode()).hexdigest()


def _described(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return "{" + ", ".join(f"{key}: {_described(space[key])}" for key in sorted(space)) + "}"
    if isinstance(space, spaces.Box):
        bounds = hashlib.sha256(space.low.tobytes() + space.high.tobytes()).hexdigest()
        return f"{space.dtype} {space.shape} {bounds}"
    return str(space)


# --- Files ---------------------------------------------------------------------------------------


def write_steps(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Path:
    """Write recorded steps atomically. Raises FileExistsError."""
    target = Path(path)
    if target.exists():
        raise FileExistsError(f"{target} exists; choose another file, or remove it")
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, allow_nan=False)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, header=np.array(text), **arrays)
    return write_file(target, file.getvalue())


def read_steps(path: str | Path, rules: Rules[Any]) -> Steps:
    """Read the steps in a file and check them against ``rules``.

    Raises StepsError with all faults, and FileNotFoundError.
    """
    place = Path(path)
    try:
        with open_regular(place) as file:
            arrays, faults = _entries(place, file)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{place}: the file does not exist; create it with corral record"
        ) from None
    except OSError as error:
        raise StepsError([StepFault(str(place), "the file", reason(error))]) from error
    if not arrays and faults:
        raise StepsError(faults)  # further faults would only be consequences
    header = _header(arrays.pop("header", None))
    if header is None or header.get("format") != FORMAT:
        rule = f'lacks JSON with "format": {FORMAT!r}; the file does not contain recorded steps'
        faults.append(StepFault(str(place), "header", rule))
    elif header.get("version") != VERSION:
        rule = f"has version {header.get('version')!r:.20}; this corral reads version {VERSION}"
        faults.append(StepFault(str(place), "header", rule))
    if not faults:
        assert header is not None
        faults = faults_of(str(place), header, arrays, rules, spaces_digest(rules))
    if faults:
        raise StepsError(faults)
    assert header is not None
    filled = _filled(arrays, rules)
    digest = hashlib.sha256()
    for key in sorted(filled):
        digest.update(f"{key} {filled[key].dtype} {filled[key].shape}".encode())
        digest.update(np.ascontiguousarray(filled[key]).tobytes())
    return Steps(str(place), header, filled, digest.hexdigest())


def recorded_arguments(path: str, env: str) -> dict[str, Any]:
    """Return the arguments of ``env`` from the header of a file.

    Only plain values are returned, without a load and without rows, which select the data for
    cloning. If the file cannot be read, no arguments are returned; ``read_steps`` reports it.
    """
    place = Path(path)
    try:
        with open_regular(place) as file, zipfile.ZipFile(file) as archive:
            info = archive.getinfo("header.npy")
            if info.file_size > 5 * MAX_HEADER:
                return {}
            header = _header(_array(archive, info)) or {}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return {}
    stored = header.get("env_kwargs")
    if header.get("env") != env or not isinstance(stored, dict):
        return {}
    plain = (str, int, float, bool)
    return {k: v for k, v in stored.items() if isinstance(v, plain) and k not in ("rows", "trace")}


def _entries(place: Path, file: BinaryIO) -> tuple[dict[str, Array], list[StepFault]]:
    """Return the arrays of an .npz file, and the faults of unreadable entries."""
    arrays: dict[str, Array] = {}
    faults: list[StepFault] = []

    def fault(entry: str, rule: str) -> None:
        faults.append(StepFault(str(place), entry, rule))

    if not file.seek(0, io.SEEK_END):
        fault("the file", "is empty; create it with corral record")
        return arrays, faults
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        fault("the file", f"is not an .npz file: {error}; create it with corral record")
        return arrays, faults
    with archive:
        infos = archive.infolist()
        total = sum(info.file_size for info in infos)
        if len(infos) > MAX_ENTRIES:
            fault("the file", f"has {len(infos):,} entries; the maximum is {MAX_ENTRIES:,}")
        elif total > MAX_BYTES:
            fault("the file", f"has {total:,} bytes unpacked, more than {MAX_BYTES:,}: split it")
        else:
            for info in infos:
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    fault(name, "is duplicated in the file")
                    continue
                try:
                    arrays[name] = _array(archive, info)
                except (ValueError, OSError, zipfile.BadZipFile, EOFError, RuntimeError) as error:
                    fault(name, f"cannot be read: {' '.join(str(error).split())[:200]}")
                except Exception as error:  # NumPy may raise any exception for a forged header
                    fault(name, f"cannot be read: {type(error).__name__}")
    return arrays, faults


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Return one entry. The size in its header is checked before memory is allocated."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        read[(2, 0)] = np.lib.format.read_array_header_2_0
        if version not in read:
            raise ValueError(f"version {version} of the .npy format is not supported")
        shape, fortran, dtype = read[version](file)
        if dtype.hasobject:
            raise ValueError("contains Python objects, which need pickle; store plain numbers")
        if dtype.kind not in "biufU":
            raise ValueError(f"contains {dtype}; store numbers")
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        if size > info.file_size:
            raise ValueError(f"the header says {size:,} bytes, but it has {info.file_size:,}")
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError(f"has {len(data):,} bytes of numbers instead of {size:,}")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _header(array: Array | None) -> dict[str, Any] | None:
    if array is None or array.dtype.kind != "U" or array.shape != ():
        return None
    try:
        if array.nbytes > 4 * MAX_HEADER:
            return None
        document = strict_json(str(array))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _filled(arrays: Mapping[str, Array], rules: Rules[Any]) -> dict[str, Array]:
    """Return the arrays with defaults filled in, and with the dtypes for training."""
    lengths = arrays["lengths"].astype(np.int64)
    size, last = int(lengths.sum()), np.cumsum(lengths) - 1
    ends = np.zeros(size, dtype=bool)
    ends[last] = True
    filled = {**arrays, "lengths": lengths}
    for agent in rules.agents:
        mask = arrays[f"{agent}/{MASK}"] != 0
        filled[f"{agent}/{MASK}"] = mask.astype(np.int8)
        action = np.where(mask.any(axis=1), arrays[f"{agent}/action"], 0).astype(np.int64)
        filled[f"{agent}/action"] = action
        chosen = np.arange(mask.shape[1]) == action[:, None]
        choices = arrays.get(f"{agent}/choices", chosen)
        filled[f"{agent}/choices"] = choices.astype(bool)
        reward = arrays.get(f"{agent}/reward", np.zeros(size))
        filled[f"{agent}/reward"] = reward.astype(np.float32)
        truncated = arrays.get(f"{agent}/truncated", np.zeros(size, dtype=bool)) != 0
        filled[f"{agent}/truncated"] = truncated
        filled[f"{agent}/terminated"] = arrays.get(f"{agent}/terminated", ends & ~truncated) != 0
    return filled
