"""True values by forks, beside values that can be worked out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array, with_limit
from corral.envs.policy import Decision, PolicyBase, RandomPolicy
from corral.envs.probes.base import Probe
from corral.envs.probes.episodes import Accounts, CutOrEnd, Death, LaterReward, Memory
from corral.envs.probes.turns import EarlyGift, ReplyPays
from corral.envs.tictactoe_v0 import TicTacToeRules
from corral.trainers.on_policy import maths
from corral.trainers.policy_iteration.forks import Moments, Story, Worth, joined, worth

GAMMA = 0.9


def moments_of(rules: Any, state: Any, agent: int, **changes: Any) -> Moments:
    """Moments of ``state`` in which everybody lives that the rules say lives."""
    rows = len(state.t)
    ended = np.zeros((rows, len(rules.agents)), dtype=bool)
    given: dict[str, Any] = {
        "elapsed": np.array(state.t),
        "ended": ended,
        "hidden": dict.fromkeys(rules.agents),
    }
    return Moments(rules, agent, state, **{**given, **changes})


def random_team(rules: Any) -> dict[str, Any]:
    return {agent: RandomPolicy() for agent in rules.agents}


def true_value(rules: Probe, agent: int, lookup: dict[float, float]) -> Any:
    """V as a table of what the agent's first feature says."""

    def value(observations: Any, state: Array) -> Array:
        seen = observations[rules.agents[agent]]["observation"][:, 0]
        return np.array([lookup[float(each)] for each in seen])

    return value


def valued(rules: Probe, agent: int, value: Any = None, **given: Any) -> tuple[Worth, Array]:
    """What the situations of the answer are worth to ``agent``, and what they must be worth."""
    answer = rules.answer(GAMMA)
    rows = np.flatnonzero(~np.isnan(answer.value[:, agent]) & rules.acting(answer.state)[:, agent])
    found = worth(
        moments_of(rules, answer.state, agent).at(rows),
        random_team(rules),
        gamma=GAMMA,
        forks=8,
        rng=np.random.default_rng(0),
        value=value,
        **given,
    )
    return found, answer.value[rows, agent]


@pytest.mark.parametrize("agent", [0, 1])
@pytest.mark.parametrize(
    "rules", [LaterReward(), Death(), Accounts(), EarlyGift()], ids=lambda rules: rules.name
)
def test_discounted_returns_until_the_end(rules: Probe, agent: int) -> None:
    found, expected = valued(rules, agent)
    np.testing.assert_allclose(found.mean, expected)
    np.testing.assert_allclose(found.error, 0, atol=1e-12)
    assert not found.assumed.any()


def test_v_stands_for_the_rest_where_the_time_limit_cuts() -> None:
    rules = CutOrEnd()
    value = true_value(rules, 0, {0.0: 9.0, 1.0: 10.0})
    found, expected = valued(rules, 0, value)
    np.testing.assert_allclose(found.mean, expected)
    np.testing.assert_allclose(found.assumed, GAMMA ** np.array([4, 3, 2, 1]))
    assert (valued(rules, 0)[0].mean < expected - 5).all()  # without V the cut would be an end
    ended, expected = valued(rules, 1, true_value(rules, 1, {float(i): 99.0 for i in range(5)}))
    np.testing.assert_allclose(ended.mean, expected)  # an end needs no V


def test_without_the_limit_it_goes_on_to_the_horizon() -> None:
    rules = with_limit(CutOrEnd(), None)
    found, expected = valued(rules, 0)
    np.testing.assert_allclose(found.mean, expected, atol=0.1)  # 1 % of 10
    value = true_value(rules, 0, {0.0: 9.0, 1.0: 10.0})
    np.testing.assert_allclose(valued(rules, 0, value, horizon=3)[0].mean, expected)


@pytest.mark.parametrize("replies", [1, 2])
def test_in_turns_time_is_own_decisions(replies: Any) -> None:
    rules = ReplyPays(replies=replies)
    found = worth(
        moments_of(rules, rules.situations([0, 0]), 0),
        random_team(rules),
        gamma=GAMMA,
        forks=4,
        rng=np.random.default_rng(0),
        first=np.array([0, 1]),
    )
    np.testing.assert_allclose(found.mean, [-1, 1])  # however many replies come in between
    found, expected = valued(rules, 1)
    np.testing.assert_allclose(found.mean, expected)


class Remembers(PolicyBase):
    """Says the cue that it was shown: its state is the cue; 0: none yet."""

    def initial_state(self, num_envs: int) -> Array:
        return np.zeros((num_envs, 1), dtype=np.float32)

    def act(
        self,
        observation: Any,
        state: Any = None,
        rng: Any = None,
        deterministic: bool = False,
    ) -> Decision:
        cue = observation["observation"][:, 0]
        after = np.where(cue != 0, cue, state[:, 0])
        return Decision((after > 0).astype(np.int64), after[:, None])


def test_policies_that_remember_go_on_with_what_they_remember() -> None:
    rules = Memory()
    drawn = [[0, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]]
    state = rules.situations([0, 0, 2, 2], drawn)
    team = {agent: Remembers() for agent in rules.agents}
    shown = np.array([[0], [0], [-1], [-1]], dtype=np.float32)  # the last one remembers wrongly
    hidden = dict.fromkeys(rules.agents, shown)
    given: dict[str, Any] = {"gamma": GAMMA, "forks": 3, "rng": np.random.default_rng(0)}
    found = worth(moments_of(rules, state, 0, hidden=hidden), team, **given)
    np.testing.assert_allclose(found.mean, [GAMMA**4, GAMMA**4, GAMMA**2, -(GAMMA**2)])


# --- Tic-tac-toe, where everything can be tried ------------------------------------------------


def position(rules: Any, moves: list[int]) -> Any:
    state = rules.start([np.random.default_rng(0)])
    for t, move in enumerate(moves):
        action = np.zeros((1, 2), dtype=np.int64)
        action[0, t % 2] = move
        state = rules.step(state, action).state
    return state


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


@cache
def by_hand(moves: tuple[int, ...], player: int, decided: int = 0) -> float:
    """What random play returns to ``player``, discounted by its own decisions from here on."""
    mover = len(moves) % 2
    free = [field for field in range(9) if field not in moves]
    total = 0.0
    for field in free:
        own = {*moves[mover::2], field}
        count = decided + (mover == player)
        if any(own.issuperset(line) for line in LINES):
            total += GAMMA ** max(0, count - 1) * (1 if mover == player else -1)
        elif len(free) > 1:
            total += by_hand((*moves, field), player, count)
    return total / len(free)


@pytest.mark.parametrize("moves", [(4, 0, 8), (4, 0), (0, 4, 1, 2, 6)])
def test_random_tictactoe_as_by_trying_everything(moves: tuple[int, ...]) -> None:
    rules = TicTacToeRules()
    found = worth(
        moments_of(rules, position(rules, list(moves)), len(moves) % 2),
        random_team(rules),
        gamma=GAMMA,
        forks=4000,
        rng=np.random.default_rng(1),
    )
    assert found.error[0] < 0.02
    assert abs(found.mean[0] - by_hand(moves, len(moves) % 2)) < 3.5 * found.error[0]


# --- What happened, step by step ---------------------------------------------------------------


def told(rules: Any, state: Any, agent: int, value: Any, steps: int = 6) -> Story:
    story = Story(steps, np.array(state.t), 2)
    worth(
        moments_of(rules, state, agent),
        random_team(rules),
        gamma=GAMMA,
        forks=2,
        rng=np.random.default_rng(0),
        value=value,
        story=story,
    )
    return story


def advantages(story: Story, gae_lambda: float = 0.95) -> Array:
    names = ("reward", "value", "acted", "ended", "final_obs_value", "bootstrap_value")
    given = {name: getattr(story, name) for name in names}
    return maths.gae(**given, gamma=GAMMA, gae_lambda=gae_lambda)


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
def test_a_story_has_no_advantages_where_v_is_right(steps: int) -> None:
    rules = CutOrEnd()
    state = rules.situations([0])
    story = told(rules, state, 0, true_value(rules, 0, {0.0: 9.0, 1.0: 10.0}), steps)
    assert story.acted[: min(steps, 4)].all()
    assert not story.acted[4:].any()
    np.testing.assert_allclose(advantages(story), 0, atol=1e-5)
    wrong = told(rules, state, 0, true_value(rules, 0, {0.0: 9.0, 1.0: 8.0}), steps)
    assert (np.abs(advantages(wrong)[0]) > 0.5).all()


def test_a_story_begins_where_its_moment_stood_in_the_rollout() -> None:
    rules = Death()
    zero = true_value(rules, 1, {0.0: 0.0, 1.0: 0.0})
    story = told(rules, rules.situations([0, 1, 3]), 1, zero)
    first = np.repeat([0, 1, 3], 2)
    assert (story.acted.argmax(axis=0) == first).all()
    expected = np.repeat([3.439, 2.71, 1.0], 2)
    found = advantages(story, 1.0)[first, np.arange(6)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_story_in_turns() -> None:
    rules = ReplyPays(replies=2)
    zero = true_value(rules, 0, {0.0: 0.0, 1.0: 0.0})
    story = told(rules, rules.situations([0]), 0, zero)
    assert story.acted.sum() == 2  # one decision in each of two forks
    assert set(np.abs(advantages(story)[0])) == {1.0}


def test_states_are_joined_row_by_row() -> None:
    rules = Death()
    both = joined([rules.situations([0, 1]), rules.situations([2])])
    assert both.t.tolist() == [0, 1, 2]
    found = joined([{"a": (np.zeros(2), None)}, {"a": (np.ones(1), None)}])
    assert found["a"][0].tolist() == [0, 0, 1]
    assert found["a"][1] is None
