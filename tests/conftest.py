"""What holds for all tests."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import math
import os
import pickle
import signal
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
import typer.main
import typer.testing

from corral import progress
from corral.envs import ENVIRONMENTS
from corral.trainers import kinds
from corral.trainers.runs import log
from support import messages

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: the
# tests that interrupt a process would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Slow machines draw examples slowly. Environments of frameworks have no hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")

# Nothing of what collecting makes is garbage, and there is much of it: to look through it again and
# again took four tenths of the time of collecting.
gc.disable()


def pytest_sessionfinish() -> None:
    messages.write_record()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """Wait for no disk: a process that is killed loses nothing that it wrote. What must be synced
    before what is in tests/trainers/runs/test_checkpoint_trust.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.delattr(os, "posix_fadvise", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_lines_of_slow_machines() -> Iterator[None]:
    """Log no progress every half minute: a slow machine prints what a fast one prints."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (progress, log):
            patch.setattr(module, "INTERVAL_S", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """Make the commands from their signatures once: it takes a tenth of a second and more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_look_at_a_game() -> Iterator[None]:
    """Play the random episodes that detect the kind of a registered game once for equal rules and
    seed: they are up to two thirds of a small training."""
    detect, seen = kinds.kind_of, dict[tuple[Any, ...], kinds.Kind]()

    def kind_of(rules: Any, seed: int) -> kinds.Kind:
        if rules.name not in ENVIRONMENTS or not type(rules).__module__.startswith("corral.envs."):
            return detect(rules, seed)
        try:
            key = type(rules), hashlib.sha256(pickle.dumps(rules)).digest(), seed
        except (AttributeError, TypeError, pickle.PicklingError):  # a function of the test
            return detect(rules, seed)
        if key not in seen:
            seen[key] = detect(rules, seed)
        return seen[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "kind_of", kind_of)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_look_at_versions() -> Iterator[None]:
    """Read the versions of installed packages once: each run records a dozen, which takes a tenth
    of a small training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "version", functools.cache(metadata.version))
        yield


@pytest.fixture(scope="session", autouse=True)
def _sb3_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stable-Baselines3's ``learn`` makes a folder a run, else in the system's temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        if "SB3_LOGDIR" not in os.environ:
            patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
