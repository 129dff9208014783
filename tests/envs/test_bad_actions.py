"""What becomes of bad actions, through every interface, also where ``assert`` is switched off.

``python -O tests/envs/test_bad_actions.py`` runs the core of it: no check here is an ``assert``
that would vanish.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import dfaas_v0
from corral.envs.batch import Batch
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import (
    ActionError,
    IllegalActionError,
    ResetNeededError,
)
from support.contract import ContractViolation, require
from support.interfaces import ACTIONS, AGENTS, CONFIGURATION, INTERFACES, make_rules
from support.turn_rules import MortalRules, PileRules

MALFORMED: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "float 1.0": 1.0,
    "numpy float": np.float64(1.0),
    "complex": 1 + 0j,
    "bool": True,
    "numpy bool": np.True_,
    "None": None,
    "string": "1",
    "bytes": b"1",
    "list": [1],
    "array of shape (1,)": np.array([1]),
    "array of shape (1, 1)": np.array([[1]]),
    "array of floats": np.array(1.0),
    "dict": {"action": 1},
    "object": object(),
    "masked": np.ma.masked,
    "masked array": np.ma.array(1, mask=True),
    "masked array, nothing masked": np.ma.array(1, mask=False),
    "-1": -1,
    "A": ACTIONS,
    "numpy A": np.int64(ACTIONS),
    "10**30": 10**30,
    "10**5000": 10**5000,  # too long for Python to print
}


def refused(frozen: Callable[[], bytes], kind: type[Exception], call: Callable[[], Any]) -> str:
    """Require that ``call`` raises ``kind`` itself and changes nothing; the error's message."""
    before = frozen()
    try:
        call()
    except Exception as error:
        require(type(error) is kind, f"{kind.__name__} is due, not {error!r}")
        require(frozen() == before, f"{error!r} was raised, but something had changed")
        return str(error)
    raise ContractViolation(f"{kind.__name__} is due, but nothing was raised")


# --- Malformed: an error always, and nothing changes ---------------------------------------------


def check_malformed(interface: str, illegal: str, name: str) -> None:
    player, twin = INTERFACES[interface](illegal), INTERFACES[interface](illegal)
    message = refused(player.frozen, ActionError, lambda: player.act(MALFORMED[name]))
    wanted = ("0..", "shape (2, 3)", "masked array") if interface == "batch" else (AGENTS[1],)
    require(any(part in message for part in wanted), f"the error says what is wanted: {message}")
    # Afterwards the game goes on as if nothing had been tried.
    for each in (player, twin):
        each.act(1 if each.masks()[AGENTS[1]]["action_mask"][1] else 0)
    require(player.frozen() == twin.frozen(), "a refused action leaves no trace")


def check_illegal_under_raise(interface: str) -> None:
    player = INTERFACES[interface]("raise")
    mask = player.masks()[AGENTS[1]]["action_mask"]
    for action in np.flatnonzero(mask == 0):
        for value in (int(action), np.int8(action), np.uint64(action)):
            message = refused(
                player.frozen, IllegalActionError, functools.partial(player.act, value)
            )
            highest = int(mask.sum()) - 1
            legal = f"legal: 0..{highest}." if highest else "legal: 0."
            for part in (AGENTS[1], str(action), legal):
                require(part in message, f"the error names {part}: {message}")
    require((mask == 0).sum() >= 3, "some actions are illegal")
    if interface == "batch":
        require(message.startswith("copy 1,"), f"the error names the copy: {message}")


def check_well_formed(interface: str) -> None:
    """Integers of any kind are the same action."""
    results = []
    for value in (1, np.int8(1), np.uint16(1), np.uint64(1), np.int64(1)):
        player = INTERFACES[interface]("raise")
        player.act(value)
        results.append(player.frozen())
    require(len(set(results)) == 1, "integers of any kind play alike")


# --- Misuse of each interface --------------------------------------------------------------------


def frozen(env: Any) -> Callable[[], bytes]:
    return lambda: pickle.dumps(env)


def legal_actions(env: ParallelShell) -> dict[str, int]:
    """The lowest legal action of each agent."""
    return {a: int(env._observations[a]["action_mask"].argmax()) for a in env.agents}


def ended(env: Any) -> Any:
    """The environment at the end of an episode."""
    env.reset(seed=0)
    while env.agents:
        env.step(dict.fromkeys(env.agents, 0))
    return env


def check_parallel_misuse() -> int:
    env = ParallelShell(make_rules())
    good = dict.fromkeys(AGENTS, 0)
    cases = 0
    for kind, calls in {
        "step": lambda: env.step(good),
        "state": env.state,
        "render": env.render,
    }.items():
        message = refused(frozen(env), ResetNeededError, calls)
        require(f"call reset() before {kind}()" in message, message)
        cases += 1
    env.reset(seed=0)
    for actions, part in [
        ({}, "no action for node_0"),
        ({"node_0": 0, "node_2": 0}, "no action for node_1"),
        ({**good, "node_3": 0}, "'node_3' is unknown"),
        ({**good, 0: 0}, "0 is unknown"),
        ([0, 0, 0], "a dict"),
        (np.zeros(3, dtype=int), "a dict"),
        (None, "a dict"),
        (0, "a dict"),
        ("node_0", "a dict"),
        # The first two are fine: the third must be found before they are played.
        ({**good, "node_2": math.nan}, "node_2"),
        ({**good, "node_2": None}, "node_2"),
    ]:
        message = refused(frozen(env), ActionError, functools.partial(env.step, actions))
        require(part in message, f"{part!r} is missing: {message}")
        cases += 1
    over = ended(env)
    message = refused(frozen(over), ResetNeededError, lambda: over.step(good))
    require("reset()" in message, message)
    message = refused(frozen(over), ResetNeededError, lambda: over.step({}))
    # An agent that died earlier than the others.
    mortal = ParallelShell(MortalRules((2, 2, 2), lives=(1, 3, 3)))
    mortal.reset(seed=0)
    mortal.step(legal_actions(mortal))
    everyone = dict.fromkeys(mortal.possible_agents, 0)
    message = refused(frozen(mortal), ActionError, lambda: mortal.step(everyone))
    require("'agent_0'" in message, message)
    for seed in (-1, 1.5, True):
        kind = TypeError if isinstance(seed, float) else ValueError
        refused(frozen(mortal), kind, functools.partial(mortal.reset, seed=seed))
    return cases + 6


def check_aec_misuse() -> int:
    wrapped = dfaas_v0.env(**CONFIGURATION)
    raw = TurnShell(make_rules())
    # Before reset: wrapped and by itself, and with the asserts of PettingZoo's wrapper removed.
    for call in (lambda: wrapped.step(0), lambda: wrapped.observe(AGENTS[0])):
        refused(frozen(wrapped), ResetNeededError, call)
    refused(frozen(wrapped), ResetNeededError, wrapped.state)
    refused(frozen(wrapped), ResetNeededError, wrapped.render)
    unwrapped = dfaas_v0.raw_env(**CONFIGURATION)
    refused(frozen(unwrapped), ResetNeededError, lambda: unwrapped.step(0))
    refused(frozen(wrapped), AttributeError, lambda: wrapped.agent_selection)
    refused(frozen(wrapped), AttributeError, wrapped.last)
    for call in (lambda: raw.step(0), lambda: raw.observe(AGENTS[0]), raw.state, raw.render):
        refused(frozen(raw), ResetNeededError, call)
    shells: list[Any] = [
        TurnShell(MortalRules((2, 2, 2), lives=(1, 3, 3))),
        TurnShell(PileRules((9, 10), last_move=1)),
    ]
    for env in shells:
        env.reset(seed=0)
        while not env.terminations[env.agent_selection]:
            env.step(int(env.observe(env.agent_selection)["action_mask"].argmax()))
        dead = env.agent_selection
        for action in (0, 10**30, math.nan, "None"):
            message = refused(frozen(env), ActionError, functools.partial(env.step, action))
            require(f"{dead} " in message, message)
        env.step(None)
        require(dead not in env.agents, "None is the action of the dead")
    # After the end the shell raises, PettingZoo's wrapper warns; nothing changes.
    over = TurnShell(PileRules((1, 2)))
    over.reset(seed=0)
    for action in (0, None, None):
        over.step(action)
    message = refused(frozen(over), ResetNeededError, lambda: over.step(0))
    require("reset()" in message, message)
    wrapped.reset(seed=0)
    while wrapped.agents:
        selected = wrapped.agent_selection
        gone = wrapped.terminations[selected] or wrapped.truncations[selected]
        wrapped.step(None if gone else 0)
    before = pickle.dumps(wrapped)
    wrapped.step(0)
    require(pickle.dumps(wrapped) == before, "a step after the end changes nothing")
    return 8 + 4 * len(shells) + 2


def check_batch_misuse() -> int:
    batch = Batch(make_rules(), 2, 0)
    good = np.zeros((2, 3), dtype=np.int64)
    refused(frozen(batch), ResetNeededError, lambda: batch.step(good))
    batch.reset()
    one_off: list[Any] = []
    for value in (-1, ACTIONS, 2**62):
        joint = good.copy()
        joint[1, 2] = value
        one_off.append((joint, f"copy 1, node_2: action {value} is out of range"))
    for actions, part in [
        *one_off,
        (np.full((2, 3), 2**64 - 1, dtype=np.uint64), "out of range"),
        (0, "shape (2, 3)"),
        ([], "shape (2, 3)"),
        (None, "shape (2, 3)"),
        (good[0], "shape (2, 3)"),
        (good[:, :2], "shape (2, 3)"),
        (good[:1], "shape (2, 3)"),
        (good.T, "shape (2, 3)"),
        (good[..., None], "shape (2, 3)"),
        (good.astype(float), "float64"),
        (good.astype(bool), "bool"),
        (good.astype(object), "object"),
        (good.astype(str), "integers"),
        ([[0, 0, 0], [0, 0]], "shape (2, 3)"),
        (dict.fromkeys(AGENTS, 0), "shape (2, 3)"),
        (np.ma.array(good, mask=good == 0), "masked array"),
        (np.ma.array(good), "masked array"),
        ([np.ma.array(good[0], mask=[0, 1, 0]), good[1]], "masked array"),
        ([[0, 0, math.nan], [0, 0, 0]], "float64"),
        ([[0, 0, None], [0, 0, 0]], "object"),
    ]:
        message = refused(frozen(batch), ActionError, functools.partial(batch.step, actions))
        require(part in message, f"{part!r} is missing: {message}")
    return 22


def core_checks() -> int:
    """All of the above; how many cases were tried."""
    cases = 0
    for interface in INTERFACES:
        for illegal in ("penalise", "raise"):
            for name in MALFORMED:
                check_malformed(interface, illegal, name)
                cases += 1
        check_illegal_under_raise(interface)
        check_well_formed(interface)
        cases += 2
    return cases + check_parallel_misuse() + check_aec_misuse() + check_batch_misuse()


# --- The tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("interface", INTERFACES)
def test_malformed_actions_are_errors_and_change_nothing(interface: str, name: str) -> None:
    for illegal in ("penalise", "raise"):
        check_malformed(interface, illegal, name)
    assert len(MALFORMED) >= 15


@pytest.mark.parametrize("interface", INTERFACES)
def test_illegal_actions_raise_where_asked_and_change_nothing(interface: str) -> None:
    check_illegal_under_raise(interface)
    assert issubclass(IllegalActionError, ActionError)
    assert issubclass(ActionError, ValueError)


@pytest.mark.parametrize("interface", INTERFACES)
def test_integers_of_any_kind_are_actions(interface: str) -> None:
    check_well_formed(interface)
    player = INTERFACES[interface]("raise")
    before = player.frozen()
    player.act(1)
    assert player.frozen() != before  # what is compared above does change with an action


def test_misuse_of_the_parallel_interface() -> None:
    assert check_parallel_misuse() == 20


def test_misuse_of_the_aec_interface() -> None:
    assert check_aec_misuse() == 18


def test_misuse_of_the_batch_interface() -> None:
    assert check_batch_misuse() == 22


@pytest.mark.slow
def test_the_same_without_asserts() -> None:
    """``python -O`` removes every ``assert``; the checks of actions are none."""
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-O", __file__],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["optimised", "260"]  # PettingZoo prints a warning before


if __name__ == "__main__":
    mode = "plain" if __debug__ else "optimised"
    sys.stdout.write(f"{mode} {core_checks()}")
