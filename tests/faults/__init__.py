"""A gallery of planted faults: mistakes as users make them, a few lines each.

Each is a function(folder) -> run, with ``@fault(causes)`` over it: see ``faults.fault``. Modules
named ``learning_...`` hold mistakes in losses, advantages, optimizers and ends; the others those in
environments, wrappers, masks, rollouts and networks. The doctor is asked for each in
tests/lab/doctor/test_gallery.py.
"""

from __future__ import annotations

import importlib
import pkgutil

from faults.fault import FAULTS, Fault, fault, trained

__all__ = ["FAULTS", "Fault", "fault", "trained"]

for module in sorted(each.name for each in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{module}")
