"""An ear in a loop of one's own: what it records, counts, says, and leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import corral
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.ear import BATCHES, CLOSE, COLUMNS, LAST, Ear
from support.messages import refused, shown

T, B, A = 32, 4, 3


def rollout(seed: int = 0, **changes: Any) -> dict[str, Any]:
    draws = np.random.default_rng(seed)
    ends = np.zeros((T, B), dtype=bool)
    ends[7::8] = True
    return {
        "obs": draws.normal(size=(T, B, 5)),
        "actions": draws.integers(A, size=(T, B)),
        "rewards": np.ones((T, B)),
        "terminated": ends,
        "values": draws.normal(size=(T, B)),
        **changes,
    }


def test_episodes_are_counted_over_rollouts() -> None:
    ear = Ear()
    late = np.zeros((T, B), dtype=bool)
    late[3, 0] = True
    ear.rollout(**rollout())
    ear.rollout(**rollout(terminated=late))
    heard = ear.policies["policy"]
    assert heard.returns == [8.0] * 16 + [4.0]
    assert heard.lengths == [8] * 16 + [4]
    assert heard.updates == 2


def test_dones_end_episodes() -> None:
    ear = Ear()
    data = rollout()
    ear.rollout(dones=data.pop("terminated"), **data)
    assert len(ear.policies["policy"].returns) == 16


def test_first_updates_and_powers_of_two_are_recorded() -> None:
    ear = Ear()
    for _ in range(40):
        ear.rollout(**rollout())
    heard = ear.policies["policy"]
    assert heard.updates == 40
    assert len(heard.returns) == 40 * 16
    assert len(heard.rollouts) == CLOSE + 3  # 8, 16 and 32
    heard.updates = 2 * LAST
    assert not ear.attends()


def test_large_rollouts_are_cropped_and_minibatches_limited() -> None:
    ear = Ear()
    wide = rollout(**{"obs": np.zeros((T, 100, 5))} | {
        name: np.zeros((T, 100)) for name in ("actions", "rewards", "terminated", "values")
    })  # fmt: skip
    ear.rollout(**wide)
    for number in range(1, 40):
        ear.batch(advantages=np.arange(8.0), loss=number)
    heard = ear.policies["policy"]
    assert heard.rollouts[0].obs.shape == (T, COLUMNS, 5)
    assert heard.rollouts[0].rewards.shape == (T, COLUMNS)
    assert [batch.losses["loss"] for batch in heard.minibatches] == [1, 2, 3, 4, 8, 16, 32]
    assert [batch.first for batch in heard.minibatches] == [True] + [False] * 6


def test_one_environment_may_leave_out_its_axis() -> None:
    ear = Ear()
    ear.rollout(
        obs=np.zeros((T, 5)), rewards=np.ones(T), terminated=np.arange(T) % 4 == 3, last_values=0.5
    )
    recorded = ear.policies["policy"].rollouts[0]
    assert recorded.rewards.shape == (T, 1)
    assert recorded.obs.shape == (T, 1, 5)
    assert recorded.last_values.shape == (1,)


def test_records_are_copies() -> None:
    ear, data = Ear(), rollout()
    ear.rollout(**data)
    data["rewards"][...] = np.nan
    data["obs"][...] = np.nan
    recorded = ear.policies["policy"].rollouts[0]
    assert np.isfinite(recorded.rewards).all()
    assert np.isfinite(recorded.obs).all()


def test_what_was_never_given_is_named() -> None:
    ear = Ear()
    ear.rollout(**rollout())
    missing = ear.report().missing["policy"]
    assert {"mask", "advantages", "log_probs", "new_log_probs"} <= set(missing)
    assert not {"rewards", "values", "obs", "actions"} & set(missing)


def test_unknown_names_and_lengths_that_differ_are_refused() -> None:
    ear = Ear()
    with refused(ValueError, "reward", "rewards"):
        ear.rollout(reward=np.zeros((T, B)))
    with refused(ValueError, T, T - 1):
        ear.rollout(rewards=np.zeros((T, B)), values=np.zeros((T - 1, B)))
    with refused(TypeError, "dict", "policy=net"):
        corral.listen({})


def test_a_finished_run_is_refused_with_the_function_that_examines_it() -> None:
    run = corral.train("two_step_v0", steps=64, dry_run=True)
    with refused(TypeError, "corral.diagnose(run)", "corral.listen(session)"):
        corral.listen(run)


def test_parameters_outside_the_optimizer_are_heard_at_once() -> None:
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)])
    ear = corral.listen(policy=net, optimizer=torch.optim.Adam(net[0].parameters()))
    assert ear.policies["policy"].outside == ["1.weight", "1.bias"]
    ear.stop()


def test_the_place_of_the_call_is_known() -> None:
    ear = Ear()
    ear.rollout(**rollout())
    place = ear.policies["policy"].places["rollout"]
    assert (place.name, Path(place.file).name) == (
        "test_the_place_of_the_call_is_known",
        "test_ear.py",
    )


def test_a_failing_listener_ends_the_listening_alone() -> None:
    class Loop:
        def step(self) -> int:
            return 1

    def heard(*call: Any) -> None:
        raise KeyError("advantages")

    loop, ear = Loop(), Ear()
    ear.on_call(loop, "step", heard)
    assert loop.step() == loop.step() == 1
    assert not ear.listening
    assert ear.error == "KeyError: 'advantages'"
    assert len(ear.report().errors) == 1
    assert Loop.step.__qualname__.endswith("Loop.step")
    assert "step" in vars(Loop)


def test_certain_findings_are_said_once_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    certain = Finding("zero-advantages", "All equal.", "0", "more", "look", 3, "policy")
    likely = Finding("reward-tiny", "Tiny.", "0", "more", "scale", 2, "policy")
    monkeypatch.setattr("corral.lab.listening.ear.findings_of", lambda heard: (certain, likely))
    monkeypatch.setattr("corral.lab.listening.ear.SHARE", 1.0)
    ear = Ear(say=said.append)
    for _ in range(4):
        ear.rollout(**rollout())
    assert len(said) == 1
    shown(said[0], certain.title, certain.todo)


def test_the_report_is_written(tmp_path: Path) -> None:
    ear = Ear(out=tmp_path / "ear")
    ear.rollout(**rollout())
    report = ear.report()
    values = json.loads((tmp_path / "ear" / "listen.json").read_text())
    assert values["verdict"] == report.verdict == "too early"
    assert values["episodes"] == {"policy": 16}
    assert (tmp_path / "ear" / "listen.txt").read_text() == f"{report}\n"


@pytest.mark.parametrize(("slope", "verdict"), [(1.0, "learns"), (0.0, "no fault")])
def test_the_verdict_follows_the_returns(slope: float, verdict: str) -> None:
    ear = Ear()
    draws = np.random.default_rng(0)
    for update in range(40):
        ear.begin_update() if ear.policies else ear.policy()
        for _ in range(5):
            ear.episode(slope * update + draws.normal(), 10)
    report = ear.report()
    assert report.verdict == verdict
    assert report.learns == (slope > 0)


def test_minibatches_without_rollouts_make_updates() -> None:
    ear = Ear()
    for _ in range(3 * BATCHES):
        ear.batch(rewards=np.ones(8), terminated=np.zeros(8), values=np.arange(8.0))
    heard = ear.policies["policy"]
    assert heard.updates == 3
    assert [batch.first for batch in heard.minibatches] == [True] + [False] * (3 * 7 - 1)


@pytest.mark.parametrize(("slope", "verdict"), [(0.01, "learns"), (0.0, "no fault")])
def test_without_rollouts_the_verdict_follows_rewards(slope: float, verdict: str) -> None:
    ear, draws = Ear(), np.random.default_rng(0)
    for step in range(20 * BATCHES):
        ear.batch(rewards=slope * step + draws.normal(size=8), terminated=np.zeros(8))
    assert ear.report().verdict == verdict
