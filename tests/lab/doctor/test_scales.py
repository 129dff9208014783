"""The remedy for large observations is true: corral scales a Box of uint8, and no other Box."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters.spaces import ObservationCodec
from corral.lab.doctor.findings.scales import unscaled_obs
from support.messages import shown


def largest_input(dtype: Any) -> float:
    """The largest column that a network gets for an observation at the upper bound, 200."""
    codec = ObservationCodec.of("agent", spaces.Box(0, 200, (3,), dtype))
    vector = np.zeros((1, codec.width), np.float32)
    codec.write(np.full((1, 3), 200, dtype), vector, ())
    return float(vector.max())


def test_large_observations_are_scaled_by_the_environment() -> None:
    assert largest_input(np.float32) == 200
    assert largest_input(np.uint8) == 1
    large = np.full((4, 1, 2), 500.0)
    record: Any = SimpleNamespace(obs=[(large, large)], policy="shared")
    evidence: Any = None
    finding = unscaled_obs(record, evidence)
    assert finding is not None
    assert (finding.cause, finding.policy) == ("observation-unscaled", "shared")
    shown(finding.todo, "environment", "uint8")
    assert "bounds" not in finding.todo
