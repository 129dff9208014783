"""An untrained policy of residual actions is the rule: its greedy action is the first, always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs.batch import Batch
from corral.trainers.runs.run import load_run
from support.loads import small_trace

SMALL: dict[str, Any] = {"num_envs": 2, "n_steps": 8, "net_arch": (12,), "preset": "none"}
OFFSETS: dict[str, Any] = {"residual": "backlog=0.5/least", "offsets": 3, "queue": 4}


def trained(folder: Path, trainer: str, steps: int = 16, **given: Any) -> Any:
    kwargs = {"trace": small_trace(), "max_cycles": 10, **given.pop("env_kwargs", OFFSETS)}
    settings = {**SMALL, "validation": 0, "progress": False, **given}
    return corral.train(
        "dfaas_v0", trainer=trainer, steps=steps, out=folder, env_kwargs=kwargs, **settings
    )


@pytest.mark.parametrize(
    ("trainer", "given"),
    [
        ("ippo", {"activation": "relu", "policies": "separate"}),
        ("ippo", {"activation": "tanh", "memory": 6}),
        ("mappo", {"activation": "relu", "memory": 6, "policies": "separate"}),
        ("mappo", {"net_arch": ()}),
        ("mappo", {"env_kwargs": {**OFFSETS, "observation": "summary"}}),
        ("policy_iteration", {"n_steps": 10, "lookahead": 2}),
    ],
    ids=str,
)
def test_checkpoint_0_plays_the_rule_in_all_states(
    tmp_path: Path, trainer: str, given: dict[str, Any]
) -> None:
    run = load_run(f"{trained(tmp_path / 'run', trainer, **given).folder}@0")
    rules: Any = run.config.env_config.rules()
    batch, rng = Batch(rules, 16, seed=1), np.random.default_rng(0)
    seen = batch.reset()
    hidden = {agent: run.policies[agent].initial_state(16) for agent in rules.agents}
    several = 0
    for _ in range(8):
        for agent, policy in run.policies.items():
            odd = {**seen[agent], "observation": rng.random(seen[agent]["observation"].shape) * 9}
            for observation in (
                seen[agent],
                {**odd, "observation": np.float32(odd["observation"])},
            ):
                decision = policy.act(observation, hidden[agent], deterministic=True)
                assert not decision.action.any()
            several += int((seen[agent]["action_mask"].sum(axis=1) > 1).sum())
            hidden[agent] = policy.act(seen[agent], hidden[agent], deterministic=True).state
        seen = batch.step(batch.sample_actions(rng)).observations
    assert several > 100


def test_it_learns_from_there(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "mappo", steps=64)
    first = load_run(f"{run.folder}@0")
    batch = Batch(run.config.env_config.rules(), 64, seed=1)
    batch.reset()
    seen = batch.step(batch.sample_actions(np.random.default_rng(0))).observations["node_0"]
    preferred = [
        logits[:, 0] - logits[:, 1]
        for logits in (
            each.policies["node_0"].distribution(seen, None).logits.detach().numpy()
            for each in (first, run)
        )
    ]
    legal = seen["action_mask"][:, 1] != 0
    assert legal.sum() > 30
    np.testing.assert_allclose(preferred[0][legal], 1, atol=1e-6)
    assert preferred[1][legal].std() > 1e-4


def test_policies_of_other_actions_prefer_none(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "ippo", env_kwargs={"queue": 4})
    first = load_run(f"{run.folder}@0")
    rules: Any = first.config.env_config.rules()
    batch = Batch(rules, 64, seed=1)
    seen = batch.reset()
    actions = first.policies["node_0"].act(seen["node_0"], None, deterministic=True).action
    assert len(set(actions.tolist())) > 1
