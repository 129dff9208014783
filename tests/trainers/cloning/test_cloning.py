"""Cloning: what teachers say, what is learned of them, and how a run of it goes on."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters import make_batch
from corral.envs.masks import MASK
from corral.envs.policy import Decision
from corral.envs.reference import reference_team
from corral.envs.registry import make_rules
from corral.errors import (
    CheckpointError,
    InfeasibleError,
    RunError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from corral.trainers import agreement, compare, taught_by
from corral.trainers.cloning.teachers import choices_of, find_teacher
from corral.trainers.cloning.trainer import _targets
from corral.trainers.runs.checkpoint import load_checkpoint

SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 16, "n_epochs": 2, "progress": False}


# --- Equally good actions ------------------------------------------------------------------------


@pytest.mark.parametrize(("env", "team"), [("tictactoe_v0", "perfect"), ("tiles_v0", "greedy")])
def test_teachers_tell_which_legal_actions_are_equally_good(env: str, team: str) -> None:
    rules = make_rules(env)
    policies, batch = reference_team(team, rules), make_batch(rules, 16, seed=1)
    observations, rng, several = batch.reset(), np.random.default_rng(0), 0
    for _ in range(4):
        actions = np.zeros((16, len(rules.agents)), dtype=np.int64)
        for i, agent in enumerate(rules.agents):
            rows = np.flatnonzero(batch.acting[:, i])
            if not len(rows):
                continue
            obs = {key: _rows(value, rows) for key, value in observations[agent].items()}
            decision = policies[agent].act(obs, None, rng)
            choices = choices_of(decision, obs[MASK].shape[1])
            assert choices[np.arange(len(rows)), decision.action].all()
            assert not (choices & (obs[MASK] == 0)).any()
            several += int((choices.sum(axis=1) > 1).sum())
            actions[rows, i] = decision.action
        observations = batch.step(actions).observations
    assert several > 0 or env != "tictactoe_v0"  # tiles are hardly ever worth just the same


def _rows(tree: Any, rows: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rows(value, rows) for key, value in tree.items()}
    return tree[rows]


def test_without_a_word_the_chosen_action_is_the_only_good_one() -> None:
    found = choices_of(Decision(np.array([2, 0])), 3)
    assert found.tolist() == [[False, False, True], [True, False, False]]


def test_targets_are_uniform_over_choices_or_spread_over_legal_neighbors() -> None:
    choices = torch.tensor([[True, False, True, False], [False, False, True, False]])
    mask = torch.tensor([[True, True, True, False], [False, True, True, True]])
    assert _targets(choices, mask, 0.0)[0].tolist() == [0.5, 0.0, 0.5, 0.0]
    spread = _targets(choices, mask, 1.0)
    assert torch.allclose(spread.sum(dim=1), torch.ones(2))
    assert spread[~mask].tolist() == [0.0, 0.0]
    assert spread[1].argmax() == 2
    assert spread[1, 1] == spread[1, 3]
    assert torch.isclose(spread[1, 1] / spread[1, 2], torch.exp(torch.tensor(-0.5)))


# --- Agreement -----------------------------------------------------------------------------------


class Shifted:
    """Sends ``more`` levels than overflow, where that is legal."""

    def __init__(self, policy: Any, more: int) -> None:
        self.policy, self.more = policy, more

    def act(self, observation: Any, state: Any, rng: Any, deterministic: bool) -> Any:
        action = self.policy.act(observation, state, rng).action
        most = observation[MASK].sum(axis=1) - 1
        return np.minimum(action + self.more, most)


def test_agreement_counts_decisions_and_requests() -> None:
    rules = make_rules("dfaas_v0", max_cycles=20)
    team = reference_team("overflow", rules)
    same = agreement(team, "overflow/equal", rules, episodes=4)
    assert [row.agent for row in same.rows] == [*rules.agents, "all"]
    assert [row.decisions for row in same.rows] == [80, 80, 80, 240]
    assert same.share == 1.0
    assert same.rows[-1].difference == 0.0
    shifted = {agent: Shifted(policy, 2) for agent, policy in team.items()}
    apart = agreement(shifted, "overflow", rules, episodes=4)
    assert apart.share < 0.1
    assert 1.5 < apart.rows[-1].difference <= 2.0
    assert apart.unit == "requests"


def test_any_of_the_equally_good_actions_agrees() -> None:
    rules = make_rules("tictactoe_v0")
    first = reference_team("perfect", rules)  # greedily it takes the first, the teacher draws
    found = agreement(first, "perfect", rules, episodes=16)
    assert found.share == 1.0
    assert found.unit is None
    assert agreement(reference_team("random", rules), "random", rules, episodes=4).share == 1.0


# --- Learning ------------------------------------------------------------------------------------


@pytest.mark.slow  # learns
def test_a_perfect_player_is_cloned(tmp_path: Path) -> None:
    run = corral.clone(
        "tictactoe_v0", "perfect", steps=16_384, num_envs=64, out=tmp_path / "run", progress=False
    )
    found = json.loads((run.folder / "agreement.json").read_text())
    assert found["teacher"] == "perfect"
    assert found["rows"][-1]["share"] >= 0.95
    assert run.config.settings["teacher"] == "perfect"
    last = run.progress.iloc[-1]
    assert last["cross_entropy"] < run.progress.iloc[0]["cross_entropy"]
    assert last["validation_agreement"] >= 0.9
    assert run.best_by is not None
    assert run.best_by["compared"] == "validation agreement"


def test_a_clone_that_is_not_taught_does_not_agree(tmp_path: Path) -> None:
    run = corral.clone(
        "tictactoe_v0", "perfect", steps=128, out=tmp_path / "run", learning_rate=0.0, **SMALL
    )
    assert compare(run).share < 0.8


def test_a_resumed_clone_learns_the_same_weights(tmp_path: Path) -> None:
    given: dict[str, Any] = {**SMALL, "own_play": 0.3, "memory": 8, "episodes": 2}
    whole = corral.clone(
        "arena_v0", "nearest/chase", steps=512, horizon=512, out=tmp_path / "a", **given
    )
    part = corral.clone(
        "arena_v0", "nearest/chase", steps=256, horizon=512, out=tmp_path / "b", **given
    )
    part = corral.resume(part.folder, steps=512, progress=False)
    before, after = (load_checkpoint(run.checkpoint()).arrays for run in (whole, part))
    for file in before:
        for name, values in before[file].items():
            assert np.array_equal(values, after[file][name]), (file, name)


def test_another_run_teaches_greedily_and_is_told_from_what_it_becomes(tmp_path: Path) -> None:
    first = corral.clone("tictactoe_v0", "perfect", steps=2048, out=tmp_path / "a", **SMALL)
    latest = f"{first.folder}@latest"
    run = corral.clone("tictactoe_v0", latest, steps=256, out=tmp_path / "c", **SMALL)
    assert run.config.settings["teacher"].endswith("a@2048")  # it may go on
    run = corral.train(
        "tictactoe_v0", trainer="clone", teacher=latest, steps=256, out=tmp_path / "b", **SMALL
    )
    assert find_teacher(first, make_rules("tictactoe_v0")).deterministic
    corral.resume(first.folder, steps=2304, progress=False)
    with refused(CheckpointError, latest, "corral clone ENV --from TEACHER --init RUN"):
        corral.resume(run.folder, steps=512, progress=False)


def test_a_teacher_in_python_is_given_again(tmp_path: Path) -> None:
    rules = make_rules("tictactoe_v0")
    team = reference_team("perfect", rules)
    run = corral.clone("tictactoe_v0", team, steps=128, out=tmp_path / "run", **SMALL)
    assert set(corral.load_run(run.folder).policies) == set(rules.agents)  # to play, none is needed
    with refused(ValueError, "corral.resume(folder, trainer=corral.trainers.taught_by(teacher))"):
        corral.resume(run.folder, steps=256, progress=False)
    again = corral.resume(run.folder, steps=256, trainer=taught_by(team), progress=False)
    assert again.progress["env_steps"].iloc[-1] == 256


def test_a_plain_function_teaches(tmp_path: Path) -> None:
    run = corral.clone(
        "rps_v0", lambda observation: 1, steps=512, out=tmp_path / "run", episodes=4, **SMALL
    )
    assert compare(run, lambda observation: 1, episodes=4).share == 1.0


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("teacher", "given", "error", "named"),
    [
        ("overflw", {}, UnknownNameError, ("'overflw'", "'overflow'")),
        ("overflow/tow", {}, UnknownNameError, ("'tow'", "'two'")),
        ("", {}, ValueError, ("corral clone ENV --from overflow", "teacher='overflow'")),
        (
            "overflow/two",
            {"env_kwargs": {"route": "equal"}},
            ValueError,
            ("route='two'", "route='equal'"),
        ),
        ({"node_0": "overflow"}, {}, ValueError, ("node_0", "node_1", "node_2")),
        ("node_0=overflow", {}, ValueError, ("node_0", "node_1")),
        ("overflow", {"own_play": 2.0}, ValueError, ("own_play",)),
        ("overflow", {"ent_coef": 0.1}, ValueError, ("ent_coef=0.1",)),
        ("overflow", {"episodes": 0}, ValueError, ("episodes",)),
    ],
)
def test_a_mistake_leaves_no_folder(
    teacher: Any,
    given: dict[str, Any],
    error: type[Exception],
    named: tuple[object, ...],
    tmp_path: Path,
) -> None:
    with refused(error, *named):
        corral.clone("dfaas_v0", teacher, steps=64, out=tmp_path / "run", **{**SMALL, **given})
    assert list(tmp_path.iterdir()) == []


def test_smoothing_needs_actions_that_are_amounts(tmp_path: Path) -> None:
    with refused(ValueError, "smoothing=1.0"):
        corral.clone("rps_v0", "beat-last", smoothing=1.0, steps=64, out=tmp_path / "a", **SMALL)


def test_a_player_out_of_reach_says_why() -> None:
    with refused(InfeasibleError, "perfect", 25, 12):
        find_teacher("perfect", make_rules("tictactoe_v0", size=(5, 5)))


def test_a_run_of_other_spaces_is_no_teacher(tmp_path: Path) -> None:
    run = corral.train("tictactoe_v0", steps=128, out=tmp_path / "a", **SMALL)
    with refused(RunError, "player_1", "(3, 3, 2)", "(4, 4, 2)", run.folder):
        find_teacher(run, make_rules("tictactoe_v0", size=(4, 4)))


def test_a_run_with_other_scales_is_no_teacher(tmp_path: Path) -> None:
    run = corral.train("dfaas_v0", steps=128, out=tmp_path / "a", **SMALL)
    with pytest.raises(RunError, match="route='equal'"):
        find_teacher(run, make_rules("dfaas_v0", route="two"))


def test_the_route_of_a_team_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = corral.clone(
        "dfaas_v0", "overflow/two", steps=64, out=tmp_path / "a", episodes=1, **SMALL
    )
    assert run.config.env_config.env_kwargs["route"] == "two"
    shown(capsys.readouterr().err, "overflow/two", "route=two")


def test_continuous_actions_are_refused() -> None:
    rules = make_rules("rps_v0")
    from gymnasium import spaces

    from corral.envs.core import changed

    other = changed(rules, action_space=lambda agent: spaces.Box(-1, 1, (2,)))
    with refused(UnsupportedSpaceError, "Box", "Discrete"):
        find_teacher("random", other)


# --- Defaults, and what goes on ------------------------------------------------------------------


@pytest.mark.slow  # learns
def test_defaults_suit_the_teacher_and_the_actions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short: dict[str, Any] = {"steps": 64, "num_envs": 4, "n_steps": 16, "episodes": 1}
    clone = partial(corral.clone, progress=False, **short)
    run = clone("dfaas_v0", "overflow/equal", out=tmp_path / "a")
    assert run.begun().settings.smoothing == 4.0  # requests are amounts
    assert run.config.settings["agent_id"] is False
    shown(capsys.readouterr().err, "overflow/equal", "agent_id=False")
    run = clone("arena_v0", "nearest/chase", out=tmp_path / "b")
    assert run.begun().settings.smoothing == 0.0
    assert run.config.settings["agent_id"] is True  # chasers and who flees are not alike
    run = clone("dfaas_v0", "overflow", agent_id=True, smoothing=0, out=tmp_path / "c")
    assert run.begun().settings.smoothing == 0.0
    assert run.config.settings["agent_id"] is True


def test_agreement_stands_where_it_was_measured(tmp_path: Path) -> None:
    run = corral.clone("tictactoe_v0", "perfect", steps=128 * 25, out=tmp_path / "a", **SMALL)
    column = run.progress["validation_agreement"]
    assert 10 <= column.notna().sum() <= 11
    assert run.best_by is not None
    assert run.best_by["value"] == pytest.approx(column.max())
    assert (run.folder / "agreement.json").exists()
    corral.resume(run.folder, steps=128 * 26, progress=False)
    assert not (run.folder / "agreement.json").exists()  # it was of other weights


def test_a_clone_goes_on_when_its_teacher_has(tmp_path: Path) -> None:
    teacher = corral.clone("rps_v0", "random", steps=256, out=tmp_path / "a", keep=2, **SMALL)
    run = corral.clone("rps_v0", str(teacher.folder), steps=256, out=tmp_path / "b", **SMALL)
    corral.resume(teacher.folder, steps=384, keep=2, progress=False)
    corral.resume(run.folder, steps=384, progress=False)
    corral.resume(teacher.folder, steps=1024, keep=1, progress=False)
    with refused(
        CheckpointError, f"{teacher.folder}@256", "corral clone ENV --from TEACHER --init RUN"
    ):
        corral.resume(run.folder, steps=512, progress=False)
