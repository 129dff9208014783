"""TorchRL's IPPO comes out at the answers of probes, and refuses what BatchEnv does not play."""

from __future__ import annotations

import pytest

pytest.importorskip("torchrl", reason="needs the extra torchrl")

from corral.trainers.doctor.examination import examination
from support.frameworks import EXAMPLES

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.timeout(600)
def test_its_learner_comes_out_at_the_answers_of_probes() -> None:
    found = examination(f"{EXAMPLES}/torchrl_learner.py:learn", ["P5", "P6", "P12"])
    assert [result.passed for result in found.results] == [True, True, None]
    assert found.results[-1].refused
