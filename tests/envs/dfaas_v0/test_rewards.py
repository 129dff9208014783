"""Rewards of one's own in dfaas_v0: what they are given, and what is said of what is none."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import make
from corral.envs.batch import make_batch
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import UnknownNameError
from support.loads import small_trace
from support.messages import refused

SOURCE = """
import numpy as np

def fair(info, rules):
    worst = info["lost"].max(axis=1, keepdims=True) / rules.load_scale
    info["lost"][:] = -1  # its own copy
    return np.broadcast_to(-worst, info["lost"].shape).astype(np.float32)
"""


def fair(info: dict[str, Any], rules: DfaasRules) -> Any:
    worst = info["lost"].max(axis=1, keepdims=True) / rules.load_scale
    return np.broadcast_to(-worst, info["lost"].shape).astype(np.float32)


def test_a_function_pays_in_place_of_the_reward(tmp_path: Path) -> None:
    file = tmp_path / "rewards_of_a_test.py"
    file.write_text(SOURCE)
    kwargs: dict[str, Any] = {"trace": small_trace(), "max_cycles": 9, "queue": 3, "start": 4}
    for given in (fair, f"{file}:fair"):
        ours, own = (
            make_batch("dfaas_v0", num_envs=4, seed=0, **kwargs, reward_fn=reward_fn)
            for reward_fn in (None, given)
        )
        ours.reset(), own.reset()
        rng, lost = np.random.default_rng(0), 0
        for _ in range(12):
            actions = ours.sample_actions(rng)
            before, after = ours.step(actions), own.step(actions)
            for key, values in before.info.items():
                np.testing.assert_array_equal(after.info[key], values)
            worst = before.info["lost"].max(axis=1) / ours.rules.load_scale
            assert after.reward.dtype == np.float32
            np.testing.assert_array_equal(after.reward, -np.float32(worst)[:, None].repeat(3, 1))
            lost += int((before.info["lost"] > 0).sum())
        assert lost > 10
        copied = pickle.loads(pickle.dumps(own.rules))
        assert copied.identity == own.rules.identity != ours.rules.identity


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda info, rules: 0.0, ("reward_fn", "float32", "(1, 3)", "float")),
        (lambda info, rules: np.zeros((1, 3)), ("reward_fn", "float32", "float64")),
        (lambda info, rules: np.zeros(3, np.float32), ("reward_fn", "(1, 3)", "(3,)")),
        (
            lambda info, rules: np.array([[0, np.nan, 0]], np.float32),
            ("reward_fn", "nan", "node_1", "waited 0"),
        ),
    ],
)
def test_what_is_no_reward_is_told(function: Any, values: tuple[Any, ...]) -> None:
    env = make("dfaas_v0", trace=small_trace(), reward_fn=function)
    env.reset(seed=0)
    with refused(ValueError, *values):
        env.step(dict.fromkeys(env.agents, 0))


def test_what_is_no_function_is_refused() -> None:
    with refused(ValueError, "reward_fn=3", "'my_module:function'", "'my_file.py:function'"):
        DfaasRules(small_trace(), reward_fn=3)  # type: ignore[arg-type]
    with refused(UnknownNameError, "reward_fn 'fair'", "module:name", "file.py:name"):
        DfaasRules(small_trace(), reward_fn="fair")
    with refused(ValueError, "reward='team'", "reward_fn"):
        DfaasRules(small_trace(), reward_fn=fair, reward="team")
