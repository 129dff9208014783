"""Prove that a redesign changes no number: short runs, trajectories and replays, hashed.

    python benchmarks/same_numbers.py                 # compares with what was recorded before
    python benchmarks/same_numbers.py --record FILE   # writes such a record
    python benchmarks/same_numbers.py --only arena    # the items with that in their name

The record is results/same_numbers_before.json. Hashed (SHA-256) are the final checkpoint of each
run, what its progress.csv says but for clocks, and what evaluation finds; trajectories of every
registered environment; the rows of replays. What is played, and what it is called in a version, is
in same_numbers_cases.py. All runs on the CPU, in one thread, with instructions that most x86
processors have: with other libraries or on another processor the numbers may be others.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import hashlib
import inspect
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import same_numbers_cases as cases
from common import RESULTS, machine
from same_numbers_cases import (
    ADDED_INFOS,
    PROGRESS,
    UNHASHED,
    attribute,
    call,
    complete,
    found,
    named_settings,
    neutral,
    result_rows,
)

from corral.envs.dfaas_v0 import DfaasRules

# --- Hashing -------------------------------------------------------------------------------------

Leaves = dict[str, list[Any]]  # name -> digest, shape, mean


class Stream:
    """Arrays that come one after the other under names, hashed as they come."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self._shapes: dict[str, str] = {}
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, name: str, value: Any) -> None:
        """Take in an array, a mapping of them, or what JSON can hold."""
        for leaf, part in flat(name, value):
            if not UNHASHED.search(leaf):
                self._add(leaf, part)

    def _add(self, name: str, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            known = json.dumps(without_added(value), sort_keys=True)
            shape, data, total, size = "JSON", known.encode(), 0.0, 1
            if isinstance(value, int | float):
                total = float(value)
        else:
            shape, data = f"{value.dtype}{list(value.shape)}", np.ascontiguousarray(value).tobytes()
            total, size = float(np.nansum(value, dtype=np.float64)), value.size
        digest = self._hashes.setdefault(name, hashlib.sha256())
        digest.update(shape.encode() + b"\0" + data)
        self._shapes[name] = shape
        before, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = before + total, count + size

    def leaves(self) -> Leaves:
        """In a fixed order, what each name's arrays come to; the mean is for people."""
        return {
            name: [self._hashes[name].hexdigest()[:16], self._shapes[name], total / max(1, count)]
            for name, (total, count) in sorted(self._sums.items())
        }


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is in mappings of mappings, named by where it is."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(f"{name}/{key}".lstrip("/"), part)
    else:
        yield name, value


def without_added(value: Any) -> Any:
    """A JSON value without the infos that a later version added."""
    if isinstance(value, Mapping):
        known = {key: part for key, part in value.items() if key not in ADDED_INFOS}
        return {key: without_added(part) for key, part in known.items()}
    return [without_added(part) for part in value] if isinstance(value, list | tuple) else value


def digest_of(leaves: Leaves, names: list[str]) -> str:
    """One SHA-256 over the leaves in the order of ``names``."""
    lines = [f"{name} {leaves[name][0] if name in leaves else 'missing'}" for name in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def add_checkpoint(stream: Stream, folder: Path) -> None:
    content = found("load_checkpoint")(found("latest_checkpoint")(folder / "checkpoints"))
    for name, value in flat("", {"arrays": content.arrays, "documents": content.documents}):
        stream.add(f"checkpoint/{neutral(name)}", value)


def add_progress(stream: Stream, folder: Path) -> None:
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if len(rows) < cases.UPDATES:
        raise SystemExit(f"{folder.name}: {len(rows)} updates, not {cases.UPDATES}")
    for column in rows[0]:
        values = np.array([float(row[column] or "nan") for row in rows])
        stream.add(f"progress/{PROGRESS.get(column, column)}", values)


def add_rows(stream: Stream, name: str, result: Any, columns: tuple[str, ...]) -> None:
    for row in result_rows(result):
        who = [str(attribute(row, key) or "-") for key in ("policy", "mode", "seat", "opponent")]
        stream.add(
            f"{name}/{' | '.join(who)}", {column: attribute(row, column) for column in columns}
        )


# --- What is played ------------------------------------------------------------------------------

EVALUATED = ("return", "low", "high", "episodes", "illegal_actions")
REPLAYED = (*EVALUATED, "served", "lost", "forwarded", "mean_waiting", "cost", "share_of_optimum")


def env_arguments(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an environment: those of the cases, with ``changes``."""
    known = set(inspect.signature(found("rules_class")(name)).parameters)
    return complete(name, {**cases.ENVIRONMENTS[name], **changes}, known)


def run(case: cases.Case) -> Leaves:
    """Train, and hash the checkpoint, what was learned and what it is worth."""
    trainer = found("trainer_class")(case.trainer)
    known = {each.name for each in dataclasses.fields(trainer.Settings)}
    given = {**cases.TRAINERS[case.trainer], **case.settings}
    settings = named_settings(given, known)
    registered = isinstance(case.env, str)
    env = case.env if registered else found("zoo_rules")(case.env, max_cycles=None)
    steps = cases.UPDATES * given["num_envs"] * given["n_steps"]
    stream = Stream()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        arguments = {
            "trainer": case.trainer,
            "steps": steps,
            "seed": cases.SEED,
            "env_kwargs": env_arguments(case.env, case.env_kwargs) if registered else None,
            "held_out": 0.3 if case.env == "dfaas_v0" else None,
            "validation": 0 if case.env == "dfaas_v0" else None,  # none, as before there was any
            "policies": case.policies,
            "policies_to_train": None,
            "opponents": case.opponents,
            "out": out,
            "checkpoint_every": steps,
            "keep": 1,
            "progress": False,
        }
        trained = call("train", (env,), arguments, **settings)
        played = json.loads((out / "config.json").read_text())["settings"]
        if played != json.loads(json.dumps(settings)):
            raise SystemExit(f"trained with {played}, asked for {settings}")
        add_checkpoint(stream, out)
        add_progress(stream, out)
        load = case.env == "dfaas_v0"
        judged = {
            "beside": (),
            "references": ("local", "overflow/two"),
            "trace": None,
            "rows": cases.DFAAS_ROWS if load else None,
            "window": 40 if load else None,
            "episodes": None if load else cases.EPISODES,  # a load is replayed in all windows
            "seed": cases.SEED,
            "optimum_windows": 1,
            "zero_sum": None if registered else False,  # as it was before this was an argument
            "out": out,
            "progress": _silent,
        }
        own, more = cases.judge_options(judged, load)
        with references_on_levels():
            judgment = call("evaluate", (trained,), own, **more)
        add_rows(stream, "evaluation", judgment, EVALUATED)
    return stream.leaves()


def trajectory(name: str, changes: Mapping[str, Any]) -> Leaves:
    """Step copies with legal actions that this script draws from the masks."""
    batch = found("make_batch")(name, cases.COPIES, cases.SEED, **env_arguments(name, changes))
    rng, stream = np.random.default_rng(cases.SEED), Stream()
    observations, agents = batch.reset(), batch.rules.agents
    stream.add("first info", batch.first_info())
    for _ in range(cases.STEPS):
        stream.add("observations", observations)
        stream.add("global state", np.asarray(batch.global_state()))
        stream.add("acting", np.asarray(batch.acting))
        masks = [np.asarray(observations[agent]["action_mask"]) for agent in agents]
        actions = np.stack([_legal_actions(mask, rng) for mask in masks], axis=1)
        stream.add("actions", actions)
        step = batch.step(actions)
        for part in ("reward", "terminated", "truncated", "info"):
            stream.add(part, attribute(step, part))
        if step.finished is not None:
            for part in ("rows", "observations", "global_state", "returns", "lengths"):
                stream.add(f"finished/{part}", attribute(step.finished, part))
        observations = step.observations
    return stream.leaves()


def _legal_actions(mask: Any, rng: np.random.Generator) -> Any:
    """One of the legal actions of each row, int64 [B]; 0 where none is legal."""
    rank = (rng.random(len(mask)) * np.count_nonzero(mask, axis=1)).astype(np.int64)
    legal_first = np.argsort(mask == 0, axis=1, kind="stable")
    return legal_first[np.arange(len(mask)), rank]


def replayed(changes: Mapping[str, Any]) -> Leaves:
    """Replay a few hundred steps of edge3 through reference policies."""
    played = env_arguments("dfaas_v0", changes)
    settings = {k: v for k, v in played.items() if k not in ("trace", "rows", "start")}
    given = {"rows": (1000, 1300), "window": 96, "seed": cases.SEED, "optimum_windows": 2}
    stream = Stream()
    given = {**given, "progress": _silent}
    with references_on_levels():
        result = call("replay", (played["trace"], cases.PAIRS), given, **settings)
    add_rows(stream, "rows", result, REPLAYED)
    return stream.leaves()


def references_on_levels() -> Any:
    """Let references of replays forward on the levels of a learner, as when it was recorded."""
    return mock.patch.object(DfaasRules, "in_requests", lambda rules: rules, create=True)


def _silent(*_: Any) -> None:
    pass


def items() -> Iterator[tuple[str, str, Callable[[], Leaves]]]:
    """Kind, name and function of all that is hashed."""
    for name, case in cases.RUNS.items():
        yield "runs", name, functools.partial(run, case)
    for name in found("registered"):
        if name not in cases.ENVIRONMENTS:
            print(f"{name}: not in the cases, not compared", file=sys.stderr)
            continue
        for changes in ({}, *cases.VARIANTS.get(name, ())):
            text = ", ".join(f"{key}={value}" for key, value in changes.items())
            what = f"{name} {text}".strip()
            yield "environments", what, functools.partial(trajectory, name, changes)
    for name, changes in cases.REPLAYS.items():
        yield "replays", name, functools.partial(replayed, changes)


# --- Recording and comparing ---------------------------------------------------------------------

FIXED = {  # one thread; and no instructions that only some processors have
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "CUDA_VISIBLE_DEVICES": "",
}


def about() -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    packages = ("torch", "stable-baselines3", "sb3-contrib", "supersuit", "pettingzoo", "gymnasium")
    return {
        **machine(*packages, "scipy"),
        "torch threads": torch.get_num_threads(),
        "environment variables": FIXED,
        "seed": cases.SEED,
    }


def measure(only: str) -> dict[str, dict[str, Leaves]]:
    measured: dict[str, dict[str, Leaves]] = {}
    for kind, name, play in items():
        if only in name:
            clock = time.perf_counter()
            measured.setdefault(kind, {})[name] = play()
            print(f"{time.perf_counter() - clock:6.1f} s  {name}", file=sys.stderr)
    return measured


def record(file: Path, measured: Mapping[str, Mapping[str, Leaves]]) -> None:
    """Write all leaves in their order, and the SHA-256 of each item over them."""
    kinds = {
        kind: {
            name: {"sha256": digest_of(leaves, list(leaves)), "leaves": leaves}
            for name, leaves in found.items()
        }
        for kind, found in measured.items()
    }
    text = json.dumps({"about": about(), **kinds}, indent=1)
    lists = re.compile(r"\[\n\s+(\"[^\n]*),\n\s+(\"[^\n]*),\n\s+([^\n]*)\n\s+\]")
    file.write_text(lists.sub(r"[\1, \2, \3]", text) + "\n")  # a leaf on a line


REASONS = {
    "3 mappo, hidden state": "a mistake was mended: where a time limit cut an episode in a "
    "rollout's last step, its final observation was valued with a hidden state of 0",
}
"""Why an item may differ from the record."""


def _is_interval(kind: str, name: str, leaf: str) -> bool:
    """Return whether a leaf is the end of an interval of a replay: these are Student's now, and
    were a bootstrap's."""
    replayed = kind == "replays" or (kind == "runs" and cases.RUNS[name].env == "dfaas_v0")
    return replayed and bool(re.search(r"^(rows|evaluation)/.*/(low|high)$", leaf))


def compare(before: Mapping[str, Any], measured: Mapping[str, Any], only: str) -> bool:
    """Print what differs, and how much is equal; whether all of it is, or differs for a reason."""
    summary, equal = [], True
    rows = ["| | before | after | |", "|---|---|---|---|"]
    for kind in ("runs", "environments", "replays"):
        wanted = {name: item for name, item in before[kind].items() if only in name}
        same = 0
        for name, item in wanted.items():
            leaves = measured.get(kind, {}).get(name)
            if leaves is None:
                print(f"{name}: is not played here")
                equal = False
                continue
            names = [leaf for leaf in item["leaves"] if not _is_interval(kind, name, leaf)]
            recorded = digest_of(item["leaves"], names)
            digest, verdict = digest_of(leaves, names), "equal"
            if digest == recorded:
                same += 1
            elif name in REASONS:
                verdict = f"differs: {REASONS[name]}"
                print(f"{name} {verdict}")
            else:
                verdict, equal = "differs", False
                _tell(name, item["leaves"], leaves)
            rows.append(f"| {name} | {recorded[:16]} | {digest[:16]} | {verdict} |")
        summary.append(f"{same} of {len(wanted)} {kind}")
    print(f"{', '.join(summary)} equal")
    if not only:
        text = "\n".join(["# The same numbers as before the redesign", "", *rows, ""])
        (RESULTS / "same_numbers.md").write_text(f"{text}\n{', '.join(summary)} equal.\n")
    return equal


def _tell(name: str, before: Leaves, now: Leaves) -> None:
    """Name the leaves that differ, and where the same numbers are found under other names."""
    elsewhere = {leaf[0]: other for other, leaf in now.items() if other not in before}
    different = [key for key, leaf in before.items() if key not in now or now[key][0] != leaf[0]]
    print(f"{name}: {len(different)} of {len(before)} differ")
    for key in different[:12]:
        digest, shape, mean = before[key]
        told = f"{shape}, mean {mean:.9g}"
        there = f"now {now[key][1]}, mean {now[key][2]:.9g}" if key in now else "now missing"
        if digest in elsewhere:
            there += f"; {elsewhere[digest]} has these numbers: is it renamed?"
        print(f"    {key}: {told}; {there}")
    if len(different) > 12:
        print(f"    and {len(different) - 12} more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the hashes to FILE")
    parser.add_argument("--only", default="", metavar="TEXT", help="items with TEXT in their name")
    given = parser.parse_args()
    if any(os.environ.get(key) != value for key, value in FIXED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **FIXED})
    here = about()  # sets the threads, before anything is played
    if given.record is not None:
        record(given.record, measure(given.only))
        return
    before = json.loads((RESULTS / "same_numbers_before.json").read_text())
    for key, value in before["about"].items():
        if key not in ("date", "corral", "cpus") and here.get(key) != value:
            print(f"recorded with {key} {value}, here {here.get(key)}: numbers may differ by that")
    sys.exit(0 if compare(before, measure(given.only), given.only) else 1)


if __name__ == "__main__":
    main()
