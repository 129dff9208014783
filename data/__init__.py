"""Load traces: the Trace itself, reading, writing, importing and making them.

Importers are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.data.generator import TraceSpec, make_trace
from corral.data.read import bundled, load_trace, read_trace
from corral.data.trace import Trace
from corral.data.write import write_trace

if TYPE_CHECKING:
    from corral.data.importers.access_log import import_access_log
    from corral.data.importers.azure import import_azure_functions
    from corral.data.importers.binning import Imported
    from corral.data.importers.layouts import import_trace
    from corral.data.importers.prometheus import import_prometheus
    from corral.data.importers.requests import import_requests
    from corral.data.importers.series import import_series
    from corral.data.importers.tables.table import import_table

__all__ = [
    "Imported",
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
    "read_trace",
    "write_trace",
]

_NAMES = {
    "access_log": "import_access_log",
    "azure": "import_azure_functions",
    "binning": "Imported",
    "layouts": "import_trace",
    "prometheus": "import_prometheus",
    "requests": "import_requests",
    "series": "import_series",
    "tables.table": "import_table",
}
"""Module of the importers -> its name here."""


def __getattr__(name: str) -> Any:
    for module, own in _NAMES.items():
        if name == own:
            return getattr(importlib.import_module(f".importers.{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
