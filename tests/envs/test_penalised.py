"""Illegal actions under "penalise": they warn once, are counted, and do what is documented."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from corral.envs.batch import Batch
from corral.envs.shells import ParallelShell
from corral.errors import (
    IllegalActionWarning,
)
from support.interfaces import AGENTS, INTERFACES, Parallel, make_rules


def highest_legal(player: Parallel) -> int:
    return int(player.masks()[AGENTS[1]]["action_mask"].sum()) - 1


@pytest.mark.parametrize("interface", INTERFACES)
def test_penalised_actions_warn_once_and_are_counted_each_time(interface: str) -> None:
    """Once per environment, not per episode; and the warning points at the caller."""
    for _ in range(2):  # a second environment warns again
        player = INTERFACES[interface]("penalise")
        caught: list[warnings.WarningMessage] = []
        counted = illegal = 0
        for _ in range(12):
            with warnings.catch_warnings(record=True) as now:
                warnings.simplefilter("always")
                counted += play_a_step(player, highest_legal(player) + 1)
                illegal += 1
            caught += now
        assert counted == illegal == 12
        assert [warning.category for warning in caught] == [IllegalActionWarning]
        message = str(caught[0].message)
        for part in ("dfaas_v0", AGENTS[1], "action_mask", 'illegal="raise"'):
            assert part in message
        assert AGENTS[0] not in message
        assert Path(caught[0].filename) == Path(__file__)


def play_a_step(player: Parallel, action: int) -> int:
    """Play ``action`` for node_1 and 0 for the others, reset at the end; the illegal ones."""
    env = player.env
    if isinstance(env, Batch):
        step = env.step([[0, 0, 0], [0, action, 0]])
        return int(step.info["illegal_actions"].sum())
    if isinstance(env, ParallelShell):
        infos = env.step({agent: action if agent == AGENTS[1] else 0 for agent in AGENTS})[4]
        if not env.agents:
            env.reset()
    else:
        env.step(action)
        env.step(0)
        infos = env.infos
        if any(env.truncations.values()):
            env.reset()
        env.step(0)
    return sum(info["illegal_actions"] for info in infos.values())


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_illegal_action_forwards_all_arrivals(interface: str) -> None:
    """The documented consequence in dfaas_v0; the same as the highest legal action."""
    results = []
    for beyond in (0, 1):
        player = INTERFACES[interface]("penalise")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllegalActionWarning)
            env = player.env
            action = highest_legal(player) + beyond
            if isinstance(env, Batch):
                info = {
                    k: int(v[1, 1])
                    for k, v in player.env.step([[0] * 3, [0, action, 0]]).info.items()
                }
            elif isinstance(env, ParallelShell):
                info = env.step({"node_0": 0, "node_1": action, "node_2": 0})[4]["node_1"]
            else:
                env.step(action)
                env.step(0)
                info = env.infos["node_1"]
        assert info["forwarded"] == info["arrivals"] > 0
        assert info["illegal_actions"] == beyond
        results.append({**info, "illegal_actions": 0})
    assert results[0] == results[1]


def test_legal_play_never_warns() -> None:
    batch = Batch(make_rules(), 8, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = sum(
            int(batch.step(batch.sample_actions(rng)).info["illegal_actions"].sum())
            for _ in range(20)
        )
    assert total == 0
