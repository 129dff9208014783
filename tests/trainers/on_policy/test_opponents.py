"""Reference players in seats of a training: they play, do not learn, and are resumed exactly."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

from gymnasium import spaces

import corral
from corral.envs import make_rules
from corral.envs import reference as players
from corral.envs.batch import Batch
from corral.envs.policy import Decision
from corral.envs.rps_v0.baselines import LastMove
from corral.errors import (
    CheckpointError,
    RunError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from corral.trainers.capabilities import Seats
from corral.trainers.driver import resume, train
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.opponents.playing import Opponents
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.checkpoint import Content
from corral.trainers.runs.run import load_run
from support.command import run as command
from support.command import within
from support.mappo_teams import ROLLOUT, SMALL
from support.runs import everything, kept, rows
from support.steady_rules import SteadyRules


def run_of(folder: Path, env: str = "rps_v0", updates: int = 3, **changes: Any) -> Any:
    given: dict[str, Any] = {"trainer": "mappo", **SMALL, **changes}
    return train(env, steps=updates * ROLLOUT, out=folder, **given)


# --- Playing -------------------------------------------------------------------------------------


def trainer_of(name: str, opponents: dict[str, str], kind: Any = MAPPO, **given: Any) -> Any:
    rules = make_rules(name, illegal="raise")
    learning = {a: "shared" for a in rules.agents if a not in opponents}
    return kind(
        rules,
        kind.Settings(**{**SMALL, **given}),
        seed=0,
        policies=learning,
        policies_to_train=["shared"],
        steps=10 * ROLLOUT,
        seats=Seats(opponents),
    )


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("kind", [MAPPO, IPPO])
def test_an_opponent_plays_what_it_says(kind: Any, seat: int) -> None:
    """beat-last beats the learner's last move in every round but an episode's first."""
    trainer = trainer_of("rps_v0", {f"player_{seat}": "beat-last"}, kind)
    trainer.begin()
    trainer.collect()
    rollout = trainer.rollout
    own, other = (
        buffer.action[:-1, ..., 0] for buffer in rollout.groups
    )  # learner, opponent: [T, B]
    begins = np.arange(16) % 10 == 0
    expected = np.where(begins[:, None], 0, (np.roll(own, 1, axis=0) + 1) % 3)
    np.testing.assert_array_equal(other, expected)
    ahead = (own - other) % 3
    paid = np.select([ahead == 1, ahead == 2], [1.0, -1.0], 0.0)
    np.testing.assert_array_equal(rollout.reward[:, :, 1 - seat], paid)


def test_an_opponent_that_remembers_begins_anew_with_each_episode() -> None:
    trainer = trainer_of("rps_v0", {"player_1": "always-same"}, num_envs=64)
    trainer.begin()
    trainer.collect()
    rollout = trainer.rollout
    moves = rollout.groups[1].action[:-1, ..., 0]  # [T, B]
    assert (moves[:10] == moves[0]).all()
    assert (moves[10:] == moves[10]).all()
    assert 0.15 < (moves[0] == moves[10]).mean() < 0.55  # drawn anew: a third


@pytest.mark.parametrize("seat", ["player_1", "player_2"])
def test_in_turns_an_opponent_is_asked_only_when_it_moves(seat: str) -> None:
    trainer = trainer_of("tictactoe_v0", {seat: "perfect"}, n_steps=32)
    losses = 0.0
    for update in itertools.islice(trainer.learn(), 3):
        for episode in update.episodes:
            assert episode.returns[seat] >= 0
            losses += episode.returns[seat]
    assert losses > 10  # a beginner loses to it


@pytest.mark.parametrize("critic_input", ["state", "observations", "observations+actions"])
@pytest.mark.parametrize("memory", [0, 4])
def test_critics_of_all_kinds_may_see_an_opponent(critic_input: str, memory: int) -> None:
    given: dict[str, Any] = {"critic_input": critic_input, "memory": memory}
    for name, seat, player in (
        ("rps_v0", "player_1", "always-same"),
        ("tictactoe_v0", "player_1", "random"),
    ):
        trainer = trainer_of(name, {seat: player}, **given)
        figures = [update.metrics for update in itertools.islice(trainer.learn(), 2)]
        assert np.isfinite([*figures[-1].values()]).all()


def test_a_critic_knows_what_the_opponent_does_now() -> None:
    """Shown the actions of always-same, it can tell the value of the round; without, it cannot."""
    shown = {}
    for critic_input in ("observations", "observations+actions"):
        trainer = trainer_of("rps_v0", {"player_1": "random"}, critic_input=critic_input)
        trainer.begin()
        trainer.collect()
        rollout = trainer.rollout
        parts = trainer.critic_input.parts(rollout, 0)
        shown[critic_input] = parts[0].shape[-1]
        if critic_input == "observations+actions":
            actions = parts[0][:-1, :, 0, 16:]  # after both observations of 8 each
            one_hot = np.eye(3)[rollout.groups[1].action[:-1, ..., 0]]
            np.testing.assert_array_equal(actions[..., -3:], one_hot)
            assert not actions[..., :-3].any()  # the own action is left out
            nexts = parts[0][-1, :, 0, -3:].sum(axis=-1)
            assert nexts.tolist() == [1.0] * 4  # and of the moment that is not played on
    assert shown["observations+actions"] == shown["observations"] + 6


def test_asking_for_a_moment_that_is_not_played_leaves_no_trace() -> None:
    rules = make_rules("rps_v0")
    opponents = Opponents(rules, {"player_1": "always-same"}, num_envs=3, seed=0)
    seen = Batch(rules, 3, 0).reset()["player_1"]
    wanted = np.array([True, False, True])
    opponents.sample_unplayed("player_1", seen, wanted)
    assert opponents.save()[1]["player_1"].tolist() == [-1, -1, -1]
    played = opponents.act("player_1", seen, wanted)
    memory = opponents.save()[1]["player_1"].tolist()
    assert memory == [played[0], -1, played[2]]
    assert played[1] == 0
    again = opponents.sample_unplayed("player_1", seen, wanted)
    np.testing.assert_array_equal(again[[0, 2]], played[[0, 2]])  # it knows its move by now
    rows = np.array([2])
    last = {key: value[rows] for key, value in seen.items()}
    assert opponents.sample_unplayed("player_1", last, np.array([True]), rows).tolist() == [
        played[2]
    ]


# --- Runs ----------------------------------------------------------------------------------------


def test_a_run_with_an_opponent(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", opponents={"player_1": "beat-last"})
    config = json.loads((run.folder / "config.json").read_text())
    assert config["opponents"] == {"player_1": "beat-last"}
    assert config["policies"] == {"player_0": "shared", "player_1": "beat-last"}
    assert config["policies_to_train"] == ["shared"]
    again = load_run(run.folder)
    assert again.config.opponents == {"player_1": "beat-last"}
    assert isinstance(again.policies["player_0"], NetworkPolicy)
    assert isinstance(again.policies["player_1"], LastMove)
    row = rows(run)[-1]
    own, other = float(row["return_player_0"]), float(row["return_player_1"])
    assert own == -other
    assert float(row["return_team"]) == 0.0
    assert (float(row["return_of_shared"]), float(row["return_of_beat-last"])) == (own, other)
    assert {name for name in kept(run).arrays if name.startswith("policy_")} == {"policy_shared"}


def test_the_best_checkpoint_is_that_of_the_learner() -> None:
    """The return of the team is 0 at every moment."""
    from corral.trainers.base import Episode, Update
    from corral.trainers.runs.log import Statistics

    statistics = Statistics({"a": "x", "b": "random"}, {"b": "random"})
    better = []
    for own in (-1.0, -1.0, 9.0, 5.0):
        episode = Episode({"a": own, "b": -own}, 1, {})
        statistics.row(Update(1, [episode] * 100, {}, {}), 1, 1.0)
        assert (statistics.return_learned, statistics.return_team) == (own, 0.0)
        better.append(statistics.improved())
    assert better == [True, True, True, False]  # of equal ones the latest


OPPONENTS = [
    ("rps_v0", {"player_1": "always-same"}, {}),  # remembers, and draws
    ("rps_v0", {"player_0": "random"}, {"memory": 4, "critic_input": "observations+actions"}),
    # Draws among best moves; the preset's bonus fades with the steps that are planned.
    ("tictactoe_v0", {"player_1": "perfect"}, {"ent_coef_end": None}),
    ("arena_v0", {"agent_2": "chase"}, {"env_kwargs": {"width": 3, "height": 3, "max_cycles": 9}}),
    (
        "arena_v0",
        {"agent_1": "nearest"},
        {"env_kwargs": {"width": 3, "height": 3, "max_cycles": 9}},
    ),
]


@pytest.mark.parametrize(("environment", "opponents", "given"), OPPONENTS, ids=str)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, environment: str, opponents: dict[str, str], given: dict[str, Any]
) -> None:
    given = {"env": environment, "opponents": opponents, "anneal": False, **given}
    whole = run_of(tmp_path / "whole", updates=4, checkpoint_every=ROLLOUT, **given)
    part = run_of(tmp_path / "part", updates=2, checkpoint_every=ROLLOUT, **given)
    resume(part.folder, steps=4 * ROLLOUT)
    assert everything(part) == everything(whole)
    assert rows(part) == rows(whole)
    other = run_of(tmp_path / "other", updates=4, checkpoint_every=ROLLOUT, seed=1, **given)
    assert everything(other) != everything(whole)


def test_without_its_memory_a_resumed_opponent_sample_unplayed_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"opponents": {"player_1": "always-same"}, "anneal": False}
    whole = run_of(tmp_path / "whole", updates=4, checkpoint_every=ROLLOUT, **given)
    part = run_of(tmp_path / "part", updates=2, checkpoint_every=ROLLOUT, **given)
    monkeypatch.setattr(Opponents, "load", lambda self, *saved: self.restart())
    resume(part.folder, steps=4 * ROLLOUT)
    assert everything(part) != everything(whole)


def test_damaged_checkpoints_are_refused() -> None:
    first = trainer_of("rps_v0", {"player_1": "always-same"})
    next(first.learn())
    saved = first.save()
    for change in ("missing", "another", "generator"):
        arrays = {file: dict(found) for file, found in saved.arrays.items()}
        documents = {"trainer": dict(saved.documents["trainer"])}
        if change == "missing":
            del arrays["opponents"]
        elif change == "another":
            arrays["opponents"] = {"player_1": np.zeros(5, dtype=np.int64)}
        else:
            documents["trainer"]["opponents"] = {"player_1": {"state": 1}}
        with pytest.raises(CheckpointError):
            trainer_of("rps_v0", {"player_1": "always-same"}).load(Content(documents, arrays))
    trainer_of("rps_v0", {"player_1": "always-same"}).load(saved)
    # Where episodes begin anew, so do those who play them.
    documents = {"trainer": dict(saved.documents["trainer"])}
    del documents["trainer"]["environment"]
    fresh = trainer_of("rps_v0", {"player_1": "always-same"})
    fresh.load(Content(documents, saved.arrays))
    assert fresh.opponents.save()[1]["player_1"].tolist() == [-1] * 4


class Pair(NamedTuple):
    counts: np.ndarray
    nothing: None


class Counting:
    """Remembers, in a tree of arrays, how often each copy was asked."""

    def initial_state(self, num_envs: int) -> Any:
        zeros = np.zeros(num_envs, dtype=np.int64)
        return {"a": [zeros], "b": Pair(zeros.copy(), None)}

    def act(self, observation: Any, state: Any = None, *unused: Any, **also: Any) -> Decision:
        counts = state["b"].counts + 1
        mask = observation["action_mask"]
        return Decision(mask.argmax(axis=1), {"a": [counts * 2], "b": Pair(counts, None)})


def test_any_memory_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        players, "_makers", lambda rules, agent: {"counting": lambda rules: Counting()}
    )
    rules = make_rules("rps_v0")
    one = Opponents(rules, {"player_0": "counting"}, num_envs=3, seed=0)
    seen = Batch(rules, 3, 0).reset()["player_0"]
    one.act("player_0", seen, np.array([True, False, True]))
    one.act("player_0", seen, np.array([True, False, False]))
    generators, memories = one.save()
    assert {name: values.tolist() for name, values in memories.items()} == {
        "player_0.a.0": [4, 0, 2],
        "player_0.b.0": [2, 0, 1],
    }
    other = Opponents(rules, {"player_0": "counting"}, num_envs=3, seed=5)
    other.load(generators, memories)
    assert str(other.save()) == str(one.save())
    one.act("player_0", seen, np.ones(3, dtype=bool))
    assert memories["player_0.b.0"].tolist() == [2, 0, 1]  # a copy


# --- Learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seat", ["player_0", "player_1"])
def test_who_beats_the_last_move_is_learned_to_be_beaten(tmp_path: Path, seat: str) -> None:
    """In every one of ten rounds, by the greedy policy; random play wins a third."""
    from corral.trainers.evaluation.zero_sum import evaluate_seat

    other = {"player_0": "player_1", "player_1": "player_0"}[seat]
    run = train(
        "rps_v0",
        trainer="mappo",
        steps=8_192,
        opponents={other: "beat-last"},
        out=tmp_path / "run",
        net_arch=(32,),
        n_minibatches=4,
        learning_rate=5e-3,
    )
    rules = make_rules("rps_v0", illegal="raise")
    score = evaluate_seat(rules, seat, run.policies[seat], run.policies[other])
    assert score.kpis["won"] >= 9.5
    assert score.illegal_actions == 0


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        (
            {"opponents": {"player_2": "random"}},
            ValueError,
            ("'player_2'", "['player_0', 'player_1']"),
        ),
        (
            {"opponents": {"player_0": "random", "player_1": "random"}},
            ValueError,
            ("opponents={'player_0': 'random', 'player_1': 'random'}",),
        ),
        ({"opponents": {"player_1": "beat-lst"}}, UnknownNameError, ("'beat-lst'", "'beat-last'")),
        (
            {"opponents": {"player_1": "random"}, "trainer": "sb3_ppo"},
            ValueError,
            ("sb3_ppo", "opponents={'player_1': 'random'}", "mappo"),
        ),
        (
            {"opponents": {"player_1": "random"}, "policies": {"player_0": "random"}},
            ValueError,
            ("random",),
        ),
        (
            {"opponents": {"player_1": "random"}, "policies": {"player_1": "a", "player_0": "b"}},
            ValueError,
            ("['player_1', 'player_0']", "['player_0']"),
        ),
        (
            {"opponents": {"player_1": "random"}, "policies_to_train": ["random"]},
            ValueError,
            ("policies_to_train=['random']", "['shared']"),
        ),
    ],
    ids=str,
)
def test_mistakes_are_named_before_a_folder_is_made(
    tmp_path: Path, given: dict[str, Any], error: Any, named: tuple[object, ...]
) -> None:
    settings = {"trainer": "mappo", **given}
    if settings["trainer"] == "sb3_ppo":
        pytest.importorskip("stable_baselines3")
    with refused(error, *named):
        train("rps_v0", steps=64, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


class Steered(SteadyRules):
    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)


def test_reference_players_play_discrete_actions_only() -> None:
    with refused(UnsupportedSpaceError, "agent_0", "Box", "Discrete"):
        Opponents(Steered(), {"agent_0": "random"}, num_envs=2, seed=0)


def test_what_is_no_mapping_of_opponents_is_damage(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", updates=1)
    path = run.folder / "config.json"
    values = json.loads(path.read_text())
    assert values["opponents"] == {}
    assert load_run(run.folder).config.opponents == {}
    assert set(load_run(run.folder).policies) == {"player_0", "player_1"}
    for wrong in ([], {"player_1": 3}):
        path.write_text(json.dumps({**values, "opponents": wrong}))
        with pytest.raises(RunError, match="damaged"):
            load_run(run.folder)


# --- The commands --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_trains_against_an_opponent_and_judges_the_learner(tmp_path: Path) -> None:
    small = ("--num-envs", "4", "--n-steps", "16", "--net-arch", "16", "--steps", "640")
    printed = command(
        *("train", "rps_v0", "--trainer", "mappo", "--opponent", "player_1=beat-last"),
        *(*small, "--out", tmp_path / "run"),
    )
    shown(printed, "player_0")
    assert "team" not in printed
    run = corral.load_run(tmp_path / "run")
    assert run.config.opponents == {"player_1": "beat-last"}
    printed = within("evaluate", run.folder, "--episodes", "7")
    lines = [line for line in printed.splitlines() if not line.startswith("Results:")]
    assert max(map(len, lines)) <= 80
    shown(printed, "player_0", "won/drawn/lost", 7)
    assert "player_1" not in printed  # it did not learn
    for name in ("random", "always-same", "copy-last", "beat-last"):
        assert name in printed
    kept_rows = json.loads((run.folder / "results.json").read_text())["rows"]
    assert len(kept_rows) == 6 * 4
    assert {row["seat"] for row in kept_rows} == {"player_0"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--opponent", "player_1"), "--opponent player_1: give agent=player"),
        (("--opponent", "player_1=random,player_1=beat-last"), "player_1=beat-last"),
        (("--opponent", "player_1=best"), "no reference player of rps_v0's player_1 named 'best'"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path: Path, words: Any, message: str) -> None:
    printed = within(
        *("train", "rps_v0", "--trainer", "mappo", *words, "--out", tmp_path / "run"), code=2
    )
    assert message in " ".join(printed.split())
    assert not (tmp_path / "run").exists()
