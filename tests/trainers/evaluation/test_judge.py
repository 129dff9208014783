"""Evaluation of teams: figures worked out by hand, no preference for short episodes, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from corral.envs.core import generator
from corral.envs.policy import Decision, RandomPolicy, put_tree, take_tree
from corral.envs.shells import ParallelShell
from corral.errors import ActionError, IllegalActionError, IllegalActionWarning
from corral.trainers.evaluation.episodes import FEWEST_EPISODES
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_players, evaluate_team
from support.messages import refused
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules


class Always:
    """Plays one action, and counts the rows for which it was asked; refuses rows without a move."""

    def __init__(self, action: int = 0) -> None:
        self.action = action
        self.asked = 0

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        mask = observation["action_mask"]
        assert mask.any(axis=1).all(), "asked for an agent that does not act"
        self.asked += len(mask)
        return Decision(np.full(len(mask), self.action))


class Drawn(Always):
    """A random legal action, or the first legal one when it plays greedily."""

    def act(self, observation: Any, state: Any, rng: Any, deterministic: bool = False) -> Decision:  # type: ignore[override]
        mask = observation["action_mask"]
        return (
            Decision(mask.argmax(axis=1))
            if deterministic
            else RandomPolicy().act(observation, rng=rng)
        )


# --- By hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [1, 5, 64, 100])
def test_steady_pay(episodes: int) -> None:
    policy = Always()
    score = evaluate_team(SteadyRules(), policy, episodes=episodes, label="steady")
    assert (score.policy, score.mode, score.episodes) == ("steady", "greedy", episodes)
    assert score.returns == {"agent_0": 4.0, "agent_1": 4.0}
    assert score.return_team == 8.0
    assert (score.low, score.high) == ((None, None) if episodes < FEWEST_EPISODES else (8.0, 8.0))
    assert score.mean_length == 4.0
    assert score.kpis == {"half": 2 * (0.5 + 1.0 + 1.5 + 2.0)}
    # Nobody is asked for the copies that have played their share.
    assert policy.asked == episodes * 4 * 2


def test_a_game_in_turns() -> None:
    """Six stones, taken one by one: agent_1 takes the last. A gift of 0.5 to whoever waits."""
    team = {"agent_0": Always(), "agent_1": Always()}
    score = evaluate_team(PileRules(stones=(6, 7), gift=0.5), team, episodes=10, num_envs=4)
    assert score.returns == {"agent_0": 0.5 + 0.5 + 0.5 - 1.0, "agent_1": 1.5 + 1.0}
    assert score.return_team == 3.0
    assert score.mean_length == 6.0
    assert score.illegal_actions == 0
    assert score.kpis == {"moves": 1.0 + 2 + 3 + 4 + 5 + 6, "illegal_actions": 0.0}
    assert team["agent_0"].asked == team["agent_1"].asked == 10 * 3  # in its own turns only


@pytest.mark.parametrize("tell", ["always", "once"])
def test_agents_that_die(tell: Any) -> None:
    team = {f"agent_{i}": Drawn() for i in range(3)}
    rules = MortalRules(lives=(2, 4, 1), tell=tell)
    score = evaluate_team(rules, team, episodes=7, num_envs=3)
    assert score.returns == {"agent_0": 2.0, "agent_1": 40.0, "agent_2": 100.0}
    assert score.return_team == 142.0
    assert score.mean_length == 4.0
    assert score.kpis["t"] == 3 * (1.0 + 2 + 3 + 4)


def test_illegal_actions_are_counted() -> None:
    """Seven stones, three by three: 7, 4, 1, and the third move takes more than there is."""
    with pytest.warns(IllegalActionWarning):
        score = evaluate_team(PileRules(stones=(7, 8)), Always(2), episodes=9, num_envs=2)
    assert score.illegal_actions == 9
    assert score.kpis["illegal_actions"] == 1.0
    with refused(IllegalActionError, "agent_0", 2):
        evaluate_team(PileRules(stones=(7, 8), illegal="raise"), Always(2))


# --- Which episodes ------------------------------------------------------------------------------


def in_turn(rules: MortalRules, seed: int, quotas: list[int]) -> tuple[list[float], list[int]]:
    """Returns and lengths of episodes played one after the other, copy by copy."""
    returns, lengths = [], []
    for row, quota in enumerate(quotas):
        env = ParallelShell(rules)
        env.reset(seed=0)
        env.np_random = generator(seed, "env", row)
        for _ in range(quota):
            observations, _ = env.reset()
            total, steps = 0.0, 0
            while env.agents:
                actions = {a: int(observations[a]["action_mask"].argmax()) for a in env.agents}
                observations, rewards, *_ = env.step(actions)
                total += sum(rewards.values())
                steps += 1
            returns.append(total)
            lengths.append(steps)
    return returns, lengths


def test_short_episodes_are_not_preferred() -> None:
    """Each copy plays its share, as one after the other would: not what happens to end first."""
    score = evaluate_team(MortalRules(), Drawn(), episodes=10, num_envs=4, seed=5)
    returns, lengths = in_turn(MortalRules(), 5, [3, 3, 2, 2])
    assert score.return_team == pytest.approx(np.mean(returns))
    assert score.mean_length == pytest.approx(np.mean(lengths))
    assert len(set(lengths)) > 2


def test_the_mean_length_is_the_true_one() -> None:
    """The longest of three lives of 1 .. 6 steps lasts 4.96 on average; the first ends are less."""
    longest = [max(a, b, c) for a in range(1, 7) for b in range(1, 7) for c in range(1, 7)]
    score = evaluate_team(MortalRules(), Drawn(), episodes=1000, seed=1)
    error = np.std(longest) / np.sqrt(1000)
    assert score.mean_length == pytest.approx(np.mean(longest), abs=3 * error)


def test_everybody_meets_the_same_episodes() -> None:
    players: dict[str, Any] = {
        "first": Drawn(),
        "drawn": Player({f"agent_{i}": Drawn() for i in range(3)}, deterministic=False),
    }
    scores = evaluate_players(MortalRules(), players, episodes=20, seed=3)
    assert [(score.policy, score.mode) for score in scores] == [
        ("first", "greedy"),
        ("drawn", "sampled"),
        ("random", ""),
    ]
    assert len({score.return_team for score in scores}) == 1  # the pay hangs on the lives alone
    other = evaluate_team(MortalRules(), Drawn(), episodes=20, seed=4)
    assert other.return_team != scores[0].return_team


def test_random_play_of_ones_own_is_the_last_row_too() -> None:
    players = {"random": Drawn(), "mine": Drawn()}
    scores = evaluate_players(MortalRules(), players, episodes=2)
    assert [(score.policy, score.mode) for score in scores] == [
        ("mine", "greedy"),
        ("random", "greedy"),
    ]


@pytest.mark.parametrize("num_envs", [1, 3, None])
def test_the_agents_returns_add_up_to_the_teams(num_envs: int | None) -> None:
    for rules in (MortalRules(), PileRules(gift=0.25, last_move=2), MortalRules(max_cycles=3)):
        score = evaluate_team(rules, RandomPolicy(), episodes=11, num_envs=num_envs, seed=2)
        assert sum(score.returns.values()) == pytest.approx(score.return_team)
        assert score.episodes == 11
        assert score.illegal_actions == 0
        assert score.low is not None
        assert score.low <= score.return_team <= score.high  # type: ignore[operator]


def test_sampled_play_repeats_with_its_seed() -> None:
    player = Player({a: Drawn() for a in PileRules.agents}, deterministic=False)

    def play(seed: int) -> Any:
        return evaluate_team(PileRules(stones=(11, 12)), player, episodes=20, seed=seed)

    assert play(1) == play(1)
    assert play(1).mean_length != play(2).mean_length  # the stones are the same, the play is not
    assert play(1).mode == "sampled"


# --- Memory --------------------------------------------------------------------------------------


class Counts:
    """Remembers how often it acted in this episode, in a tree of arrays."""

    def initial_state(self, num_envs: int) -> Any:
        return {"n": np.zeros(num_envs, int), "pair": (np.zeros((num_envs, 2)), None)}

    def act(self, observation: Any, state: Any, *unused: Any, **also_unused: Any) -> Decision:
        self.check(observation["observation"], state)
        state = {"n": state["n"] + 1, "pair": (state["pair"][0] + 1.0, None)}
        return Decision(observation["action_mask"].argmax(axis=1), state)

    def check(self, seen: Any, state: Any) -> None:
        """A living agent of MortalRules has acted t times."""
        np.testing.assert_array_equal(state["n"], seen[:, 0])
        np.testing.assert_array_equal(state["pair"][0], np.repeat(seen[:, :1], 2, axis=1))


def test_memory_begins_anew_with_each_episode() -> None:
    score = evaluate_team(MortalRules(), Counts(), episodes=30, num_envs=4)
    assert score.episodes == 30


class Stones(Counts):
    """Remembers the first pile that it saw, and has taken one stone in each turn since."""

    def check(self, seen: Any, state: Any) -> None:
        pile = np.rint(seen[:, 0] * 12)
        begun = state["n"] > 0
        first = state["pair"][0][:, 0]
        assert (first[begun] - pile[begun] == 2 * state["n"][begun]).all()
        state["pair"][0][:] = np.where(begun, first, pile)[:, None] - 1.0  # act adds 1


def test_memory_is_held_while_others_move() -> None:
    score = evaluate_team(PileRules(), Stones(), episodes=30, num_envs=4)
    assert score.mean_length > 6


class Cell(NamedTuple):
    h: Any
    c: Any


def test_rows_of_a_tree() -> None:
    tree = Cell(np.arange(4), [np.arange(8).reshape(4, 2), None])
    rows = np.array([1, 3])
    part = take_tree(tree, rows)
    assert isinstance(part, Cell)
    assert part.h.tolist() == [1, 3]
    assert part.c[0].tolist() == [[2, 3], [6, 7]]
    filled = put_tree(tree, rows, Cell(np.array([0.5, 0.25]), [np.zeros((2, 2)), None]))
    assert filled.h.tolist() == [0, 0.5, 2, 0.25]  # nothing is rounded to whole numbers
    assert filled.c[0].tolist() == [[0, 1], [0, 0], [4, 5], [0, 0]]
    assert tree.h.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("new", [None, np.zeros(2), {"b": np.zeros(2)}])
def test_a_state_of_another_form_is_named(new: Any) -> None:
    with refused(ValueError, "dict", type(new).__name__):
        put_tree({"a": np.zeros(4)}, np.array([0, 1]), new)
    with refused(ValueError, "NoneType", "ndarray"):
        put_tree(None, np.array([0, 1]), np.zeros(2))


# --- Policies and teams --------------------------------------------------------------------------


def test_random_play_is_uniform_over_the_legal_actions() -> None:
    mask = np.tile(np.array([1, 0, 1, 1], np.int8), (9000, 1))
    drawn = RandomPolicy().act({"action_mask": mask}, rng=np.random.default_rng(0)).action
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0
    np.testing.assert_allclose(counts[[0, 2, 3]], 3000, atol=150)  # 3.4 standard deviations
    single = RandomPolicy().act({"action_mask": mask[0]}, rng=np.random.default_rng(0)).action
    assert np.shape(single) == ()
    with refused(ValueError, "rng="):
        RandomPolicy().act({"action_mask": mask})


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (lambda n: np.zeros(n), ("agent_0", "float64", "(2,)")),
        (lambda n: np.zeros((n, 1), int), ("int64", "(2, 1)", "(2,)")),
        (lambda n: np.full(n, 7), ("agent_0", "7", "0..2")),
        (lambda n: np.full(n, -1), ("-1",)),
    ],
)
def test_malformed_actions_are_named(
    action: Callable[[int], Any], named: tuple[object, ...]
) -> None:
    class Wrong(Always):
        def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
            return Decision(action(len(observation["action_mask"])))

    with refused(ActionError, *named):
        evaluate_team(SteadyRules(), Wrong(), episodes=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"episodes": 0}, ("episodes=0", "1")),
        ({"num_envs": 0}, ("num_envs=0", "1")),
        ({"player": {"agent_0": Always()}}, ("1", "(agent_0)", "2")),
        ({"player": Player({"a": Always(), "b": Always()})}, ("(a, b)", "(agent_0, agent_1)")),
    ],
)
def test_mistakes_are_explained(arguments: dict[str, Any], named: tuple[object, ...]) -> None:
    given = {"player": Always(), **arguments}
    with refused(ValueError, *named):
        evaluate_team(SteadyRules(), **given)
