"""SIGINT and SIGTERM, kept until a run is saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stop", "stop_signals"]


class Stop:
    """The signal that asked to stop, if one did."""

    number: int | None = None

    def is_set(self) -> bool:
        return self.number is not None


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Yield what SIGINT and SIGTERM set; a second SIGINT interrupts at once.

    Signals reach the main thread alone: elsewhere they are left as they are.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.number = number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
