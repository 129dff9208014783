"""sb3_dqn and sb3_a2c: time limits, rewards kept apart, legal play, and going on bit for bit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import DictReplayBuffer

import corral
from corral.adapters import MaskedDQN
from corral.envs.masks import MASK
from corral.errors import CheckpointError, NonFiniteError
from corral.lab.doctor.text import diagnosis_text
from corral.trainers import session
from corral.trainers.base import Content, trainer_class
from corral.trainers.driver import resume, train
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.runs.run import Run, load_run
from corral.trainers.settings import make_settings
from support.loads import small_trace
from support.runs import (
    FaultyRules,
    PaidRules,
    everything,
    kept,
    observations,
    rows,
    updates_logged,
    weights,
)
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules

COMMON: dict[str, Any] = {"num_envs": 4, "net_arch": (16,), "progress": False}
DQN: dict[str, Any] = {
    **{**COMMON, "trainer": "sb3_dqn", "learning_starts": 64, "batch_size": 32},
    **{"train_freq": 4, "log_interval": 4, "buffer_size": 600, "target_update_interval": 32},
}
A2C_: dict[str, Any] = {**COMMON, "trainer": "sb3_a2c", "n_steps": 16}
BOTH = [DQN, A2C_]
ROLLOUT = 64
MAPPED = {"node_0": "edge", "node_1": "core", "node_2": "edge"}

both = pytest.mark.parametrize("given", BOTH, ids=["dqn", "a2c"])


def dfaas(folder: Path, given: dict[str, Any], updates: int = 4, **changes: Any) -> Run:
    env = {"trace": small_trace(), "max_cycles": 30, "illegal": "raise"}
    steps = updates * ROLLOUT
    return train("dfaas_v0", env_kwargs=env, steps=steps, out=folder, **{**given, **changes})


def fresh(rules: Any, given: dict[str, Any], **changes: Any) -> Any:
    """A trainer of one policy, without a folder."""
    kind = trainer_class(given["trainer"])
    known = {k: v for k, v in given.items() if k not in ("trainer", "progress")}
    everyone = dict.fromkeys(rules.agents, "shared")
    settings = make_settings(kind, {**known, **changes})
    return kind(rules, settings, seed=0, policies=everyone, policies_to_train=["shared"], steps=256)


# --- Values --------------------------------------------------------------------------------------

VALUES = {
    **{**DQN, "gamma": 0.5, "learning_rate": 0.03, "gradient_steps": 3, "anneal": False},
    **{"exploration_final_eps": 0.0, "train_freq": 1},
}


def values(rules: Any, **changes: Any) -> dict[str, float]:
    """What each agent's first observation is worth after 384 env steps."""
    run_of = {agent: agent for agent in rules.agents}
    given = {k: v for k, v in VALUES.items() if k not in ("trainer", "progress")}
    kind: Any = trainer_class("sb3_dqn")
    trainer = kind(
        rules,
        make_settings(kind, {**given, **changes}),
        seed=0,
        policies=run_of,
        policies_to_train=list(run_of),
        steps=384,
    )
    for _ in trainer.learn():
        pass
    seen = trainer._make_vec_env().reset()
    return {
        agent: float(learner.values(learner.own(seen)).mean())
        for agent, learner in trainer._learners.items()
    }


def test_a_cut_episode_is_worth_what_would_have_come() -> None:
    for agent, value in values(SteadyRules()).items():
        assert value == pytest.approx(2.0, abs=0.1), agent


def test_where_cuts_count_as_ends_it_is_worth_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """One state stands for four times in an episode: the mean of 1, 1 + V/2, 1 + V/2, 1 + V/2."""
    whole = DictReplayBuffer.__init__

    def alike(self: Any, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **{**kwargs, "handle_timeout_termination": False})

    monkeypatch.setattr(DictReplayBuffer, "__init__", alike)
    for value in values(SteadyRules()).values():
        assert value == pytest.approx(1.6, abs=0.15)


def test_rewards_reach_the_policy_of_their_agent_alone() -> None:
    found = values(PaidRules((1.0, -0.5)))
    assert found == pytest.approx({"agent_0": 2.0, "agent_1": -1.0}, abs=0.15)


# --- Playing -------------------------------------------------------------------------------------


@both
def test_only_legal_actions_in_training_and_after(tmp_path: Path, given: dict[str, Any]) -> None:
    rules = MortalRules((6, 6), lives=(7, 7), illegal="raise")  # masks are drawn anew each episode
    run = train(rules, steps=512, out=tmp_path / "run", **given)
    read = load_run(run.folder, rules)
    for deterministic in (True, False):
        score = evaluate_team(rules, Player(read.policies, deterministic), episodes=40)
        assert score.illegal_actions == 0


def test_sampled_play_is_epsilon_greedy(tmp_path: Path) -> None:
    run = dfaas(tmp_path / "run", DQN, exploration_final_eps=0.2)
    for agent, seen in observations(run).items():
        found = run.policies[agent].distribution(seen)  # type: ignore[attr-defined]
        mask = torch.as_tensor(seen[MASK]) != 0
        legal = mask.sum(dim=1, keepdim=True)
        expected = 0.2 * mask / legal
        best = torch.as_tensor(run.policies[agent].act(seen, deterministic=True).action)
        expected.scatter_add_(1, best[:, None], torch.full((len(best), 1), 0.8))
        torch.testing.assert_close(found.probs, expected)


def test_without_epsilon_sampled_play_is_greedy(tmp_path: Path) -> None:
    run = dfaas(tmp_path / "run", DQN, updates=2, exploration_final_eps=0.0)
    rng = np.random.default_rng(0)
    for agent, seen in observations(run).items():
        policy = run.policies[agent]
        drawn = policy.act(seen, rng=rng).action
        assert np.array_equal(drawn, policy.act(seen, deterministic=True).action)


@pytest.mark.parametrize(("given", "library"), [(DQN, MaskedDQN), (A2C_, A2C)], ids=["dqn", "a2c"])
def test_what_is_exported_plays_the_same_in_its_library(
    tmp_path: Path, given: dict[str, Any], library: Any
) -> None:
    run = dfaas(tmp_path / "run", given, policies=MAPPED)
    models = {
        path.stem: library.load(path, device="cpu")
        for path in run.export("weights", tmp_path / "export")[:-1]
    }
    assert sorted(models) == ["core", "edge"]
    place = np.eye(3, dtype=np.float32)
    for i, (agent, seen) in enumerate(observations(run).items()):
        shown = {**seen, "agent": np.tile(place[i], (32, 1))}
        actions, _ = models[MAPPED[agent]].predict(shown, deterministic=True)
        assert np.array_equal(actions, run.policies[agent].act(seen, deterministic=True).action)


@both
def test_frozen_policies_only_play(tmp_path: Path, given: dict[str, Any]) -> None:
    def run(updates: int) -> Run:
        where = tmp_path / str(updates)
        return dfaas(where, given, updates, policies=MAPPED, policies_to_train=["edge"])

    short, long = run(1), run(4)
    before, after = weights(short), weights(long)
    changed = {name.partition(".")[0] for name in before if before[name] != after[name]}
    assert changed == {"policy_edge"}
    assert "replay_core" not in kept(long).arrays


# --- Learning ------------------------------------------------------------------------------------


def test_the_columns_of_progress(tmp_path: Path) -> None:
    run = dfaas(tmp_path / "run", DQN, learning_starts=100, exploration_fraction=0.5)
    table = run.progress
    assert table["env_steps"].tolist() == [64, 128, 192, 256]
    assert table["loss"].isna().tolist() == [True, False, False, False]
    # After 100 env steps an update every 16: at 112 and 128, then four in a row of the table.
    assert table["n_updates"].tolist()[1:] == [2 * 4, 6 * 4, 10 * 4]
    assert table["exploration_rate"].tolist() == pytest.approx([0.525, 0.05, 0.05, 0.05])


def test_whole_rollouts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("arena_v0", steps=65, out=tmp_path / "run", **DQN)
    said = capsys.readouterr().err
    shown(said, 64, 65, "num_envs", "train_freq", "--learning-starts", "learning_starts=")
    train("arena_v0", steps=128, out=tmp_path / "longer", **DQN)
    assert "--learning-starts" not in capsys.readouterr().err


@pytest.mark.slow
def test_the_doctor_reads_its_runs(tmp_path: Path) -> None:
    run = dfaas(tmp_path / "run", DQN, updates=2, gamma=0.5)
    found = corral.diagnose(run, checked=False)
    assert not found.faulty
    assert found.learning is not None
    assert found.audit is not None
    assert len(found.not_looked_at) == 1
    shown(found.not_looked_at[0], "sb3_dqn")
    told = diagnosis_text(found)
    shown(told, "values")
    assert "advantages" not in told


def test_settings_reach_stable_baselines3() -> None:
    same = {
        **{"buffer_size": 800, "learning_starts": 7, "batch_size": 9, "train_freq": 3},
        **{"gradient_steps": 2, "tau": 0.4, "gamma": 0.8, "exploration_fraction": 0.3},
        **{"exploration_initial_eps": 0.9, "exploration_final_eps": 0.1, "max_grad_norm": 3.0},
    }
    trainer = fresh(SteadyRules(), DQN, target_update_interval=40, **same)
    model = trainer._learners["shared"].model
    found = {name: getattr(model, name) for name in same if name != "train_freq"}
    assert found == {name: value for name, value in same.items() if name != "train_freq"}
    assert model.replay_buffer.buffer_size == 100  # of 4 environments of 2 agents
    assert model.target_update_interval // model.n_envs == 10  # steps of 4 env steps
    same = {"n_steps": 3, "gamma": 0.8, "gae_lambda": 0.7, "ent_coef": 0.1, "vf_coef": 0.3}
    same |= {"max_grad_norm": 0.2, "normalize_advantage": True}
    model = fresh(SteadyRules(), A2C_, rms_prop_eps=1e-3, **same)._learners["shared"].model
    assert {name: getattr(model, name) for name in same} == same
    assert model.policy.optimizer.defaults["eps"] == 1e-3
    other = fresh(SteadyRules(), A2C_, use_rms_prop=False)._learners["shared"].model
    assert isinstance(other.policy.optimizer, torch.optim.Adam)


@pytest.mark.parametrize("where", ["observation", "last observation", "reward"])
def test_a_number_that_is_not_finite_ends_training(tmp_path: Path, where: str) -> None:
    rules = FaultyRules(where, 2 * 16 + 3)
    with refused(NonFiniteError, 3, "agent_1", where):
        train(rules, steps=256, out=tmp_path / "run", preset="none", checkpoint_every=1, **DQN)
    assert kept(tmp_path / "run").documents["trainer"]["env_steps"] == 128


# --- Going on ------------------------------------------------------------------------------------


def stop_at(monkeypatch: pytest.MonkeyPatch, env_steps: int) -> None:
    """Interrupt training when so many env steps are done."""
    show = session.Bar.show

    def and_stop(bar: Any, row: Any, *shown: Any) -> None:
        show(bar, row, *shown)
        if row["env_steps"] == env_steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(session.Bar, "show", and_stop)


@pytest.mark.parametrize(
    "given",
    [DQN, A2C_, pytest.param({**A2C_, "use_rms_prop": False}, marks=pytest.mark.slow)],
    ids=["dqn", "a2c", "a2c-adam"],
)
def test_a_run_that_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops before anything is learned, and once the replay buffer is full."""
    whole = dfaas(tmp_path / "whole", given, updates=6, policies=MAPPED)
    folder = tmp_path / "run"
    begin = partial(dfaas, folder, given, updates=6, policies=MAPPED)
    for stop in (1, 2, 5):
        with monkeypatch.context() as patched:
            stop_at(patched, stop * ROLLOUT)
            with pytest.raises(KeyboardInterrupt):
                (begin if stop == 1 else partial(resume, folder))()
        assert len(rows(folder)) == stop
    resume(folder)
    assert everything(folder) == everything(whole)
    assert rows(folder) == rows(whole)
    if given is DQN:
        own = kept(whole).documents["trainer"]["exploration"]
        assert own["edge"]["full"]  # 2 agents: 75 steps of 8 decisions
        assert not own["core"]["full"]
        assert len(kept(whole).arrays["replay_core"]["actions"]) == 6 * 16


BEGIN = """
import corral
corral.train("arena_v0", steps={steps}, seed=3, out={folder!r}, checkpoint_every=64, **{given!r})
"""
GO_ON = "import corral; corral.resume({folder!r}, checkpoint_every=64, progress=False)"


@pytest.mark.slow
@pytest.mark.parametrize("given", BOTH, ids=["dqn", "a2c"])
def test_kills_at_random_moments_change_nothing(tmp_path: Path, given: dict[str, Any]) -> None:
    """SIGKILL after a row or two, in the midst of updates and of checkpoints."""
    steps, rng = 100 * ROLLOUT, random.Random(0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    exec(BEGIN.format(steps=steps, folder=str(whole), given=given), {})
    kills = 0
    for _ in range(5):
        begun = (killed / "checkpoints" / "latest").exists()
        code = (GO_ON if begun else BEGIN).format(steps=steps, folder=str(killed), given=given)
        known = len(rows(killed)) if begun else 0
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        while process.poll() is None and updates_logged(killed) <= known + 2:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 4
    resume(killed)
    assert everything(killed) == everything(whole)
    assert rows(killed) == rows(whole)


def test_a_replay_buffer_of_another_size_is_refused_before_anything_changes(tmp_path: Path) -> None:
    content = kept(dfaas(tmp_path / "run", DQN))
    rules = load_run(tmp_path / "run").config.env_config.rules()
    for changes in ({"num_envs": 8}, {"buffer_size": 60}, {"agent_id": False}):
        trainer = fresh(rules, DQN, **changes)
        policy = trainer._learners["shared"].model.policy
        before = {key: value.clone() for key, value in policy.state_dict().items()}
        with refused(CheckpointError, "replay_shared:"):
            trainer.load(content)
        assert all(torch.equal(before[key], v) for key, v in policy.state_dict().items())
    for missing in content.arrays:
        left = {file: each for file, each in content.arrays.items() if file != missing}
        with pytest.raises(CheckpointError, match=missing):
            fresh(rules, DQN).load(Content(content.documents, left))
    fresh(rules, DQN).load(content)


@both
def test_over_supersuit_it_goes_on_with_new_episodes(tmp_path: Path, given: dict[str, Any]) -> None:
    pytest.importorskip("supersuit", reason="needs the extra supersuit")
    run = dfaas(tmp_path / "run", given, updates=2, vec_env="supersuit")
    again = resume(run.folder, steps=4 * ROLLOUT)
    assert again.progress["env_steps"].tolist() == [64, 128, 192, 256]
