"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: the
# tests that interrupt a process would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _sb3_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stable-Baselines3's ``learn`` makes a folder a run, else in the system's temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        if "SB3_LOGDIR" not in os.environ:
            patch.setenv("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))
        yield
