"""Load traces: the Trace class, and functions that read, write, import and generate traces.

Each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.data.generator import TraceSpec, make_trace
    from corral.data.importers.access_log import import_access_log
    from corral.data.importers.azure import import_azure_functions
    from corral.data.importers.binning import Imported
    from corral.data.importers.layouts import import_trace
    from corral.data.importers.prometheus import import_prometheus
    from corral.data.importers.requests import import_requests
    from corral.data.importers.series import import_series
    from corral.data.importers.tables.table import import_table
    from corral.data.read import bundled, load_trace, read_trace
    from corral.data.request_log import RequestLog, read_request_log, write_request_log
    from corral.data.trace import Trace
    from corral.data.write import write_trace

__all__ = [
    "Imported",
    "RequestLog",
    "Trace",
    "TraceSpec",
    "bundled",
    "import_access_log",
    "import_azure_functions",
    "import_prometheus",
    "import_requests",
    "import_series",
    "import_table",
    "import_trace",
    "load_trace",
    "make_trace",
    "read_request_log",
    "read_trace",
    "write_request_log",
    "write_trace",
]

_NAMES = {
    "generator": ("TraceSpec", "make_trace"),
    "importers.access_log": ("import_access_log",),
    "importers.azure": ("import_azure_functions",),
    "importers.binning": ("Imported",),
    "importers.layouts": ("import_trace",),
    "importers.prometheus": ("import_prometheus",),
    "importers.requests": ("import_requests",),
    "importers.series": ("import_series",),
    "importers.tables.table": ("import_table",),
    "read": ("bundled", "load_trace", "read_trace"),
    "request_log": ("RequestLog", "read_request_log", "write_request_log"),
    "trace": ("Trace",),
    "write": ("write_trace",),
}
"""Module -> the names that it provides here."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
