"""PettingZoo environments whose observations carry action masks.

    from corral.envs import dfaas_v0
    env = dfaas_v0.parallel_env(trace="edge3")

Every environment is a module ``corral.envs.<name>`` with ``parallel_env`` (where all agents act at
once), ``env`` and ``raw_env``; its docstring is its manual. ``make`` builds one by name.
"""

from corral.envs.conformance import check_env
from corral.envs.registry import (
    ENVIRONMENTS,
    PROBES,
    EnvSpec,
    make,
    make_rules,
    register_with_pettingzoo,
)

__all__ = ["ENVIRONMENTS", "PROBES", "EnvSpec", "check_env", "make", "make_rules"]

register_with_pettingzoo()
