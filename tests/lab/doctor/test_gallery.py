"""Every planted fault is named as the first or second cause."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.lab.doctor.diagnose import diagnose
from faults import FAULTS

SECOND = 2
"""Among how many causes, the likeliest first, the planted one must be."""


QUICK = (
    *("advantages_shuffled_in_loss", "reward_scale_tiny", "mask_lost_after_reload"),
    *("dead_functional_relu", "observation_late_in_a_wrapper", "shared_without_identity"),
)
"""One of each kind; the others are tried by make test-slow."""


@pytest.mark.filterwarnings("ignore")  # mistakes warn
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FAULTS]
)
def test_a_planted_fault_is_named(name: str, tmp_path: Path) -> None:
    planted = FAULTS[name]
    run = planted.make(tmp_path / "run")
    diagnosis = diagnose(run, audited=False, cloned=False, checked=False)  # rules name them
    named = [finding.cause for finding in diagnosis.findings]
    assert set(planted.causes) & set(named[:SECOND]), (planted.mistake, named)
    assert diagnosis.faulty is planted.sure, named


def test_the_gallery_says_what_each_mistake_is() -> None:
    assert len(FAULTS) >= 20
    assert set(QUICK) < set(FAULTS)
    assert len({planted.mistake for planted in FAULTS.values()}) == len(FAULTS)
