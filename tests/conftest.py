"""What holds for all tests."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator

import pytest
import typer.main
import typer.testing

from support import messages

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: the
# tests that interrupt a process would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
def _one_command_line() -> Iterator[None]:
    """Make the commands from their signatures once: it takes a tenth of a second and more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _sb3_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stable-Baselines3's ``learn`` makes a folder a run, else in the system's temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        if "SB3_LOGDIR" not in os.environ:
            patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
