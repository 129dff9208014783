"""Every planted fault is named as the first or second cause."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.trainers.doctor.diagnose import diagnose
from faults import FAULTS

SECOND = 2
"""Among how many causes, the likeliest first, the planted one must be."""


@pytest.mark.filterwarnings("ignore")  # mistakes warn
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str, tmp_path: Path) -> None:
    planted = FAULTS[name]
    run = planted.make(tmp_path / "run")
    diagnosis = diagnose(run, audited=False)  # rules name them; the truth takes longer
    named = [finding.cause for finding in diagnosis.findings]
    assert set(planted.causes) & set(named[:SECOND]), (planted.mistake, named)
    assert diagnosis.healthy is not planted.sure, named


def test_the_gallery_says_what_each_mistake_is() -> None:
    assert len(FAULTS) >= 20
    assert len({planted.mistake for planted in FAULTS.values()}) == len(FAULTS)
