"""Observers see an update in its order and change nothing; the record that is given trains."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.algorithms import ippo, mappo
from corral.trainers.observers import Observer
from support.mappo_teams import make
from support.runs import weights
from support.turn_rules import PileRules


class Noting(Observer):
    """Notes what is called, and which fields the loss read."""

    def __init__(self, tracks_reads: bool = False) -> None:
        self.tracks_reads = tracks_reads
        self.calls: list[str] = []
        self.read: set[str] = set()

    def on_rollout(self, rollout: Any) -> None:
        self.calls.append("rollout")

    def on_advantages(self, learner: Any, trajectories: Any, advantages: Any) -> None:
        self.calls.append("advantages")
        assert advantages.advantage.shape == trajectories.reward.shape

    def on_minibatch(self, learner: Any, minibatch: Any, outputs: Any, losses: Any) -> None:
        self.calls.append("minibatch")
        if self.tracks_reads:
            self.read |= minibatch.read

    def on_gradients(self, learner: Any, *, clipped: bool) -> None:
        self.calls.append("clipped" if clipped else "gradients")

    def on_step(self, learner: Any, minibatch: Any, outputs: Any, numbers: Any) -> None:
        self.calls.append("step")
        assert "policy_loss" in numbers

    def on_update(self, metrics: Any) -> None:
        self.calls.append("update")
        assert any(name.endswith("policy_loss") for name in metrics)


STEP = ["minibatch", "gradients", "clipped", "step"]


def test_an_update_is_seen_in_its_order_until_it_is_enough() -> None:
    learner = make(PileRules(illegal="raise"), updates=2, n_epochs=1, n_minibatches=2)
    noting = Noting()
    end = learner.observe(noting)
    updates = learner.learn()
    next(updates)
    assert noting.calls == ["rollout", "advantages", *STEP, *STEP, "update"]
    end()
    next(updates)
    assert len(noting.calls) == 11


def test_what_a_loss_reads_is_known() -> None:
    learner = make(PileRules(illegal="raise"), n_epochs=1, n_minibatches=1)
    noting = Noting(tracks_reads=True)
    learner.observe(noting)
    list(learner.learn())
    assert {"advantage", "log_prob", "value_target"} <= noting.read
    assert "mask" not in noting.read  # the distribution has it


SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "net_arch": (16,)}


def test_observers_change_no_number(tmp_path: Path) -> None:
    found = []
    for name, observers in (("alone", []), ("seen", [Noting(), Noting(tracks_reads=True)])):
        out = tmp_path / name
        with corral.session("arena_v0", steps=192, out=out, progress=False, **SMALL) as session:
            for observer in observers:
                session.learner.observe(observer)
            found.append(weights(session.finish()))
    assert found[0] == found[1]


def test_the_record_that_is_given_is_the_one_that_trains(tmp_path: Path) -> None:
    stacks: list[list[str]] = []

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        stacks.append([frame.filename for frame in traceback.extract_stack()])
        return mappo.loss(minibatch, outputs, settings)

    mine = ippo.but(name="mine", loss=loss)
    out = tmp_path / "run"
    with corral.session(
        "arena_v0", trainer=mine, steps=64, out=out, progress=False, **SMALL
    ) as session:
        assert session.learner.algorithm is mine
        for _ in session:
            assert session.learner.algorithm is mine
    assert stacks
    assert not [name for stack in stacks for name in stack if "/lab/" in name]
