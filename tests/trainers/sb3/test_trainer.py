"""The trainers over Stable-Baselines3: values at the time limit, rewards kept apart, legal play."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra sb3")

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

from corral.adapters import vectorize
from corral.envs import dfaas_v0
from corral.envs.core import generator
from corral.errors import CheckpointError, IllegalActionError, MissingExtraError
from corral.trainers.base import trainer_class
from corral.trainers.driver import resume, train
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.runs.checkpoint import Content
from corral.trainers.runs.run import Run, load_run
from corral.trainers.sb3.trainer import SB3PPO
from corral.trainers.settings import make_settings
from support.runs import SMALL, PaidRules, kept, observations, rows, small_run, weights
from support.steady_rules import SteadyRules
from support.thinned import fast_every
from support.turn_rules import MortalRules

TRAINERS = ("sb3_ppo", "sb3_maskable_ppo")


def values(run: Run) -> dict[str, float]:
    """What each agent's critic says at the start of an episode."""
    trainer: Any = run.config.make_trainer()
    trainer.load(kept(run))
    seen = trainer._make_vec_env().reset()
    found = {}
    for learner in trainer._learners.values():
        own = {key: entries[learner.columns] for key, entries in seen.items()}
        told = learner.values(own).numpy().reshape(-1)
        names = [trainer.rules.agents[c % len(trainer.rules.agents)] for c in learner.columns]
        found.update(zip(names, told.tolist(), strict=True))
    return found


# --- Values --------------------------------------------------------------------------------------

VALUES = {
    **SMALL,
    "n_steps": 4,
    "batch_size": 32,
    "gamma": 0.9,
    "learning_rate": 0.01,
    "anneal": False,
    "n_epochs": 10,
    "max_grad_norm": 10.0,
}
STEPS = 36 * 16
"""An update brings what is wrong with a value to about 0.8 of it."""


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("vec_env", fast_every(2, ["batch", "supersuit"]))
def test_a_cut_episode_is_worth_what_would_have_come(
    tmp_path: Path, trainer: str, vec_env: str
) -> None:
    run = train(
        SteadyRules(), trainer=trainer, steps=STEPS, vec_env=vec_env, out=tmp_path / "run", **VALUES
    )
    for agent, value in values(run).items():
        assert value == pytest.approx(10, abs=0.5), agent


def test_without_the_value_at_the_cut_it_would_be_worth_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SB3PPO, "_bootstrapped", lambda self, learner, rewards, *_: rewards[learner.columns]
    )
    run = train(SteadyRules(), trainer="sb3_ppo", steps=STEPS, out=tmp_path / "run", **VALUES)
    # One state stands for four times in an episode: the mean of what is left of its four rewards.
    for value in values(run).values():
        assert value == pytest.approx(2.3, abs=0.3)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_rewards_reach_the_policy_of_their_agent_alone(tmp_path: Path, trainer: str) -> None:
    run = train(
        PaidRules((1.0, -0.5)),
        trainer=trainer,
        steps=STEPS,
        policies="separate",
        out=tmp_path / "run",
        **VALUES,
    )
    assert values(run) == pytest.approx({"agent_0": 10.0, "agent_1": -5.0}, abs=0.5)


def test_a_shared_policy_tells_its_agents_apart(tmp_path: Path) -> None:
    given: dict[str, Any] = {"steps": STEPS, **VALUES}
    run = train(PaidRules((1.0, -0.5)), trainer="sb3_ppo", out=tmp_path / "run", **given)
    assert values(run) == pytest.approx({"agent_0": 10.0, "agent_1": -5.0}, abs=0.7)
    blind = train(
        PaidRules((1.0, -0.5)), trainer="sb3_ppo", out=tmp_path / "blind", agent_id=False, **given
    )
    assert values(blind) == pytest.approx({"agent_0": 2.5, "agent_1": 2.5}, abs=0.7)


# --- Accounts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vec_env", ["batch", "supersuit"])
def test_returns_of_agents_policies_and_team(tmp_path: Path, vec_env: str) -> None:
    # Three agents earn 1, 10, 100 a step for 5 steps; rollouts of 3 steps cut across episodes.
    run = small_run(
        tmp_path / "run",
        env=MortalRules((3, 3, 3), lives=(5, 5, 5)),
        policies={"agent_0": "a", "agent_1": "a", "agent_2": "b"},
        n_steps=3,
        updates=1,
        vec_env=vec_env,
    )
    last = {name: float(text) for name, text in rows(run)[-1].items()}
    assert [last[f"return_agent_{i}"] for i in range(3)] == [5, 50, 500]
    assert (last["return_of_a"], last["return_of_b"]) == (55, 500)
    assert (last["return_team"], last["length"]) == (555, 5)
    assert last["kpi_t"] == 3 * (1 + 2 + 3 + 4 + 5)


@pytest.mark.parametrize("policies", ["shared", "separate"])
def test_sums_agree_in_every_row(tmp_path: Path, policies: Any) -> None:
    progress = small_run(tmp_path / "run", updates=6, policies=policies).progress
    agents = progress[[f"return_node_{i}" for i in range(3)]].sum(axis=1, min_count=3)
    own = progress.filter(like="return_of_").sum(axis=1, min_count=1)
    assert progress.filter(like="return_of_").shape[1] == (1 if policies == "shared" else 3)
    assert progress["return_team"].isna().tolist() == [True] + 5 * [False]
    np.testing.assert_allclose(agents, progress["return_team"], rtol=1e-12)
    np.testing.assert_allclose(own, progress["return_team"], rtol=1e-12)


# --- Playing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_run_read_back_plays_as_it_did(
    tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []
    monkeypatch.setattr(SB3PPO, "close", lambda self: closed.append(self))
    run = small_run(
        tmp_path / "run", trainer, policies={"node_0": "a", "node_1": "b", "node_2": "a"}
    )
    trained: Mapping[str, Any] = closed[0].policies
    read = load_run(run.folder).policies
    seen = observations(run)
    drawn = set()
    for i, agent in enumerate(seen):
        one = trained[agent].act(seen[agent], deterministic=True)
        two = read[agent].act(seen[agent], deterministic=True)
        assert np.array_equal(one.action, two.action)
        assert np.array_equal(one.extra["probabilities"], two.extra["probabilities"])
        sampled = [
            team[agent].act(seen[agent], rng=generator(5, "policy", i)).action
            for team in (trained, read)
        ]
        assert np.array_equal(*sampled)
        drawn |= set(sampled[0].tolist())
        for team in (trained, read):
            for row in range(8):
                single = {key: values[row] for key, values in seen[agent].items()}
                alone = team[agent].act(single, deterministic=True)
                assert np.shape(alone.action) == ()
                assert alone.action == one.action[row]
                np.testing.assert_allclose(
                    alone.extra["probabilities"], one.extra["probabilities"][row], atol=1e-6
                )
        rng, again = generator(5, "policy", i), generator(5, "policy", i)
        singles = [
            int(team_action.action)
            for row in range(8)
            if (
                team_action := read[agent].act(
                    {key: values[row] for key, values in seen[agent].items()}, rng=rng
                )
            )
        ]
        assert (
            singles
            == read[agent]
            .act({key: values[:8] for key, values in seen[agent].items()}, rng=again)
            .action.tolist()
        )
    assert len(drawn) > 3


def test_sampling_needs_a_generator(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1)
    seen = observations(run, 2)["node_0"]
    with pytest.raises(ValueError, match="deterministic=True"):
        run.policies["node_0"].act(seen)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_only_legal_actions_in_training_and_after(tmp_path: Path, trainer: str) -> None:
    rules = MortalRules((6, 6), lives=(7, 7), illegal="raise")  # masks are drawn anew each episode
    run = small_run(tmp_path / "run", trainer, env=rules)
    read = load_run(run.folder, MortalRules((6, 6), lives=(7, 7)))
    for deterministic in (True, False):
        score = evaluate_team(
            read.config.env_config.rules(), Player(read.policies, deterministic), episodes=40
        )
        assert score.illegal_actions == 0
    # These rules do notice: a team that plays action 0 whatever the mask is caught.
    first = Player({agent: First() for agent in rules.agents})
    with pytest.raises(IllegalActionError):
        evaluate_team(rules, first, episodes=40)


class First:
    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *_: Any, **__: Any) -> Any:
        from corral.envs.policy import Decision

        return Decision(np.zeros(len(observation["action_mask"]), dtype=np.int64))


def test_both_trainers_learn_the_same(tmp_path: Path) -> None:
    """Where the mask is read from makes no difference, not of a bit."""
    runs = [small_run(tmp_path / trainer, trainer) for trainer in TRAINERS]
    weights = [kept(run).arrays["policy_shared"] for run in runs]
    assert weights[0].keys() == weights[1].keys()
    for key, values in weights[0].items():
        assert np.array_equal(values, weights[1][key]), key


@pytest.mark.parametrize(("trainer", "library"), [*zip(TRAINERS, (PPO, MaskablePPO), strict=True)])
def test_what_is_exported_plays_the_same_in_its_library(
    tmp_path: Path, trainer: str, library: Any
) -> None:
    run = small_run(
        tmp_path / "run", trainer, policies={"node_0": "a", "node_1": "b", "node_2": "a"}
    )
    *paths, manifest = run.export("weights", tmp_path / "export")
    assert [path.name for path in (*paths, manifest)] == ["a.zip", "b.zip", "manifest.json"]
    models = {path.stem: library.load(path, device="cpu") for path in paths}
    seen = observations(run)
    place = np.eye(3, dtype=np.float32)
    for i, agent in enumerate(seen):
        model = models[run.config.policies[agent]]
        shown = {**seen[agent], "agent": np.tile(place[i], (32, 1))}
        actions, _ = model.predict(shown, deterministic=True)
        own = run.policies[agent].act(seen[agent], deterministic=True).action
        assert np.array_equal(actions, own)
        assert len(set(own.tolist())) > 1


# --- Loading -------------------------------------------------------------------------------------


def test_weights_of_another_shape_are_refused_before_anything_changes(tmp_path: Path) -> None:
    content = kept(small_run(tmp_path / "run", updates=1))
    kind = trainer_class("sb3_ppo")
    rules = load_run(tmp_path / "run").config.env_config.rules()
    everyone = dict.fromkeys(rules.agents, "shared")

    def fresh(**changes: Any) -> Any:
        settings = make_settings(kind, {**SMALL, **changes})
        return kind(
            rules, settings, seed=0, policies=everyone, policies_to_train=["shared"], steps=64
        )

    for changes in ({"net_arch": (17,)}, {"net_arch": (16, 16)}, {"agent_id": False}):
        trainer = fresh(**changes)
        policy = trainer._learners["shared"].model.policy
        before = {key: value.clone() for key, value in policy.state_dict().items()}
        with refused(CheckpointError, "policy_shared:"):
            trainer.load(content)
        assert all(torch.equal(before[key], v) for key, v in policy.state_dict().items())
    larger = fresh(num_envs=5)
    larger.load(content)  # the same networks; what does not fit is the environment
    with refused(CheckpointError, "kpis.arrivals", "(5, 3)"):
        next(larger.learn())
    for missing in content.arrays:
        arrays = {file: found for file, found in content.arrays.items() if file != missing}
        with pytest.raises(CheckpointError, match=missing):
            fresh().load(Content(content.documents, arrays))
    for missing in content.documents["trainer"]:
        told = {key: v for key, v in content.documents["trainer"].items() if key != missing}
        with pytest.raises(CheckpointError, match=missing):
            fresh().load(Content({"trainer": told}, content.arrays))
    fresh().load(content)


def test_settings_reach_stable_baselines3() -> None:
    rules = SteadyRules()
    everyone = dict.fromkeys(rules.agents, "shared")
    given = {
        "n_steps": 7,
        "batch_size": 9,
        "n_epochs": 3,
        "gamma": 0.8,
        "gae_lambda": 0.7,
        "ent_coef": 0.02,
        "vf_coef": 0.3,
        "max_grad_norm": 0.4,
        "target_kl": 0.05,
    }
    for name in TRAINERS:
        kind = trainer_class(name)
        settings = make_settings(
            kind, {**given, "clip_range": 0.15, "learning_rate": 0.004, "net_arch": (5, 4)}
        )
        trainer: Any = kind(
            rules, settings, seed=0, policies=everyone, policies_to_train=["shared"], steps=100
        )
        model = trainer._learners["shared"].model
        assert {key: getattr(model, key) for key in given} == given
        assert model.clip_range(0.5) == 0.15
        assert model.lr_schedule(1.0) == 0.004
        assert model.lr_schedule(0.25) == pytest.approx(0.001)
        shapes = [tuple(p.shape) for k, p in model.policy.named_parameters() if "weight" in k]
        assert (5, 3) in shapes  # one number seen, and which of two agents
        assert (4, 5) in shapes


def test_the_learning_rate_falls_to_nothing_over_the_run(tmp_path: Path) -> None:
    falling = small_run(tmp_path / "one", updates=4).progress["learning_rate"].tolist()
    assert falling == pytest.approx([0.002, 0.0015, 0.001, 0.0005])
    steady = small_run(tmp_path / "two", updates=2, anneal=False).progress["learning_rate"]
    assert steady.tolist() == [0.002, 0.002]
    assert weights(tmp_path / "one") != weights(tmp_path / "two")


# --- What is not installed -----------------------------------------------------------------------


def test_without_supersuit_it_trains_and_says_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "supersuit", None)
    assert small_run(tmp_path / "run", updates=1).policies
    for trainer in TRAINERS:
        with refused(MissingExtraError, "vec_env='supersuit'", "pip install '.[supersuit]'"):
            small_run(tmp_path / "none", trainer=trainer, updates=1, vec_env="supersuit")
    assert not (tmp_path / "none").exists()
    with pytest.raises(MissingExtraError, match=r"'\.\[supersuit\]'"):
        vectorize(dfaas_v0.parallel_env(), 2)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stable-Baselines3's own loggers make a folder there for every run."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.delenv("SB3_LOGDIR", raising=False)
    run = small_run(tmp_path / "run", trainer=trainer, updates=1)
    read = load_run(run.folder)
    evaluate_team(read.config.env_config.rules(), read.policies, episodes=1)
    resume(run.folder, steps=2 * run.config.steps)
    assert list(place.iterdir()) == []
