"""A hooked stretch of Stable-Baselines3's trainers: sound ones have nothing, faults are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import torch
from stable_baselines3.common.buffers import DictRolloutBuffer

import corral
from corral.lab.doctor.watching.columns import column_findings, gather_columns, has_columns
from support.late_pole import LatePole, Pole

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 2, "net_arch": (16,)},
    **{"preset": "none", "progress": False, "dry_run": True, "steps": 640},
}


@contextmanager
def made(env: Any = "tictactoe_v0", trainer: str = "sb3_ppo", **given: Any) -> Iterator[Any]:
    settings = {**SMALL, **given}
    if trainer == "sb3_a2c":  # it learns from a rollout once, as a whole
        settings = {k: v for k, v in settings.items() if k not in ("batch_size", "n_epochs")}
    learner = corral.train(env, trainer=trainer, **settings).config.make_trainer()
    try:
        yield learner
    finally:
        learner.close()


def causes(learner: Any) -> dict[str, int]:
    return {one.cause: one.certainty for one in column_findings(gather_columns(learner))}


@pytest.mark.parametrize("trainer", ["sb3_ppo", "sb3_maskable_ppo", "sb3_a2c"])
@pytest.mark.parametrize("env", ["arena_v0", "rps_v0", "probe_p04_v0", "two_step_v0"])
def test_sound_trainers_have_nothing(env: str, trainer: str) -> None:
    with made(env, trainer, policies="separate") as learner:
        assert has_columns(learner)
        assert causes(learner) == {}


def test_what_it_reads_is_there() -> None:
    with made("arena_v0") as learner:
        (found,) = gather_columns(learner, updates=2).policies.values()
        assert len(found.advantages) == len(found.log_ratio) == 2
        assert found.masks[0][0].shape == (16, 8, 4)
        assert len(found.gradients) == len(found.moved) > 4
        assert min(found.moved.values()) > 0


def test_it_is_for_stable_baselines3_alone() -> None:
    config = corral.train("rps_v0", steps=64, dry_run=True, progress=False).config
    assert not has_columns(config.make_trainer())


@pytest.mark.parametrize(("env", "found"), [(LatePole, {"actions-late": 1}), (Pole, {})])
def test_actions_that_are_played_one_step_late(env: Any, found: dict[str, int]) -> None:
    with made(env) as learner:
        evidence = gather_columns(learner, twins=True)
        assert {one.cause: one.certainty for one in column_findings(evidence)} == found


def test_zero_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DictRolloutBuffer.compute_returns_and_advantage

    def cut(self: Any, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **kwargs)
        self.advantages[...] = 0

    monkeypatch.setattr(DictRolloutBuffer, "compute_returns_and_advantage", cut)
    with made("arena_v0") as learner:
        assert causes(learner)["zero-advantages"] == 3


def test_a_ratio_that_does_not_begin_at_1(monkeypatch: pytest.MonkeyPatch) -> None:
    with made("arena_v0") as learner:
        policy = type(next(iter(learner._learners.values())).model.policy)
        whole = policy.evaluate_actions

        def other(self: Any, *args: Any, **kwargs: Any) -> Any:
            values, log_prob, entropy = whole(self, *args, **kwargs)
            return values, log_prob - 0.2, entropy

        monkeypatch.setattr(policy, "evaluate_actions", other)
        assert causes(learner)["ratio-not-one"] == 3


def test_actions_that_their_mask_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    with made("arena_v0") as learner:
        whole = type(learner)._collect

        def later(self: Any, obs: Any) -> Any:
            found = whole(self, obs)
            for each in self._learners.values():
                masks = each.model.rollout_buffer.observations["action_mask"]
                masks[...] = 0
                masks[..., 0] = 1
            return found

        monkeypatch.setattr(type(learner), "_collect", later)
        assert causes(learner)["mask-ignored-in-play"] == 3


def test_parts_that_get_no_gradient() -> None:
    with made("arena_v0") as learner:
        policy = next(iter(learner._learners.values())).model.policy
        detached = policy.mlp_extractor.policy_net[0]
        detached.register_forward_hook(lambda module, given, found: found.detach())
        assert causes(learner)["no-gradient"] == 3


def test_weights_that_do_not_move() -> None:
    with made("arena_v0") as learner:
        policy = next(iter(learner._learners.values())).model.policy
        policy.optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
        assert causes(learner)["weights-fixed"] == 3
