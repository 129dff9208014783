"""What corral check finds in our environments and in other people's.

    OMP_NUM_THREADS=1 python benchmarks/conformance.py

Ours in all their forms; PettingZoo's classic environments (pip install chess rlcard) and mpe2
(pip install mpe2). What is not installed is left out, and named. Kinds of findings in environments
that are not ours are reproduced by hand, without corral: REPRODUCED below, run again each time.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from common import machine, save

from corral.envs import PROBES, check_env
from corral.envs.conformance import CheckResult
from corral.envs.registry import REGISTERED, NamedEnv

CLASSIC = (
    *("chess_v6", "connect_four_v3", "go_v5", "hanabi_v5", "leduc_holdem_v4", "rps_v2"),
    *("texas_holdem_no_limit_v6", "texas_holdem_v4", "tictactoe_v3"),
)
MPE = (
    *("collect_treasure_v1", "simple_adversary_v3", "simple_crypto_v3", "simple_formation_v1"),
    *("simple_line_v1", "simple_push_v3", "simple_reference_v3", "simple_speaker_listener_v4"),
    *("simple_spread_v3", "simple_tag_v3", "simple_v3", "simple_world_comm_v3"),
)


def others() -> list[tuple[str, NamedEnv]]:
    """Environments of PettingZoo and mpe2, by package."""
    found = [("pettingzoo", NamedEnv(f"pettingzoo.classic.{name}:env")) for name in CLASSIC]
    for name in MPE:
        found += [("mpe2", NamedEnv(f"mpe2.{name}:{kind}")) for kind in ("parallel_env", "env")]
    return found


def ours() -> list[tuple[str, NamedEnv]]:
    found = []
    for name, spec in REGISTERED.items():
        arguments = {"name": name} if name in PROBES else {}
        kinds = ("parallel_env", "env") if spec.simultaneous else ("env",)
        found += [("corral", NamedEnv(f"{spec.module}:{kind}", arguments)) for kind in kinds]
    return found


# --- By hand -------------------------------------------------------------------------------------


def copies_are_fresh() -> bool:
    """A copy of tictactoe has an empty board; one of simple_spread cannot be stepped."""
    tictactoe = importlib.import_module("pettingzoo.classic.tictactoe_v3").env()
    tictactoe.reset(seed=0)
    tictactoe.step(0)
    twins = copy.deepcopy(tictactoe), pickle.loads(pickle.dumps(tictactoe))
    fresh = all(not any(twin.unwrapped.board.squares) for twin in twins)
    spread = importlib.import_module("mpe2.simple_spread_v3").parallel_env()
    spread.reset(seed=0)
    try:
        copy.deepcopy(spread).step(dict.fromkeys(spread.agents, 0))
    except AttributeError:
        return fresh and any(tictactoe.unwrapped.board.squares)
    return False


def chess_infos_grow() -> bool:
    """At the end of a game of chess infos have a key that they had not at reset."""
    env = importlib.import_module("pettingzoo.classic.chess_v6").env()
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    first = {agent: set(info) for agent, info in env.infos.items()}
    while env.agents:
        observation, _, terminated, truncated, info = env.last()
        if terminated or truncated:
            return set(info) != first[env.agent_selection]
        env.step(rng.choice(np.flatnonzero(observation["action_mask"])))
    return False


REPRODUCED: dict[tuple[str, str], Callable[[], bool]] = {
    ("copies", "EzPickle"): copies_are_fresh,
    ("info", "keys"): chess_infos_grow,
}
"""Kinds of findings, by check and cause, and a demonstration without corral."""


# --- All -----------------------------------------------------------------------------------------


def main() -> None:
    results: list[tuple[str, CheckResult]] = []
    missing = []
    for package, make in (*ours(), *others()):
        try:
            make()
        except ImportError as error:
            missing.append(f"{make.module}: {str(error).splitlines()[0]}")
            continue
        result = check_env(make)
        results.append((package, result))
        print(f"{result.environment} ({result.form}): {result.summary}", flush=True)
    kinds = {
        (finding.check, finding.cause): finding
        for package, result in results
        for finding in result.findings
        if package != "corral"
    }
    reproduced = {kind: check() for kind, check in REPRODUCED.items() if kind in kinds}
    save(
        "conformance",
        _page(results, kinds, reproduced, missing),
        {
            "results": [{"package": name, **result.to_json()} for name, result in results],
            "reproduced": {" ".join(kind): held for kind, held in reproduced.items()},
            "missing": missing,
        },
        machine("pettingzoo", "gymnasium", *_installed("mpe2", "chess", "rlcard")),
    )


def _page(
    results: list[tuple[str, CheckResult]],
    kinds: dict[tuple[str, str], Any],
    reproduced: dict[tuple[str, str], bool],
    missing: list[str],
) -> str:
    lines = [
        "# What corral check finds",
        "",
        "| package | environment | form | episodes | steps | errors | warnings | not run |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for package, result in results:
        figures = (result.episodes, result.steps, len(result.errors), len(result.warnings))
        row = (package, result.environment, result.form, *figures, ", ".join(result.not_run))
        lines.append("| " + " | ".join(map(str, row)) + " |")
    lines += ["", "## Findings in other people's environments", ""]
    for (check, cause), finding in kinds.items():
        where = [
            f"{result.environment} ({result.form})"
            for package, result in results
            for other in result.findings
            if package != "corral" and (other.check, other.cause) == (check, cause)
        ]
        state = {True: "reproduced by hand", False: "NOT REPRODUCED", None: "not tried by hand"}
        lines += [
            f"- **{check}**, {finding.severity} ({state[reproduced.get((check, cause))]}). "
            f"Seen first: {finding.seen}. Expected: {finding.expected}. To do: {finding.advice}.",
            f"  In {len(where)}: {', '.join(where)}.",
        ]
    if not kinds:
        lines.append("None.")
    lines += [f"\nLeft out: {name}." for name in missing]
    return "\n".join(lines)


def _installed(*packages: str) -> list[str]:
    installed = {dist.metadata["Name"].lower() for dist in metadata.distributions()}
    return [package for package in packages if package in installed]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
