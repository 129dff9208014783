"""Numbers for pairs of decisions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from corral.lab.listening.ear import Ear
from corral.lab.listening.rules_shapes import broadcast


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
