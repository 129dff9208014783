"""The interfaces through which a game of dfaas_v0 can be played, each played alike."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs import dfaas_v0
from corral.envs.batch import Batch
from corral.envs.shells import ParallelShell
from support.loads import small_trace

CONFIGURATION = {"trace": small_trace(), "max_cycles": 5, "queue": 2, "start": 6}
"""node_1 sees 6, 4, 3, 6 and 7 requests, of at most 12: some actions are always illegal."""

make_rules = functools.partial(dfaas_v0.DfaasRules, **CONFIGURATION)
ACTIONS = make_rules().levels  # 0 .. ACTIONS - 1
AGENTS = make_rules().agents


class Parallel:
    """Every interface is played alike: ``act`` plays one value for an agent, 0 for the others."""

    def __init__(self, illegal: str) -> None:
        self.env: Any = ParallelShell(make_rules(illegal=illegal))
        self.env.reset(seed=0)

    def act(self, value: Any) -> None:
        self.env.step({agent: value if agent == AGENTS[1] else 0 for agent in AGENTS})

    def masks(self) -> Any:
        return self.env._observations

    def frozen(self) -> bytes:
        return pickle.dumps(self.env)


class Aec(Parallel):
    def __init__(self, illegal: str) -> None:
        self.env = dfaas_v0.raw_env(**CONFIGURATION, illegal=illegal)
        self.env.reset(seed=0)
        self.env.step(0)  # one action is pending already

    def act(self, value: Any) -> None:
        self.env.step(value)

    def masks(self) -> Any:
        return {AGENTS[1]: self.env.observe(AGENTS[1])}


class WrappedAec(Aec):
    """With PettingZoo's wrapper that enforces the order of calls."""

    def __init__(self, illegal: str) -> None:
        self.env = dfaas_v0.env(**CONFIGURATION, illegal=illegal)
        self.env.reset(seed=0)
        self.env.step(0)


class Batched(Parallel):
    def __init__(self, illegal: str) -> None:
        self.env = Batch(make_rules(illegal=illegal), 2, 0)
        self.env.reset()

    def act(self, value: Any) -> None:
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            dtype = getattr(value, "dtype", None)
            self.env.step(np.array([[0, 0, 0], [0, value, 0]], dtype=dtype))
        else:  # a single odd value among integers may be cast to one: give that value everywhere
            self.env.step([[value] * 3] * 2)

    def masks(self) -> Any:
        return {AGENTS[1]: {"action_mask": self.env._observations[AGENTS[1]]["action_mask"][1]}}


INTERFACES: dict[str, Callable[[str], Parallel]] = {
    "parallel": Parallel,
    "aec": Aec,
    "wrapped aec": WrappedAec,
    "batch": Batched,
}
