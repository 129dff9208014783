"""Numbers for pairs of decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from corral.lab.listening.ear import Ear
from corral.lab.listening.rules_shapes import broadcast, misaligned


def heard_with(**data: Any) -> Any:
    ear = Ear()
    ear.batch(new_log_probs=torch.zeros(8), **data)
    return ear.policies["policy"]


@pytest.mark.parametrize(
    ("name", "cause"), [("advantages", "advantage-shuffled"), ("values", "targets-shuffled")]
)
def test_a_column_minus_a_row_is_named(name: str, cause: str) -> None:
    finding = broadcast(heard_with(**{name: torch.rand(8, 1) - torch.rand(8)}))
    assert finding is not None
    assert (finding.cause, finding.certainty) == (cause, 3)


def test_one_number_for_each_decision_is_right() -> None:
    assert broadcast(heard_with(advantages=torch.rand(8, 1), values=torch.rand(8))) is None


@pytest.mark.parametrize("order", ["same", "shuffled", "transposed"])
def test_numbers_of_other_decisions_are_named(order: str) -> None:
    draws = np.random.default_rng(0)
    T, B = 64, 4
    played = {
        "actions": draws.integers(3, size=(T, B)),
        "log_probs": draws.normal(size=(T, B)),
        "advantages": draws.normal(size=(T, B)),
    }
    ear = Ear()
    ear.rollout(**played)
    rows = draws.permutation(T * B)
    flat = {name: values.reshape(-1)[rows] for name, values in played.items()}
    if order == "shuffled":
        flat["advantages"] = draws.permutation(flat["advantages"])
    elif order == "transposed":
        flat["advantages"] = played["advantages"].T.reshape(-1)[rows]
    scaled = (flat["advantages"] - flat["advantages"].mean()) / flat["advantages"].std()
    ear.batch(**flat | {"advantages": scaled})
    finding = misaligned(ear.policies["policy"])
    if order == "same":
        assert finding is None
    else:
        assert finding is not None
        assert (finding.cause, finding.certainty) == ("advantage-shuffled", 3)
