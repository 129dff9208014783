"""How far a reader has to go: circles of modules, imports by text, what a training loads.

``python benchmarks/journeys.py`` prints all of it, with the aims.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.journeys import TABLES, Sources, circles, sentence_tests

ROOT = Path(__file__).parents[2]
CIRCLES = 0
"""In the core; imports for types count."""
LOADED = 115
"""Modules of corral that ``corral.train("arena_v0")`` loads; may only fall. The aim is 100."""

SENTENCES = 10
"""Tests that assert sentences; see tests/support/messages.py for what to assert instead."""
UNDECLARED = 15
"""Calls of getattr and hasattr for members that no protocol declares; may only fall."""

SPLATS = 20
"""Arguments packed into a local tuple or dict to be splatted; may only fall. Most of those that are
left are shapes of arrays."""

SET_FROM_OUTSIDE = 3
"""Assignments to members of a trainer or a learner by somebody else; may only fall."""

SOURCES = Sources(ROOT)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": set()}
    assert circles(graph) == [["a", "b", "c"]]


def test_circles_of_modules() -> None:
    found = SOURCES.circles_of_core()
    assert len(found) <= CIRCLES, found


def test_modules_are_named_in_tables_alone() -> None:
    """A text that is imported is seen by no tool, and by no reader."""
    named = {name for name in SOURCES.modules if SOURCES.texts_imported(name)}
    assert named - TABLES == set(), named - TABLES
    assert len(SOURCES.texts_imported("corral.registration")) > 20


def test_sentences_are_not_asserted() -> None:
    found = sentence_tests(ROOT)
    assert len(found) <= SENTENCES, found


def test_members_are_declared() -> None:
    assert len(SOURCES.asked_members()) > 100
    found = SOURCES.undeclared_members()
    assert len(found) <= UNDECLARED, found


def test_members_are_not_set_from_outside() -> None:
    found = SOURCES.set_from_outside()
    assert len(found) <= SET_FROM_OUTSIDE, found


def test_arguments_are_not_packed() -> None:
    found = SOURCES.splats()
    assert len(found) <= SPLATS, found


def test_modules_that_a_training_loads() -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    code = (
        "import json, sys, tempfile, corral\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    corral.train('arena_v0', steps=64, num_envs=4, n_steps=16, progress=False,\n"
        "                 out=folder + '/run')\n"
        "print(json.dumps([*sys.modules]))\n"
        "from corral.trainers.runs.env_config import EnvConfig\n"
        "assert EnvConfig.of(corral.make('arena_v0')).env == 'arena_v0'\n"
        "bridges = [name for name in sys.modules if name.startswith('corral.adapters.zoo')]\n"
        "assert not bridges, bridges\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    every = json.loads(done.stdout.splitlines()[-1])
    assert {"stable_baselines3", "sb3_contrib", "supersuit"}.isdisjoint(every)
    loaded = [name for name in every if name.split(".")[0] == "corral"]
    assert "corral.trainers.on_policy.trainer" in loaded
    assert len(loaded) <= LOADED, sorted(loaded)
    assert not [name for name in loaded if name.startswith("corral.loads")]
