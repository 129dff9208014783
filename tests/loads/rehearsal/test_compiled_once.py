"""Compiling takes seconds and memory: a second rehearsal of a balancer does not compile again."""

from __future__ import annotations

import pytest

from corral.data import make_trace
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.loads.rehearsal.balancers import BALANCERS
from corral.loads.rehearsal.engine import Engine
from corral.loads.rehearsal.setting import Setting


def test_a_second_engine_takes_the_compiled_function_of_the_first() -> None:
    pytest.importorskip("numba", reason="only compiled functions are kept")
    rules = DfaasRules(make_trace(days=1), arrivals="unknown")
    first, second = (Engine(rules, Setting(), compile_it=True) for _ in range(2))
    room, local = BALANCERS["room"].choose, BALANCERS["local"].choose
    assert second.player(room, strict=True) is first.player(room, strict=True)
    assert first.player(room, strict=False) is not first.player(room, strict=True)
    assert first.player(local, strict=True) is not first.player(room, strict=True)
