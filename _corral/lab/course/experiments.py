"""Exercises on experiments: 7, returns of policies; 9, a callback; 10, a paired comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from corral.envs.batch import batch_for
from corral.envs.core import Array
from corral.envs.episode_stats import Episode, EpisodeStats
from corral.envs.registry import make_rules
from corral.lab.course.exercise import Answer, Probe, Unusable, exercise
from corral.trainers.callbacks.protocol import Callback

__all__ = ["callback", "paired_comparison", "policy_returns"]

# --- 7: returns of policies ----------------------------------------------------------------------


def _played() -> list[Probe]:
    apart = {"agent_1": "explorer", "agent_2": "blocker"}
    shared = {"agent_1": "shared", "agent_2": "shared"}
    steps = ((1.0, -0.1), (-1.0, 1.0), (-0.5, -0.1), (1.0, -0.1))
    rewards = [{"agent_1": first, "agent_2": second} for first, second in steps]
    return [
        {"rewards": rewards, "policies": apart, "frozen": []},
        {"rewards": rewards[:3], "policies": shared, "frozen": []},
        {"rewards": rewards, "policies": apart, "frozen": ["agent_2"]},
        {"rewards": rewards[1:], "policies": shared, "frozen": ["agent_1"]},
    ]


def _playing(p: Probe) -> list[str]:
    return [agent for agent in p["policies"] if agent not in p["frozen"]]


def _by_policy(p: Probe, combine: Callable[[list[float]], float] = sum) -> dict[str, float]:
    """Return policy -> the combined returns of the agents that it played."""
    agents = {agent: sum(step[agent] for step in p["rewards"]) for agent in _playing(p)}
    names = p["policies"]
    return {
        name: combine([value for agent, value in agents.items() if names[agent] == name] or [0.0])
        for name in names.values()
    }


def _team(p: Probe, agents: Collection[str]) -> dict[str, float]:
    total = sum(step[agent] for step in p["rewards"] for agent in agents)
    return dict.fromkeys(p["policies"].values(), total)


def _divided(p: Probe) -> dict[str, float]:
    """Divide by the number of each policy's agents, with the frozen ones."""
    names = [*p["policies"].values()]
    return {name: value / names.count(name) for name, value in _by_policy(p).items()}


policy_returns = exercise(
    7,
    _played,
    _by_policy,
    {
        "team-return": (lambda p: _team(p, p["policies"]), lambda p: _team(p, _playing(p))),
        "mean-over-agents": (lambda p: _by_policy(p, lambda v: sum(v) / len(v)), _divided),
        "frozen-counted": lambda p: _by_policy(p | {"frozen": []}),
        "last-agent": lambda p: _by_policy(p, lambda values: values[-1]),
    },
)

# --- 9: a callback -------------------------------------------------------------------------------


def _updates() -> list[Probe]:
    """The episodes that end in each of five updates, in arena_v0 with random actions."""
    probes = []
    for seed, num_envs in ((0, 2), (1, 3)):
        rules = make_rules("arena_v0", width=5, height=5, max_cycles=12)
        batch, stats = batch_for(rules, num_envs, seed), EpisodeStats(rules.agents)
        rng, updates = np.random.default_rng(seed), []
        batch.reset()
        for _ in range(5):
            steps = [stats.add(batch.step(rng.integers(4, size=(num_envs, 2)))) for _ in range(8)]
            updates.append([episode for ended in steps for episode in ended])
        probes.append({"updates": updates})
    return probes


EPISODE = "(The episode of a callback has returns, length and kpis. That of a metric has steps.)"


def _column(new_callback: Answer, p: Probe) -> dict[str, Any]:
    """Return the cells that a callback writes, as ``_as_cells`` does."""
    callback = new_callback()
    if not isinstance(callback, Callback):
        raise Unusable("wrong-type", "NewFields is not a subclass of corral.Callback")
    cells = []
    for episodes in p["updates"]:
        for episode in episodes:
            try:
                callback.on_episode(None, episode)
            except AttributeError as error:
                if isinstance(error.obj, Episode):
                    error.add_note(EPISODE)
                raise
        row: dict[str, Any] = {}
        callback.on_update(None, row)
        if episodes and "new_fields" not in row:
            raise Unusable("wrong-shape", "on_update added no column new_fields to row")
        cells.append(row.get("new_fields"))
    return _as_cells(cells)


def _as_cells(cells: list[Any]) -> dict[str, Any]:
    """Return the numbers [U] of the updates, NaN for None, and whether a cell is empty [U]."""
    numbers = [math.nan if cell is None else cell for cell in cells]
    return {"new_fields": np.array(numbers), "empty": [cell is None for cell in cells]}


def _cells(
    p: Probe,
    number: Callable[[Episode], float] = lambda episode: episode.kpis["new_field"],
    combine: Callable[..., Any] = np.mean,
    *,
    empty: float | None = None,
) -> dict[str, Any]:
    """Return the cells of a callback that combines a number of each episode."""
    numbers = [[number(episode) for episode in episodes] for episodes in p["updates"]]
    return _as_cells([combine(each) if each else empty for each in numbers])


def _never_reset(p: Probe) -> dict[str, Any]:
    so_far = itertools.accumulate(p["updates"], lambda earlier, update: earlier + update)
    return _cells({"updates": list(so_far)})


callback = exercise(
    9,
    _updates,
    _cells,
    {
        "steps": lambda p: _cells(p, lambda episode: episode.length),
        "never-reset": _never_reset,
        "unpaid-fields": lambda p: _cells(p, lambda episode: episode.kpis["fields_visited"]),
        "collisions": lambda p: _cells(p, lambda episode: episode.kpis["collision"]),
        "sum-over-episodes": (
            lambda p: _cells(p, combine=sum),
            lambda p: _cells(p, combine=sum, empty=0.0),
        ),
        "zero-without-episodes": lambda p: _cells(p, empty=0.0),
        "not-a-number": lambda p: _cells(p, empty=math.nan),
    },
    _column,
)

# --- 10: a paired comparison ---------------------------------------------------------------------


def _paired_returns() -> list[Probe]:
    probes = []
    for seed, episodes in enumerate((5, 8)):
        rng = np.random.default_rng(seed + 10)
        returns = rng.normal(0, 20, episodes) + rng.normal([[52], [50]], 2, (2, episodes))
        probes.append({"mine": returns[0].round(1), "theirs": returns[1].round(1)})
    return probes


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _paired(p: Probe) -> tuple[float, float]:
    difference = p["mine"] - p["theirs"]
    return float(difference.mean()), _error(difference)


paired_comparison = exercise(
    10,
    _paired_returns,
    _paired,
    {
        "unpaired": lambda p: (_paired(p)[0], math.hypot(_error(p["mine"]), _error(p["theirs"]))),
        "deviation": (
            lambda p: (_paired(p)[0], (p["mine"] - p["theirs"]).std(ddof=1)),
            lambda p: (_paired(p)[0], (p["mine"] - p["theirs"]).std()),
        ),
        "population-deviation": lambda p: (
            _paired(p)[0],
            (p["mine"] - p["theirs"]).std() / math.sqrt(len(p["mine"])),
        ),
        "sign": lambda p: _paired({"mine": p["theirs"], "theirs": p["mine"]}),
        "absolute-differences": lambda p: _paired(
            {"mine": abs(p["mine"] - p["theirs"]), "theirs": 0 * p["theirs"]}
        ),
        "best-seed": (
            lambda p: (p["mine"].max() - p["theirs"].max(), _paired(p)[1]),
            lambda p: ((p["mine"] - p["theirs"]).max(), _paired(p)[1]),
        ),
    },
)
