"""Policies: ``predict`` for all of them, and what ``as_policy`` takes for one."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from corral.adapters.seats import RandomActions
from corral.envs import ENVIRONMENTS, make_rules
from corral.envs.arena_v0.baselines import Nearest, Still
from corral.envs.batch import Batch, make_batch
from corral.envs.core import generator
from corral.envs.masks import MASK
from corral.envs.policy import Decision, PolicyBase, RandomPolicy, as_policy, take_tree
from corral.envs.reference import reference_players
from corral.envs.rps_v0.baselines import AlwaysSame
from corral.errors import ActionError
from corral.trainers.evaluation.players import as_player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.zero_sum import evaluate_seat
from support.messages import refused
from support.seat_games import first_legal


def observed(name: str, agent: int = 0) -> Any:
    return make_batch(name, 3, seed=0).reset()[make_rules(name).agents[agent]]


# --- predict -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_reference_player_predicts_one_and_many(name: str) -> None:
    rules = make_rules(name)
    batch = Batch(rules, 3, seed=0)
    observations = batch.reset()
    checked = 0
    for i, agent in enumerate(rules.agents):
        if not batch.acting[:, i].all():
            continue
        obs = observations[agent]
        for player in reference_players(rules, agent)[0].values():
            assert isinstance(player, PolicyBase)
            actions, state = player.predict(obs, deterministic=True)
            assert actions.shape == (3,)
            assert np.asarray(obs[MASK])[np.arange(3), actions].all()
            action, _ = player.predict(take_tree(obs, 0), deterministic=True)
            assert np.shape(action) == ()
            assert obs[MASK][0, action]
            player.predict(obs, state, np.array([True, False, True]), deterministic=True)
            checked += 1
    assert checked


def test_predict_draws_from_the_generator_it_is_given() -> None:
    obs, policy = observed("dfaas_v0"), RandomPolicy()
    draws = []
    for seed in (5, 5, 6):
        policy.rng = np.random.default_rng(seed)
        draws.append([policy.predict(obs)[0].tolist() for _ in range(4)])
    assert draws[0] == draws[1] != draws[2]
    assert RandomPolicy().rng is None  # it belongs to one policy, not to all


def test_predict_begins_anew_where_an_episode_starts() -> None:
    """The move of ``always-same`` is drawn once an episode, and is its state."""
    obs, policy = observed("rps_v0"), AlwaysSame()
    policy.rng = np.random.default_rng(0)
    first, state = policy.predict(obs)
    again, state = policy.predict(obs, state, np.zeros(3, dtype=bool))
    assert again.tolist() == first.tolist()
    changed = set()
    for _ in range(20):
        moves, state = policy.predict(obs, state, np.array([False, True, False]))
        assert moves[[0, 2]].tolist() == first[[0, 2]].tolist()
        changed.add(int(moves[1]))
    assert changed == {0, 1, 2}


def test_predict_keeps_the_state_of_a_single_observation() -> None:
    """The nearest explorer remembers where it has been: [1, ...] arrays of one environment."""
    rules = make_rules("arena_v0")
    policy, obs = Nearest(rules), observed("arena_v0")
    one = take_tree(obs, 0)
    action, state = policy.predict(one)
    whole = policy.act(take_tree(one, None))
    assert action == whole.action[0]
    assert state.visited.shape == (1, rules.fields)
    _, later = policy.predict(one, state, episode_start=False)
    assert later.visited.sum() >= state.visited.sum()
    _, anew = policy.predict(one, later, episode_start=True)
    assert anew.visited.tolist() == state.visited.tolist()


def test_random_actions_predict_too() -> None:
    from gymnasium import spaces

    policy = RandomActions(spaces.Box(-1, 1, (2,), np.float32))
    actions, state = policy.predict(np.zeros((5, 4), dtype=np.float32))
    assert actions.shape == (5, 2)
    assert state is None


# --- as_policy -----------------------------------------------------------------------------------


class Plain:
    """Returns actions alone, and has no ``initial_state``."""

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Any:
        return observation[MASK].argmax(axis=1)


class Model:
    """Looks like a model of Stable-Baselines3 without being one."""

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> Any:
        return observation[MASK].argmax(axis=1), state


class Decides:
    def initial_state(self, num_envs: int) -> Any:
        return np.zeros(num_envs, dtype=np.int64)

    def act(self, observation: Any, state: Any, rng: Any, deterministic: bool = False) -> Any:
        return Decision(observation[MASK].argmax(axis=1), state + 1)


@pytest.mark.parametrize("player", [first_legal, Plain(), Model(), Decides()])
def test_whatever_chooses_the_same_scores_the_same(player: Any) -> None:
    rules = make_rules("tictactoe_v0")
    expected = evaluate_team(rules, as_policy(first_legal), episodes=20)
    assert evaluate_team(rules, player, episodes=20) == expected
    assert evaluate_team(rules, dict.fromkeys(rules.agents, player), episodes=20) == expected
    seats = [
        evaluate_seat(rules, "player_1", RandomPolicy(), opponent, episodes=20)
        for opponent in (first_legal, player)
    ]
    assert seats[0] == seats[1]


def test_a_policy_is_itself() -> None:
    policy = Still(make_rules("arena_v0"))
    assert as_policy(policy) is policy
    wrapped = as_policy(first_legal)
    assert as_policy(wrapped) is wrapped


def test_a_state_is_carried_and_a_missing_one_is_none() -> None:
    decides, obs = as_policy(Decides()), observed("tictactoe_v0")
    state = decides.initial_state(3)
    for _ in range(2):
        state = decides.act(obs, state, generator(0, "policy")).state
    assert state.tolist() == [2, 2, 2]
    assert as_policy(Plain()).initial_state(3) is None


@pytest.mark.parametrize(
    ("player", "values"),
    [
        (5, ("player_1: 5", "act", "predict")),
        ("greedy", ("player_1: 'greedy'", "act", "predict")),
        (RandomPolicy, ("player_1: RandomPolicy", "class", "instance")),
    ],
)
def test_what_is_no_policy_is_named(player: Any, values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        as_player(player, ["player_1", "player_2"])


@pytest.mark.parametrize(
    ("player", "values"),
    [
        (lambda obs: None, ("player_1", "object (20,)", "(20,)")),
        (lambda obs: 0.5, ("player_1", "float64 (20,)")),
        (lambda obs: [0, 1], ("player_1", "int64 (20, 2)", "shape (20,)")),
        (lambda obs: 9, ("player_1", "action 9", "0..8")),
        (
            lambda obs: obs[MASK][: 1 + obs["observation"].any()],
            ("player_1", "int8 (20, 1)", "shape (20,)"),
        ),
    ],
)
def test_malformed_actions_are_named(player: Any, values: tuple[Any, ...]) -> None:
    with refused(ActionError, *values):
        evaluate_team(make_rules("tictactoe_v0"), player, episodes=20)


def test_illegal_actions_of_a_function_are_counted_or_refused() -> None:
    rules = make_rules("tictactoe_v0")
    with pytest.warns(UserWarning, match="illegal"):
        assert evaluate_team(rules, lambda obs: 0, episodes=4).illegal_actions > 0
    with refused(ActionError, "action 0", "1..8"):
        evaluate_team(make_rules("tictactoe_v0", illegal="raise"), lambda obs: 0, episodes=4)


class Sees:
    """A model that wants other entries than there are."""

    def __init__(self, *keys: str) -> None:
        from gymnasium import spaces

        self.observation_space = spaces.Dict({key: spaces.Discrete(2) for key in keys})

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> Any:
        assert set(observation) == set(self.observation_space.spaces)
        return np.zeros(3, dtype=np.int64), None


def test_a_model_is_shown_what_its_space_names() -> None:
    obs = observed("arena_v0")
    agents = make_rules("arena_v0").agents
    assert as_policy(Sees("observation"), agents[0], agents).act(obs).action.tolist() == [0] * 3
    as_policy(Sees("agent", "action_mask"), agents[0], agents).act(obs)
    with refused(ValueError, "agent_1", "['image']", "['observation', 'action_mask', 'agent']"):
        as_policy(Sees("image"), agents[0], agents).act(obs)


# --- Elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rps_v0", "arena_v0", "tictactoe_v0"])
def test_reference_players_are_copied_and_pickled(name: str) -> None:
    rules = make_rules(name)
    agent, obs = rules.agents[0], observed(name)
    for player in reference_players(rules, agent)[0].values():
        expected = player.act(obs, None, generator(0, "policy")).action
        for other in (copy.deepcopy(player), pickle.loads(pickle.dumps(player))):
            assert other.act(obs, None, generator(0, "policy")).action.tolist() == expected.tolist()
