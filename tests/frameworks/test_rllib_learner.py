"""The trap of RLlib's modules: one that is no ValueFunctionAPI is given no advantages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("ray.rllib", reason="needs the extra rllib")

import ray

from corral.lab.doctor.examination import examination, suspects
from support.frameworks import EXAMPLES

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    """The learner starts Ray in this process: other modules of tests start one of their own."""
    yield
    ray.shutdown()


@pytest.mark.timeout(900)
def test_what_is_no_value_function_api_learns_no_action_and_the_doctor_says_why() -> None:
    program = f"{EXAMPLES}/rllib_learner.py"
    assert examination(f"{program}:learn", ["P7"]).passed
    found = examination(f"{program}:learn_without_value_function_api", ["P5", "P7"])
    assert {"P5 actions", "P7 actions"} <= found.failed
    assert {"zeroed advantages"} <= set(suspects(found)[0].bugs)
