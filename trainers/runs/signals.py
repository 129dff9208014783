"""Deferred handling of SIGINT and SIGTERM, until a run is saved."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stop", "stop_signals"]

GRACE_S = 2.0
"""Seconds for the current work to finish; then KeyboardInterrupt is raised in it."""


class Stop:
    """A stop request: the signal that was received, if any."""

    number: int | None = None

    def __init__(self) -> None:
        self._grace: threading.Timer | None = None

    def is_set(self) -> bool:
        return self.number is not None

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Record a signal; a second SIGINT raises KeyboardInterrupt."""
        if self.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.is_set():
            self._grace = threading.Timer(GRACE_S, _interrupt)
            self._grace.daemon = True
            self._grace.start()
        self.number = number

    def end_grace(self) -> None:
        """Cancel the grace period, so that saving and cleanup are not interrupted."""
        if self._grace is not None:
            self._grace.cancel()


def _interrupt() -> None:
    """Send SIGINT to the main thread; this also interrupts a blocking system call."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Yield a ``Stop`` that SIGINT and SIGTERM set.

    KeyboardInterrupt is raised immediately by a second SIGINT, and after ``GRACE_S`` seconds unless
    ``end_grace`` was called. Signals reach only the main thread; in other threads the handlers are
    not changed.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        stop.end_grace()
        for number, handler in before.items():
            signal.signal(number, handler)
