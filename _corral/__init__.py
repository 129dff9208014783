"""corral: PettingZoo environments with action masks, and trainers for them.

``corral.make(name, **kwargs)`` creates an environment. ``corral.train(name, ...)`` trains a team in
it. ``corral.evaluate(run)`` compares the team with other policies. ``corral.diagnose(run)`` finds
out why a run does not learn. Importing corral registers its environments with Gymnasium and
PettingZoo: ``pettingzoo.make("parallel", "corral/dfaas-v0")``.

``corral.data`` reads load traces. ``corral.envs`` holds the environments. ``corral.adapters`` steps
thousands of environment copies. ``corral.trainers`` trains and evaluates.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from corral.extensions import register_extensions
from corral.registration import EXTENSIONS, PUBLIC

if TYPE_CHECKING:
    from corral import algorithms
    from corral.envs.conformance import check_env
    from corral.envs.registry import make
    from corral.lab.bisect.driver import bisect
    from corral.lab.comparing.comparison import Comparison
    from corral.lab.comparing.driver import compare
    from corral.lab.doctor.choices import learnable
    from corral.lab.doctor.diagnose import diagnose
    from corral.lab.duels.driver import Duels, duel
    from corral.lab.exploit.driver import exploit
    from corral.lab.listening.driver import listen
    from corral.lab.tuning.driver import tune
    from corral.loads.advise.driver import advise
    from corral.loads.from_rule.driver import from_rule, resume_from_rule
    from corral.loads.recheck.driver import recheck
    from corral.loads.rehearsal.driver import rehearse
    from corral.trainers.callbacks.protocol import Callback
    from corral.trainers.cloning.driver import clone, record
    from corral.trainers.config_files.read import read_config
    from corral.trainers.driver import resume, resume_session, session, train
    from corral.trainers.evaluation.judge import evaluate
    from corral.trainers.evaluation.watch import watch
    from corral.trainers.pool import Pool
    from corral.trainers.runs.run import load_run

    __version__: str

__all__ = [
    "Callback",
    "Comparison",
    "Duels",
    "Pool",
    "__version__",
    "advise",
    "algorithms",
    "bisect",
    "check_env",
    "clone",
    "compare",
    "diagnose",
    "duel",
    "evaluate",
    "exploit",
    "from_rule",
    "learnable",
    "listen",
    "load_run",
    "make",
    "read_config",
    "recheck",
    "record",
    "rehearse",
    "resume",
    "resume_from_rule",
    "resume_session",
    "session",
    "train",
    "tune",
    "watch",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that ``import corral`` is fast and has no circular imports.
    if name == "__version__":
        from importlib import metadata  # slow to import

        return metadata.version("corral")
    if name in PUBLIC:
        return getattr(importlib.import_module(PUBLIC[name]), name)
    if name == "algorithms":
        import corral.algorithms as algorithms

        return algorithms
    raise AttributeError(f"module 'corral' has no attribute {name!r}{_instead(name)}")


def _instead(name: str) -> str:
    """Return the end of the error for an unknown name: what to use instead, if that is known."""
    # The import system looks up submodules here before it imports them.
    if name.startswith("_") or importlib.util.find_spec(f"corral.{name}") is not None:
        return ""
    for part in ("corral.adapters", "corral.envs", "corral.trainers", "corral.data"):
        module = importlib.import_module(part)
        if name in module.__all__ or name in getattr(module, "ENVIRONMENTS", ()):
            return f"; use: from {part} import {name}"
    from corral.hints import hint  # late: only for errors

    return hint(name, __all__).rstrip(".")


def __dir__() -> list[str]:
    return __all__


register_extensions(EXTENSIONS)
if "corral_command" not in sys.modules:
    import corral.envs.registry  # noqa: F401 - registers the environments
