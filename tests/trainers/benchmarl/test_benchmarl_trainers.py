"""The trainers over BenchMARL, where it is not installed: settings, refusals, playing."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters import zoo_rules
from corral.envs.registry import make_rules
from corral.errors import CheckpointError, MissingExtraError, UnsupportedSpaceError
from corral.trainers.base import Content, trainer_class
from support.zoo_envs import MixedEnv

TRAINERS = ("benchmarl_vdn", "benchmarl_qmix", "benchmarl_iql", "benchmarl_masac")
SMALL = {"num_envs": 2, "n_steps": 2, "net_arch": (8,)}


def made(name: str, rules: Any, seed: int = 0, policies: Any = None, **settings: Any) -> Any:
    kind: Any = trainer_class(name)
    rules = make_rules(rules) if isinstance(rules, str) else rules
    policies = policies or dict.fromkeys(rules.agents, "shared")
    return kind(
        rules,
        kind.Settings(**{**SMALL, **settings}),
        seed=seed,
        policies=policies,
        policies_to_train=list(dict.fromkeys(policies.values())),
        steps=100,
    )


def observations(rules: Any, rows: int = 32) -> dict[str, Any]:
    found: dict[str, Any] = rules.observe(
        rules.start([np.random.default_rng(r) for r in range(rows)])
    )
    return found


# --- Settings and refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainer", "settings", "named"),
    [
        ("benchmarl_vdn", {"learning_rate": -1.0}, ("learning_rate=-1.0",)),
        ("benchmarl_vdn", {"batch_size": 64, "buffer_size": 32}, ("batch_size=64",)),
        (
            "benchmarl_iql",
            {"exploration_final_eps": 0.5, "exploration_initial_eps": 0.1},
            ("exploration_final_eps=0.5",),
        ),
        ("benchmarl_iql", {"exploration_fraction": 0.0}, ("exploration_fraction=0.0",)),
        ("benchmarl_qmix", {"mixing_embed_dim": 0}, ("mixing_embed_dim=0",)),
        ("benchmarl_masac", {"ent_coef": 2.0, "ent_coef_max": 1.0}, ("ent_coef=2.0",)),
        ("benchmarl_masac", {"loss_function": "huber"}, ("loss_function='huber'",)),
    ],
)
def test_settings_out_of_range_are_named(
    trainer: str, settings: dict[str, Any], named: tuple[object, ...]
) -> None:
    with refused(ValueError, *named):
        made(trainer, "two_step_v0", **settings)


def test_each_has_the_settings_of_its_kind() -> None:
    names = {t: {f.name for f in fields(trainer_class(t).Settings)} for t in TRAINERS}
    assert names["benchmarl_qmix"] - names["benchmarl_vdn"] == {"mixing_embed_dim"}
    assert names["benchmarl_vdn"] == names["benchmarl_iql"]
    assert "exploration_fraction" not in names["benchmarl_masac"]
    assert "target_entropy" in names["benchmarl_masac"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_without_benchmarl_training_says_which_extra(
    trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarl", None)
    line = r"\npython3 -m venv .venv-benchmarl && \S+/bin/pip install '.\[benchmarl\]'\n"
    with pytest.raises(MissingExtraError, match=line):
        corral.train("two_step_v0", trainer=trainer, steps=64, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tictactoe_v0", "probe_p12_v0"])
def test_games_in_turns_are_refused_with_what_plays_them(name: str) -> None:
    with refused(UnsupportedSpaceError, name, "mappo"):
        made("benchmarl_iql", name)


def test_actions_that_are_no_single_choice_are_refused() -> None:
    rules = zoo_rules(MixedEnv)
    separate = {agent: agent for agent in rules.agents}
    with pytest.raises(UnsupportedSpaceError, match=r"Discrete.*mappo"):
        made("benchmarl_iql", rules, policies=separate)


@pytest.mark.parametrize("trainer", ["benchmarl_vdn", "benchmarl_qmix"])
def test_a_mixer_needs_something_to_mix(trainer: str) -> None:
    separate = {"agent_0": "first", "agent_1": "second"}
    with pytest.raises(UnsupportedSpaceError, match="policies='shared'"):
        made(trainer, "two_step_v0", policies=separate)
    made("benchmarl_iql", "two_step_v0", policies=separate)


# --- Playing -------------------------------------------------------------------------------------


def test_values_are_played_greedily_and_legally() -> None:
    rules: Any = make_rules("probe_p06_v0")
    learner = made("benchmarl_iql", rules, seed=3)
    for i, agent in enumerate(rules.agents):
        seen = observations(rules)[agent]
        vector = np.tile([1.0, *np.eye(2)[i]], (32, 1)).astype(np.float32)
        values = learner.policies[agent].network(torch.tensor(vector)).detach().numpy()
        best = np.where(seen["action_mask"] != 0, values, -np.inf).argmax(axis=1)
        for rng in (None, np.random.default_rng(0)):
            decision = learner.policies[agent].act(seen, rng=rng, deterministic=rng is None)
            assert np.array_equal(decision.action, best)
        assert np.array_equal(decision.extra["probabilities"].argmax(axis=1), best)
        assert set(np.unique(decision.extra["probabilities"])) == {0.0, 1.0}


def test_masac_draws_what_is_legal() -> None:
    rules: Any = make_rules("probe_p06_v0")
    policy = made("benchmarl_masac", rules).policies["agent_1"]
    seen = observations(rules)["agent_1"]
    rng = np.random.default_rng(0)
    drawn = np.stack([policy.act(seen, rng=rng).action for _ in range(200)])  # [200, 32]
    legal = seen["action_mask"] != 0
    assert np.take_along_axis(legal.T, drawn, axis=0).all()
    several = legal.sum(axis=1) > 1
    assert (np.ptp(drawn, axis=0) > 0)[several].all()


# --- Saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS)
def test_what_is_saved_plays_the_same(trainer: str, tmp_path: Path) -> None:
    rules: Any = make_rules("probe_p06_v0")  # its masks show the order of all actions
    learner, other = made(trainer, rules), made(trainer, rules, seed=1)
    seen = observations(rules)

    def played(who: Any) -> list[Any]:
        return [
            policy.act(seen[agent], rng=np.random.default_rng(0)).extra["probabilities"]
            for agent, policy in who.policies.items()
        ]

    assert not np.array_equal(played(other), played(learner))
    other.load(learner.save())
    assert np.array_equal(played(other), played(learner))
    assert other.env_steps == 0
    assert not other.resumes_exactly
    names = sorted(path.name for path in learner.export(tmp_path))
    assert names == ["shared.json", "shared.safetensors"]


def test_what_does_not_fit_is_refused_before_anything_changes() -> None:
    learner = made("benchmarl_vdn", "two_step_v0")
    before = learner.save().arrays["policy_shared"]
    for wrong in (
        made("benchmarl_vdn", "two_step_v0", seed=1, net_arch=(16,)).save(),
        made("benchmarl_vdn", "arena_v0", seed=1).save(),
        Content({"trainer": {}}, {}),
    ):
        with pytest.raises(CheckpointError):
            learner.load(wrong)
    # One that has learned holds what it learned beside its policies.
    begun = made("benchmarl_vdn", "two_step_v0", seed=1).save()
    begun.documents["trainer"]["env_steps"] = 64
    with pytest.raises(CheckpointError, match="learning"):
        learner.load(begun)
    after = learner.save().arrays["policy_shared"]
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_exploration_fades_over_its_share_of_the_steps() -> None:
    learner = made("benchmarl_vdn", "two_step_v0", exploration_fraction=0.5)
    found = []
    for learner.env_steps in (0, 25, 50, 100, 200):
        found.append(round(learner.exploration, 6))
    assert found == [1.0, 0.525, 0.05, 0.05, 0.05]
    assert made("benchmarl_masac", "two_step_v0").exploration == 0.0
