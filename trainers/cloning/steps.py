"""Recorded steps: what was observed, decided and rewarded, in one file to clone from.

The file is NumPy's .npz, without pickle. S steps of E episodes stand one after the other:

| entry | | |
|---|---|---|
| ``header`` | text | JSON: ``{"format": "corral steps", "version": 1, "env": NAME}``, more |
| ``lengths`` | int [E] | steps of each episode; their sum is S |
| ``AGENT/observation`` | [S, ...] | as the environment has it; a Dict: ``AGENT/observation/KEY`` |
| ``AGENT/action_mask`` | [S, A] | 1 where an action was legal; all 0 where the agent did not act |
| ``AGENT/action`` | int [S] | what was decided; ignored where the agent did not act |
| ``AGENT/choices`` | bool [S, A] | optional: the actions that were equally good |
| ``AGENT/reward`` | float [S] | optional: what followed; default: 0 |
| ``AGENT/terminated`` | bool [S] | optional: ended by the rules; default: where an episode ends |
| ``AGENT/truncated`` | bool [S] | optional: ended by a time limit; default: nowhere |
| ``state`` | float [S, G] | optional: the global state, for critics that observe it |

The header may hold ``env_kwargs``, ``agents``, ``teacher``, ``seed`` and ``spaces``, the digest of
``spaces_digest``, which is compared where it is there. ``read_steps`` checks every number before
anything learns from it, and refuses a file with all its faults. Nothing is unpacked past
``MOST_BYTES``.
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
MOST_BYTES = 4 * 2**30  # of all entries, unpacked
MOST_ENTRIES = 10_000
MOST_HEADER = 2**20  # bytes of the text

CHOICES, RECORDED = "recorded_choices", "recorded_action"
"""Entries of an observation that ``RecordedTeacher`` alone reads."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Recorded steps, checked. ``arrays`` hold the entries of the file, defaults filled in."""

    name: str
    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    digest: str

    @property
    def lengths(self) -> Array:
        """Steps of each episode: int64 [E]."""
        return self.arrays["lengths"]

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def episodes(self, chosen: Array) -> Steps:
        """Return the same with the ``chosen`` episodes alone: int64 [D]."""
        first = np.cumsum(self.lengths) - self.lengths
        rows = np.concatenate([np.arange(first[e], first[e] + self.lengths[e]) for e in chosen])
        arrays = {key: values[rows] for key, values in self.arrays.items() if key != "lengths"}
        lengths = self.lengths[chosen]
        return Steps(self.name, self.header, {**arrays, "lengths": lengths}, self.digest)

    def divided(self, held_out: float = 0.2) -> tuple[Steps, Steps]:
        """Return the episodes to clone from, and the last ones, at least one, to compare on."""
        count = len(self.lengths)
        if count < 2:
            raise StepsError(
                [
                    StepFault(
                        self.name,
                        "lengths",
                        f"{count} episode; give 2 or more, of which the last ones are kept to "
                        "compare on",
                    )
                ]
            )
        kept = max(1, round(held_out * count))
        return self.episodes(np.arange(count - kept)), self.episodes(np.arange(count - kept, count))

    def observation(self, agent: str, rows: Array) -> Observation:
        """Return what ``agent`` observed in ``rows`` [R], and what it did then."""
        whole = f"{agent}/{OBSERVATION}"
        inner: Any = self.arrays.get(whole)
        if inner is None:
            prefix = f"{whole}/"
            parts = {k: v for k, v in self.arrays.items() if k.startswith(prefix)}
            inner = {key.removeprefix(prefix): values for key, values in parts.items()}
        found: Observation = {OBSERVATION: take_tree(inner, rows)}
        names = {MASK: MASK, RECORDED: "action", CHOICES: "choices"}
        return found | {key: self.arrays[f"{agent}/{name}"][rows] for key, name in names.items()}

    def require_fit(self, rules: Rules[Any]) -> None:
        """Raise StepsError with every fault that these steps have for ``rules``."""
        if faults := faults_of(self.name, self.header, self.arrays, rules, spaces_digest(rules)):
            raise StepsError(faults)


class RecordedTeacher(Memoryless):
    """Decides what was recorded; it reads that from observations of ``Steps`` alone."""

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return the recorded action, and those that were equally good."""
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
    """Write recorded steps, whole or not at all. Raises FileExistsError."""
    target = Path(path)
    if target.exists():
        raise FileExistsError(f"{target} exists; give another file, or remove it")
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, allow_nan=False)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, header=np.array(text), **arrays)
    return write_file(target, file.getvalue())


def read_steps(path: str | Path, rules: Rules[Any]) -> Steps:
    """Return the steps in a file, checked against ``rules``.

    Raises StepsError with every fault, and FileNotFoundError.
    """
    place = Path(path)
    try:
        with open_regular(place) as file:
            arrays, faults = _entries(place, file)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{place}: there is no such file; corral record makes one"
        ) from None
    except OSError as error:
        raise StepsError([StepFault(str(place), "the file", reason(error))]) from error
    if not arrays and faults:
        raise StepsError(faults)  # all else would follow from it
    header = _header(arrays.pop("header", None))
    if header is None or header.get("format") != FORMAT:
        rule = f'holds no JSON with "format": {FORMAT!r}; these are no recorded steps'
        faults.append(StepFault(str(place), "header", rule))
    elif header.get("version") != VERSION:
        rule = f"version {header.get('version')!r:.20}; this corral reads version {VERSION}"
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
    """Return the arguments of ``env`` that a file's header says it was recorded with.

    Those that are no plain values (a load) are left out, and rows, which say what to clone from; so
    are all where the file cannot be read: ``read_steps`` tells of that.
    """
    place = Path(path)
    try:
        with open_regular(place) as file, zipfile.ZipFile(file) as archive:
            info = archive.getinfo("header.npy")
            if info.file_size > 5 * MOST_HEADER:
                return {}
            header = _header(_array(archive, info)) or {}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return {}
    given = header.get("env_kwargs")
    if header.get("env") != env or not isinstance(given, dict):
        return {}
    plain = (str, int, float, bool)
    return {k: v for k, v in given.items() if isinstance(v, plain) and k not in ("rows", "trace")}


def _entries(place: Path, file: BinaryIO) -> tuple[dict[str, Array], list[StepFault]]:
    """Return the arrays of a .npz, and what keeps others from being read."""
    found: dict[str, Array] = {}
    faults: list[StepFault] = []

    def fault(entry: str, rule: str) -> None:
        faults.append(StepFault(str(place), entry, rule))

    if not file.seek(0, io.SEEK_END):
        fault("the file", "is empty; corral record makes one")
        return found, faults
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        fault("the file", f"is no .npz: {error}; corral record makes one")
        return found, faults
    with archive:
        infos = archive.infolist()
        total = sum(info.file_size for info in infos)
        if len(infos) > MOST_ENTRIES:
            fault("the file", f"{len(infos):,} entries, more than {MOST_ENTRIES:,}")
        elif total > MOST_BYTES:
            fault("the file", f"{total:,} bytes unpacked, more than {MOST_BYTES:,}: divide it")
        else:
            for info in infos:
                name = info.filename.removesuffix(".npy")
                if name in found:
                    fault(name, "stands in the file twice")
                    continue
                try:
                    found[name] = _array(archive, info)
                except (ValueError, OSError, zipfile.BadZipFile, EOFError, RuntimeError) as error:
                    fault(name, f"cannot be read: {' '.join(str(error).split())[:200]}")
                except Exception as error:  # whatever a made-up header makes NumPy raise
                    fault(name, f"cannot be read: {type(error).__name__}")
    return found, faults


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Return one entry; what its header claims is compared with its size before it is made."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        read[(2, 0)] = np.lib.format.read_array_header_2_0
        if version not in read:
            raise ValueError(f"version {version} of the .npy format")
        shape, fortran, dtype = read[version](file)
        if dtype.hasobject:
            raise ValueError("holds Python objects, which need pickle; give plain numbers")
        if dtype.kind not in "biufU":
            raise ValueError(f"holds {dtype}; give numbers")
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        if size > info.file_size:
            raise ValueError(f"claims {size:,} bytes and has {info.file_size:,}")
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError(f"has {len(data):,} bytes of numbers, not {size:,}")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _header(array: Array | None) -> dict[str, Any] | None:
    if array is None or array.dtype.kind != "U" or array.shape != ():
        return None
    try:
        if array.nbytes > 4 * MOST_HEADER:
            return None
        found = strict_json(str(array))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _filled(arrays: Mapping[str, Array], rules: Rules[Any]) -> dict[str, Array]:
    """Return the arrays with what may be left out, in the types that are learned from."""
    lengths = arrays["lengths"].astype(np.int64)
    size, last = int(lengths.sum()), np.cumsum(lengths) - 1
    ends = np.zeros(size, dtype=bool)
    ends[last] = True
    found = {**arrays, "lengths": lengths}
    for agent in rules.agents:
        mask = arrays[f"{agent}/{MASK}"] != 0
        found[f"{agent}/{MASK}"] = mask.astype(np.int8)
        action = np.where(mask.any(axis=1), arrays[f"{agent}/action"], 0).astype(np.int64)
        found[f"{agent}/action"] = action
        chosen = np.arange(mask.shape[1]) == action[:, None]
        choices = arrays.get(f"{agent}/choices", chosen)
        found[f"{agent}/choices"] = choices.astype(bool)
        reward = arrays.get(f"{agent}/reward", np.zeros(size))
        found[f"{agent}/reward"] = reward.astype(np.float32)
        truncated = arrays.get(f"{agent}/truncated", np.zeros(size, dtype=bool)) != 0
        found[f"{agent}/truncated"] = truncated
        found[f"{agent}/terminated"] = arrays.get(f"{agent}/terminated", ends & ~truncated) != 0
    return found
