"""Opponents that are runs, or mixes: who plays an episode, exact resume."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.envs import make_rules
from corral.envs.batch import Batch
from corral.envs.core import generator
from corral.envs.policy import put_tree
from corral.envs.reference import reference_player
from corral.trainers.driver import resume
from corral.trainers.opponents.draws import EpisodeDraws
from corral.trainers.opponents.playing import Opponents
from corral.trainers.opponents.seats import FIRST_ROW, MixPolicy
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.run import load_run
from support.mappo_teams import ROLLOUT
from support.mix_runs import other_run, run_of
from support.runs import everything, rows

MIX = "beat-last:2,always-same:1,copy-last:1"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_run(tmp_path_factory.mktemp("other") / "other")


# --- Who plays an episode ------------------------------------------------------------------------


def played_by(text: str, steps: int, num_envs: int = 8, seed: int = 3) -> tuple[Any, Any]:
    """Play a mix of rps_v0's player_1; return who played [T, B], and how it is drawn [E, B]."""
    rules = make_rules("rps_v0")
    opponents = Opponents(rules, {"player_1": text}, num_envs=num_envs, seed=seed)
    batch = Batch(rules, num_envs, seed)
    seen, who, rng = batch.reset(), [], np.random.default_rng(0)
    policy: Any = opponents.policies["player_1"]
    for _ in range(steps):
        moves = opponents.act("player_1", seen["player_1"], np.ones(num_envs, dtype=bool))
        who.append(opponents.states("player_1", np.arange(num_envs))["who"])
        step = batch.step(np.stack([rng.integers(3, size=num_envs), moves], axis=1))
        if step.finished is not None:
            opponents.reset("player_1", step.finished.rows)
        seen = step.observations
    numbers = EpisodeDraws(seed, num_envs, 2, FIRST_ROW)
    envs, episodes = np.arange(num_envs), range(steps // 10)  # ten rounds each
    drawn = [policy.drawn(numbers(envs, np.full(num_envs, e))[:, 1]) for e in episodes]
    return np.array(who), np.array(drawn)


def test_each_episode_of_a_row_is_played_by_whom_its_number_draws() -> None:
    who, drawn = played_by(MIX, steps=60)
    np.testing.assert_array_equal(who, np.repeat(drawn, 10, axis=0))
    assert set(drawn.ravel()) == {0, 1, 2}
    assert (drawn[0] != drawn[1]).any()


def test_players_are_drawn_by_weight() -> None:
    rules = make_rules("rps_v0")
    mix: Any = Opponents(rules, {"player_1": MIX}, num_envs=1, seed=0).policies["player_1"]
    counts = Counter(mix.drawn(np.random.default_rng(0).random(20_000)).tolist())
    shares = [counts[i] / 20_000 for i in range(3)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.015)  # 4 standard errors
    assert mix.drawn(np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])).tolist() == [0, 1, 2]


def test_players_of_a_mix_play_as_they_do_alone_where_it_is_theirs() -> None:
    """beat-last does not draw: in its episodes it answers the other's last move."""
    rules = make_rules("rps_v0")
    alone = reference_player("beat-last", rules, "player_1")
    opponents = Opponents(rules, {"player_1": MIX}, num_envs=16, seed=0)
    batch, rng = Batch(rules, 16, 0), np.random.default_rng(1)
    seen, same = batch.reset(), 0
    for _ in range(40):
        obs = seen["player_1"]
        wanted = rng.random(16) < 0.7
        memory = opponents.states("player_1", np.arange(16))
        moves = opponents.act("player_1", obs, wanted)
        after = opponents.states("player_1", np.arange(16))
        theirs = wanted & (after["who"] == 0)
        np.testing.assert_array_equal(moves[theirs], alone.act(obs).action[theirs])
        same += int(theirs.sum())
        # always-same remembers in its own rows alone.
        changed = after["states"][1] != memory["states"][1]
        assert not changed[~wanted | (after["who"] != 1)].any()
        step = batch.step(np.stack([rng.integers(3, size=16), moves], axis=1))
        if step.finished is not None:
            opponents.reset("player_1", step.finished.rows)
            assert (opponents.states("player_1", step.finished.rows)["states"][1] == -1).all()
        seen = step.observations
    assert same > 50


def test_a_mix_of_one_is_that_player_alone() -> None:
    """Named with a weight or without, the same numbers: no mix is made."""
    rules = make_rules("rps_v0")
    one = Opponents(rules, {"player_1": "always-same:3"}, num_envs=3, seed=0)
    other = Opponents(rules, {"player_1": "always-same"}, num_envs=3, seed=0)
    seen, wanted = Batch(rules, 3, 0).reset()["player_1"], np.ones(3, dtype=bool)
    moves = [each.act("player_1", seen, wanted).tolist() for each in (one, other)]
    assert moves[0] == moves[1]
    assert str(one.save()) == str(other.save())
    assert list(one.save()[1]) == ["player_1"]


def test_a_mix_can_be_asked_like_any_policy() -> None:
    rules = make_rules("rps_v0")
    names = ("beat-last", "always-same")
    players = {name: reference_player(name, rules, "player_1") for name in names}
    mix = MixPolicy(players, {"beat-last": 0.5, "always-same": 0.5})
    seen = Batch(rules, 64, 0).reset()["player_1"]
    state = mix.initial_state(64)
    assert (state["who"] == -1).all()
    with refused(ValueError, "rng="):
        mix.act(seen, state)
    decision = mix.act(seen, state, generator(0, "policy", 0))
    assert set(decision.state["who"]) == {0, 1}
    again = mix.act(seen, decision.state, generator(1, "policy", 0))
    np.testing.assert_array_equal(again.state["who"], decision.state["who"])
    fresh = put_tree(decision.state, np.array([3]), mix.initial_state(1))
    assert fresh["who"][3] == -1
    one = {key: value[0] for key, value in seen.items()}
    single = mix.act(one, None, generator(0, "policy", 0))
    assert np.shape(single.action) == ()
    later = mix.act(one, single.state, generator(2, "policy", 0))
    assert later.state["who"].tolist() == single.state["who"].tolist()


# --- Runs ----------------------------------------------------------------------------------------


def test_a_run_against_a_run_keeps_which_checkpoint_it_was(tmp_path: Path, other: Path) -> None:
    run = run_of(tmp_path / "run", opponents={"player_1": {other: 2, "beat-last": 1}})
    config = json.loads((run.folder / "config.json").read_text())
    assert config["opponents"] == {"player_1": f"{other}@256:2,beat-last:1"}
    assert config["policies"] == {"player_0": "shared", "player_1": "opponent_player_1"}
    (pin,) = config["opponent_runs"].values()
    assert pin["checkpoint"] == "step_000000000256"
    assert len(pin["sha256"]) == 64
    mix: Any = load_run(run.folder).policies["player_1"]
    assert list(mix.players) == [f"{other}@256", "beat-last"]
    assert isinstance(mix.players[f"{other}@256"].policy, NetworkPolicy)
    assert "return_of_opponent_player_1" in rows(run)[-1]
    # A run against reference players alone has no such key.
    plain = run_of(tmp_path / "plain", updates=1, opponents={"player_1": "beat-last"})
    assert "opponent_runs" not in json.loads((plain.folder / "config.json").read_text())


def test_the_policy_of_a_run_plays_as_it_does_itself(other: Path) -> None:
    rules = make_rules("rps_v0")
    opponents = Opponents(rules, {"player_1": f"{other}@128"}, num_envs=5, seed=2)
    policy = load_run(f"{other}@128").policies["player_1"]
    rng, state = generator(2, "policy", 2), policy.initial_state(5)
    batch = Batch(rules, 5, 0)
    seen = batch.reset()
    for _ in range(6):
        moves = opponents.act("player_1", seen["player_1"], np.ones(5, dtype=bool))
        decision = policy.act(seen["player_1"], state, rng)
        state = decision.state
        np.testing.assert_array_equal(moves, decision.action)
        seen = batch.step(np.stack([moves, moves], axis=1)).observations


def test_a_run_is_loaded_once_for_all_seats(other: Path) -> None:
    rules = make_rules("rps_v0")
    both = {"player_0": f"{other}@64:1,random:1", "player_1": f"{other}@64"}
    found = Opponents(rules, both, num_envs=2, seed=0)
    networks = []
    for agent, policy in found.policies.items():
        assert isinstance(policy, MixPolicy), agent
        (player,) = (p for name, p in policy.players.items() if "@" in name)
        networks.append(player.policy.network)  # type: ignore[attr-defined]
    assert networks[0] is networks[1]  # one policy was shared by both


def cases(other: Path) -> dict[str, dict[str, Any]]:
    return {
        "mix": {"opponents": {"player_1": MIX}},
        "run": {"opponents": {"player_0": f"{other}@64"}},
        "mix with runs": {
            "opponents": {"player_1": f"{other}@64:1,{other}@best:1,always-same:1"},
            "memory": 4,
            "critic_input": "observations+actions",
        },
        "turns": {
            "env": "tictactoe_v0",
            "opponents": {"player_1": "perfect:1,random:2"},
            "ent_coef_end": None,
        },
    }


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("mix", "run")),
        "mix with runs",
        "turns",
    ],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, other: Path, case: str
) -> None:
    given = {"anneal": False, "checkpoint_every": ROLLOUT, "num_envs": 4, **cases(other)[case]}
    whole = run_of(tmp_path / "whole", updates=4, **given)
    part = run_of(tmp_path / "part", updates=1, **given)
    for updates in (2, 4):
        resume(part.folder, steps=updates * ROLLOUT)
    assert everything(part) == everything(whole)
    assert rows(part) == rows(whole)
    seed = run_of(tmp_path / "seed", updates=4, seed=1, **given)
    assert everything(seed) != everything(whole)


@pytest.mark.parametrize("what", ["episodes", "who", "states"])
def test_without_any_part_of_what_is_saved_it_goes_on_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each part counts: episode numbers, who plays, and the players' states."""
    mix = {"player_1": "beat-last:1,always-same:3"}
    given = {"anneal": False, "checkpoint_every": ROLLOUT, "opponents": mix}
    whole = run_of(tmp_path / "whole", updates=4, **given)
    part = run_of(tmp_path / "part", updates=2, **given)
    load = Opponents.load

    def forgetful(self: Opponents, generators: Any, states: Any) -> None:
        wrong = -1 if what == "states" else 0
        changed = {k: np.full_like(v, wrong) if what in k else v for k, v in states.items()}
        assert any((changed[key] != states[key]).any() for key in states)
        load(self, generators, changed)

    monkeypatch.setattr(Opponents, "load", forgetful)
    resume(part.folder, steps=4 * ROLLOUT)
    assert everything(part) != everything(whole)


def test_where_episodes_begin_anew_their_numbers_go_on() -> None:
    """Else the same players would be drawn again."""
    rules = make_rules("rps_v0")
    opponents = Opponents(rules, {"player_1": MIX}, num_envs=64, seed=0)
    opponents.begin()
    first = opponents.states("player_1", np.arange(64))["who"]
    opponents.restart(first_episode=640)
    again = opponents.states("player_1", np.arange(64))["who"]
    assert opponents.save()[1]["player_1.episodes"].tolist() == [640] * 64
    assert (first != again).any()
