"""Load traces: the Trace itself, reading, writing, importing and making them."""

from corral.data.library import bundled, load_trace
from corral.data.reader import read_trace
from corral.data.trace import Trace

__all__ = ["Trace", "bundled", "load_trace", "read_trace"]
