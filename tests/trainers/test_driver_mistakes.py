"""What is refused before or in training, by name; trainers that other packages bring."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra sb3")

import torch

import corral
from corral.adapters import make_vec_env
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.policy import RandomPolicy
from corral.errors import (
    CorralError,
    NonFiniteError,
    RunError,
    UnknownNameError,
    UnsupportedSpaceError,
    show_tracebacks,
)
from corral.trainers import base as registry
from corral.trainers.base import Episode, Trainer, Update
from corral.trainers.driver import resume, train
from corral.trainers.runs.checkpoint import Content
from corral.trainers.runs.run import load_run
from corral.trainers.sb3.trainer import SB3PPO
from support.loads import small_trace
from support.runs import (
    ROLLOUT,
    SMALL,
    FaultyRules,
    PaidRules,
    kept,
    rows,
    small_run,
    weights,
)
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules

TRAINERS = ("sb3_ppo", "sb3_maskable_ppo")


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.name.split("_")[1]) for path in (folder / "checkpoints").glob("step_*"))


# --- Mistakes ------------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], type[Exception], tuple[object, ...]]] = [
    ({"env": "dfaas_v1"}, UnknownNameError, ("'dfaas_v1'", "'dfaas_v0'")),
    ({"trainer": "sb3_po"}, UnknownNameError, ("'sb3_po'", "'sb3_ppo'")),
    ({"steps": 0}, ValueError, ("steps=0", 1)),
    ({"steps": 1.5}, ValueError, ("steps=1.5", 1)),
    ({"seed": None}, ValueError, ("seed=None", 0)),
    ({"opponents": "random"}, ValueError, ("opponents='random'", "{'node_2': 'random'}")),
    ({"opponents": {"node_1": len}}, ValueError, ("<built-in function len>", "RUN@best")),
    ({"env": make_vec_env("arena_v0", 2)}, TypeError, ("BatchVecEnv", "num_envs=")),
    ({"seed": -1}, ValueError, ("seed=-1", 0)),
    ({"keep": 0}, ValueError, ("keep=0", 1)),
    ({"checkpoint_every": 0}, ValueError, ("checkpoint_every=0", 1)),
    ({"checkpoint_every": -64}, ValueError, ("checkpoint_every=-64", 1)),
    ({"policies": "both"}, ValueError, ("policies='both'", "'shared'", "'separate'")),
    ({"policies": {"node_0": "a"}}, ValueError, ("['node_0']", "['node_0', 'node_1', 'node_2']")),
    ({"policies": dict.fromkeys(["node_0", "node_1", "node_2"], "A")}, ValueError, ("'A'", 80)),
    ({"policies": dict.fromkeys(["node_0", "node_1", "node_2"], "é")}, ValueError, ("'é'", 80)),
    (
        {"policies": dict.fromkeys(["node_0", "node_1", "node_2"], 90 * "a")},
        ValueError,
        (90 * "a", 80),
    ),
    ({"policies": dict.fromkeys(["node_0", "node_1", "node_2"], 1)}, ValueError, ("name 1", 80)),
    ({"policies_to_train": ["node_0"]}, ValueError, ("policies_to_train=['node_0']", "['shared']")),
    ({"policies_to_train": []}, ValueError, ("policies_to_train=[]", "['shared']")),
    ({"policies_to_train": "shared"}, ValueError, ("policies_to_train='shared'", "['shared']")),
    ({"gama": 0.5}, TypeError, ("'gama'", "'gamma'")),
    ({"gamma": 1.5}, ValueError, ("gamma=1.5", 0, 1)),
    ({"num_envs": 0}, ValueError, ("num_envs=0", 1)),
    ({"batch_size": 1}, ValueError, ("batch_size=1", 2)),
    ({"net_arch": (16, 0)}, ValueError, ("net_arch=0", 1)),
    ({"net_arch": 16}, ValueError, ("net_arch=16",)),
    ({"vec_env": "supersuite"}, ValueError, ("vec_env='supersuite'", "'supersuit'")),
    ({"anneal": "no"}, ValueError, ("anneal='no'", True, False)),
    ({"learning_rate": float("nan")}, ValueError, ("learning_rate=nan", 0)),
    ({"env_kwargs": {"que": 5}}, TypeError, ("'que'", "'queue'")),
    ({"env_kwargs": {"queue": -1}}, ValueError, ("queue=-1", 0)),
    ({"env_kwargs": {"trace": "edge4"}}, CorralError, ("'edge4'", "edge3")),
    ({"held_out": 1.0}, ValueError, ("held_out=1.0", 0, 1)),
    ({"held_out": (0, 20)}, ValueError, ("held_out=(0, 20)",)),
    (
        {"env": PileRules()},
        UnsupportedSpaceError,
        ("pile_v0", "corral train pile_v0 --trainer mappo"),
    ),
    ({"env": SteadyRules(), "env_kwargs": {"queue": 5}}, ValueError, ("env_kwargs={'queue': 5}",)),
    ({"env": SteadyRules(), "held_out": 0.5}, ValueError, ("held_out=0.5", "steady_v0")),
    ({"env": DfaasRules("edge3")}, ValueError, ("'dfaas_v0'", "env_kwargs=")),
]


@pytest.mark.parametrize(("given", "error", "named"), MISTAKES)
def test_mistakes_are_named_before_a_folder_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], named: tuple[object, ...]
) -> None:
    out = tmp_path / "run"
    plain = {"env": "dfaas_v0", "trainer": "sb3_ppo", "steps": 64, "out": out, **SMALL}
    with refused(error, *named):
        train(**{**plain, **given})
    assert not out.exists()


def test_masked_ppo_refuses_minibatches_of_one(tmp_path: Path) -> None:
    given: dict[str, Any] = {"env": SteadyRules(), "policies": "separate", "num_envs": 1}
    with refused(ValueError, "batch_size=64", "agent_0", 65, "n_steps"):
        small_run(tmp_path / "run", "sb3_maskable_ppo", n_steps=65, **{**given})
    assert not (tmp_path / "run").exists()
    # Stable-Baselines3's PPO leaves the advantage of a single decision as it is.
    run = small_run(tmp_path / "run", "sb3_ppo", n_steps=65, updates=1, **given)
    assert len(rows(run)) == 1


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    with refused(RunError, tmp_path / "run"):
        small_run(tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with refused(RunError, tmp_path / "full"):
        small_run(tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    with pytest.raises(RunError):
        small_run(tmp_path / "full" / "thesis.txt")
    (tmp_path / "empty").mkdir()
    assert small_run(tmp_path / "empty", updates=1).folder == tmp_path / "empty"
    assert weights(run)


def test_runs_without_a_folder_get_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"trace": small_trace(), "max_cycles": 30}
    given: dict[str, Any] = {"trainer": "sb3_ppo", "env_kwargs": env, "seed": 2, **SMALL}
    first, second = (train("dfaas_v0", steps=64, **given) for _ in range(2))
    assert first.folder == Path("runs/dfaas_v0-sb3_ppo-seed2")
    assert second.folder == Path("runs/dfaas_v0-sb3_ppo-seed2-2")
    assert weights(first) == weights(second)


def test_agents_that_end_early_are_named(tmp_path: Path) -> None:
    with refused(
        UnsupportedSpaceError, "mortal_v0", "agent_0", "corral train mortal_v0 --trainer mappo"
    ):
        small_run(tmp_path / "run", env=MortalRules((3, 3), lives=(2, 5)))


# --- Numbers that are not finite -----------------------------------------------------------------


@pytest.mark.parametrize("vec_env", ["batch", pytest.param("supersuit", marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ["observation", "last observation", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_ends_training_before_anything_is_saved(
    tmp_path: Path, where: str, value: float, vec_env: str
) -> None:
    after = 2 * 16 + 3  # steps of one copy: in the third rollout
    rules = FaultyRules(where, after, value)
    copy = 3 if vec_env == "batch" else 0  # over SuperSuit each copy has rules of its own
    with refused(NonFiniteError, copy, "agent_1", where):
        small_run(
            tmp_path / "run",
            updates=5,
            env=rules,
            preset="none",
            vec_env=vec_env,
            checkpoint_every=1,
        )
    assert checkpoints(tmp_path / "run") == [64, 128]
    for values in kept(tmp_path / "run").arrays.values():
        assert all(np.isfinite(array).all() for array in values.values())
    run = load_run(tmp_path / "run", rules)
    assert run.policies["agent_0"] is not None
    assert [row["env_steps"] for row in rows(run)] == ["64", "128"]


def test_a_weight_that_is_not_finite_ends_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = SB3PPO.algorithm.train
    calls = []

    def and_break(model: Any) -> None:
        update(model)
        calls.append(model)
        if len(calls) == 3:
            with torch.no_grad():
                model.policy.value_net.weight[0, 0] = torch.nan

    monkeypatch.setattr(SB3PPO.algorithm, "train", and_break)
    with refused(NonFiniteError, "shared", "value_net.weight"):
        small_run(tmp_path / "run", updates=5, checkpoint_every=1)
    assert checkpoints(tmp_path / "run") == [64, 128]
    assert load_run(tmp_path / "run").policies["node_0"] is not None


# --- Trainers of other packages ------------------------------------------------------------------


@dataclass(frozen=True)
class CountSettings:
    stride: int = field(default=10, metadata={"help": "env steps of an update"})
    widths: tuple[int, ...] = field(default=(1, 2), metadata={"help": "of nothing"})


class CountTrainer(Trainer):
    """Learns to count: the least that a trainer can be."""

    name = "count"
    Settings = CountSettings

    def __init__(
        self, rules: Any, settings: CountSettings, *, seed: int, policies: Any, **rest: Any
    ) -> None:
        assert set(rest) == {"policies_to_train", "steps"}
        assert settings.widths == (7,)  # a tuple again after JSON
        self.agents, self.settings, self.steps = rules.agents, settings, rest["steps"]
        self.env_steps = 0
        self.closed = False

    @property
    def policies(self) -> Any:
        return dict.fromkeys(self.agents, RandomPolicy())

    @property
    def resumes_exactly(self) -> bool:
        return True

    def learn(self, steps: int) -> Any:
        while self.env_steps < steps:
            self.env_steps += self.settings.stride
            episode = Episode(dict.fromkeys(self.agents, 1.0), self.settings.stride, {})
            yield Update(self.env_steps, [episode], {"count": float(self.env_steps)}, {"env": 1.0})

    def save(self) -> Content:
        return Content({"count": {"n": self.env_steps}}, {})

    def load(self, content: Content) -> None:
        self.env_steps = content.documents["count"]["n"]

    def close(self) -> None:
        self.closed = True


class FakePoint:
    name = "count"
    value = "counting:CountTrainer"

    def load(self) -> type:
        return CountTrainer


def test_a_trainer_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def points(*, group: str) -> list[Any]:
        return [FakePoint()] if group == "corral.trainers" else []

    monkeypatch.setattr(registry.metadata, "entry_points", points)
    assert registry.trainers()["count"] == "of counting:CountTrainer"
    assert set(TRAINERS) < set(registry.trainers())
    run = corral.train(
        SteadyRules(), trainer="count", steps=50, out=tmp_path / "run", stride=25, widths=(7,)
    )
    assert [row["count"] for row in rows(run)] == ["25.0", "50.0"]
    assert set(run.policies) == {"agent_0", "agent_1"}
    resumed = corral.resume(run.folder, steps=100, env=SteadyRules())
    assert [row["env_steps"] for row in rows(resumed)] == ["25", "50", "75", "100"]
    with refused(TypeError, "'strid'", "'stride'"):
        corral.train(SteadyRules(), trainer="count", out=tmp_path / "other", strid=25)
    with refused(UnknownNameError, "'coun'", "'count'"):
        corral.train(SteadyRules(), trainer="coun", out=tmp_path / "other")
    assert json.loads((run.folder / "config.json").read_text())["trainer"] == "count"


def test_a_broken_run_of_paid_rules_needs_its_rules(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1, env=PaidRules())
    with refused(RunError, "paid_v0", "corral.load_run("):
        load_run(run.folder)
    with refused(RunError, "paid_v0", "steady_v0"):
        resume(run.folder, env=SteadyRules())
    assert len(rows(resume(run.folder, env=PaidRules(), steps=2 * ROLLOUT))) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("trainer", ["sb3_ppo", "sb3_maskable_ppo", "mappo", "ippo"])
def test_a_device_that_is_not_there_is_refused_before_a_folder_is_made(
    tmp_path: Path, trainer: str
) -> None:
    with refused(ValueError, "device='cuda'", "'cpu'", "'auto'"):
        train("two_step_v0", trainer=trainer, device="cuda", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_run_of_a_machine_with_cuda_plays_without_but_does_not_learn(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    config = run.folder / "config.json"
    config.write_text(config.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    moved = load_run(run.folder)
    assert moved.config.settings["device"] == "cuda"
    assert set(moved.policies) == set(run.policies)
    with pytest.raises(ValueError, match="device='cuda'"):
        resume(run.folder, steps=128)


# --- Tracebacks ----------------------------------------------------------------------------------

REFUSED: list[dict[str, Any]] = [
    {"learning_rat": 1e-3},
    {"env": "arenav0"},
    {"settings_of": {"agnt_1": {"learning_rate": 1e-3}}},
    {"steps": 0},
    {"out": Path(__file__)},  # exists; raised while another error is handled
]


@pytest.mark.parametrize("mistake", REFUSED, ids=lambda mistake: next(iter(mistake)))
def test_a_refusal_has_a_traceback_of_the_call_alone(tmp_path: Path, mistake: Any) -> None:
    with pytest.raises((CorralError, ValueError, TypeError)) as caught:
        train(**{"env": "arena_v0", "out": tmp_path / "run", **mistake})
    assert len(caught.traceback) == 2  # this test, and the function that it calls
    assert caught.value.__suppress_context__


def test_an_error_before_a_refusal_is_kept() -> None:
    def call() -> None:
        try:
            raise KeyError("of the user")
        finally:
            train("arenav0")

    with pytest.raises(UnknownNameError) as caught:
        call()
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


def test_errors_in_the_users_code_keep_their_tracebacks() -> None:
    def maker() -> Any:
        return corral.make("arenav0")  # the user's mistake is in this line

    with pytest.raises(UnknownNameError) as caught:
        train(maker)
    assert "maker" in [entry.name for entry in caught.traceback]
    show_tracebacks.set(True)
    try:
        with pytest.raises(UnknownNameError) as caught:
            train("arenav0")
    finally:
        show_tracebacks.set(False)
    assert len(caught.traceback) > 2
