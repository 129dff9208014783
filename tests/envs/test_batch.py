"""Batch plays what PettingZoo environments play, row by row, and never an illegal action."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from corral.envs.batch import Batch, BatchStep
from corral.envs.core import generator
from corral.envs.shells import ParallelShell, TurnShell
from support.batch_rules import RULES, TURNS, dfaas, mortal
from support.contract import plain
from support.messages import refused
from support.turn_rules import PileRules


def row_of(value: Any, row: int) -> Any:
    """One copy's part of nested batched arrays, as plain data."""
    if isinstance(value, dict):
        return {key: row_of(part, row) for key, part in value.items()}
    return plain(value[row])


def numbers_of(info: dict[str, np.ndarray], row: int, column: int) -> dict[str, Any]:
    return {key: values[row, column].item() for key, values in info.items()}


def row_env(shell: Any, rules: Any, seed: int, row: int) -> Any:
    """A PettingZoo environment that draws from the generator of one row of a Batch."""
    env = shell(rules)
    env.np_random = generator(seed, "env", row)
    return env


# --- Row by row like PettingZoo ------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_every_row_plays_like_a_parallel_env(name: str) -> None:
    """Three whole episodes and more in every row, bit for bit, across the automatic resets."""
    num_envs, seed = 4, 11
    batch = Batch(RULES[name](), num_envs, seed)
    observations = batch.reset()
    envs = [row_env(ParallelShell, RULES[name](), seed, row) for row in range(num_envs)]
    for row, env in enumerate(envs):
        shown, _ = env.reset()
        assert plain(shown) == row_of(observations, row)
    rng = np.random.default_rng(0)
    returns = np.zeros((num_envs, len(batch.agents)))
    lengths = np.zeros(num_envs, dtype=int)
    episodes = np.zeros(num_envs, dtype=int)
    while episodes.min() < 3:
        actions = batch.sample_actions(rng)
        step = batch.step(actions)
        for row, env in enumerate(envs):
            live = list(env.agents)
            columns = [env.possible_agents.index(agent) for agent in live]
            played = {agent: int(actions[row, i]) for agent, i in zip(live, columns, strict=True)}
            shown, rewards, terminated, truncated, infos = env.step(played)
            lengths[row] += 1
            for agent, i in zip(live, columns, strict=True):
                returns[row, i] += rewards[agent]
                assert rewards[agent] == float(step.reward[row, i])
                assert terminated[agent] == step.terminated[row, i]
                assert truncated[agent] == step.truncated[row, i]
                assert infos[agent] == numbers_of(step.info, row, i)
            dead = [i for i in range(len(batch.agents)) if i not in columns]
            assert not (step.terminated[row, dead] | step.truncated[row, dead]).any()
            assert step.over[row] == (not env.agents)
            if env.agents:
                now = plain(shown)
            else:
                finished = step.finished
                assert finished is not None
                place = finished.rows.tolist().index(row)
                last = {agent: row_of(finished.observations[agent], place) for agent in live}
                assert plain(shown) == last
                assert plain(env.state()) == plain(finished.global_state[place])
                assert finished.returns[place].tolist() == returns[row].tolist()
                assert finished.lengths[place] == lengths[row]
                returns[row], lengths[row] = 0, 0
                episodes[row] += 1
                now = plain(env.reset()[0])
            assert now == {agent: row_of(step.observations[agent], row) for agent in now}
            assert plain(env.state()) == plain(batch.global_state()[row])
    assert episodes.sum() >= 3 * num_envs


@pytest.mark.parametrize("name", RULES)
def test_row_0_is_the_environment_of_the_same_seed(name: str) -> None:
    batch, env = Batch(RULES[name](), 3, 5), ParallelShell(RULES[name]())
    observations = batch.reset()
    shown, _ = env.reset(seed=5)
    rng = np.random.default_rng(1)
    episodes = 0
    while episodes < 3:
        assert plain(shown) == {agent: row_of(observations[agent], 0) for agent in shown}
        actions = batch.sample_actions(rng)
        played = {a: int(k) for a, k in zip(batch.agents, actions[0], strict=True)}
        shown, *_ = env.step({agent: played[agent] for agent in env.agents})
        observations = batch.step(actions).observations
        shown = {agent: shown[agent] for agent in env.agents}
        if not env.agents:
            shown, _ = env.reset()
            episodes += 1


@pytest.mark.parametrize("name", [*TURNS, "mortal", "dfaas two"])
def test_every_row_plays_like_an_aec_env(name: str) -> None:
    """The same for games played in turn; rewards are compared whenever an agent is asked."""
    rules = {**RULES, **TURNS}[name]
    num_envs, seed = 5, 3
    batch = Batch(rules(), num_envs, seed)
    observations = batch.reset()
    envs = [row_env(TurnShell, rules(), seed, row) for row in range(num_envs)]
    for env in envs:
        env.reset()
    rng = np.random.default_rng(4)
    returns = np.zeros((num_envs, len(batch.agents)))
    episodes = np.zeros(num_envs, dtype=int)
    while episodes.min() < 3:
        actions = batch.sample_actions(rng)
        acting = batch.acting
        step = batch.step(actions)
        for row, env in enumerate(envs):
            for i, agent in enumerate(batch.agents):
                if acting[row, i]:
                    assert env.agent_selection == agent
                    shown = env.observe(agent)
                    assert plain(shown) == row_of(observations[agent], row)
                    env.step(int(actions[row, i]))
            paid = [env.rewards.get(agent, 0.0) for agent in batch.agents]
            assert paid == step.reward[row].tolist()
            returns[row] += paid
            over = False
            while env.agents and (
                env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
            ):
                agent = env.agent_selection
                i = batch.agents.index(agent)
                assert env.terminations[agent] == step.terminated[row, i]
                assert env.truncations[agent] == step.truncated[row, i]
                assert env.infos[agent] == numbers_of(step.info, row, i)
                env.step(None)
                over = not env.agents
            assert over == step.over[row]
            if over:
                assert step.finished is not None
                place = step.finished.rows.tolist().index(row)
                assert step.finished.returns[place].tolist() == returns[row].tolist()
                returns[row] = 0
                episodes[row] += 1
                env.reset()
        observations = step.observations
    assert episodes.sum() >= 3 * num_envs


def test_rows_differ_and_do_not_depend_on_their_number() -> None:
    small, large = Batch(dfaas(), 3, 9), Batch(dfaas(), 8, 9)
    few, many = small.reset(), large.reset()
    shown = [row_of(many, row) for row in range(8)]
    assert [row_of(few, row) for row in range(3)] == shown[:3]
    assert len({str(observation) for observation in shown}) >= 6  # of 40 first rows
    other = Batch(dfaas(), 3, 10).reset()
    assert [row_of(other, row) for row in range(3)] != shown[:3]
    unseeded = [plain(Batch(dfaas(max_cycles=1), 64).reset()) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_reset_goes_on_unless_it_is_given_a_seed() -> None:
    batch = Batch(dfaas(), 16, 2)
    first, second = plain(batch.reset()), plain(batch.reset())
    assert first != second
    assert plain(batch.reset(seed=2)) == first
    assert plain(batch.reset()) == second
    assert plain(batch.reset(seed=3)) == plain(Batch(dfaas(), 16, 3).reset())
    assert batch.seed == 3
    with refused(ValueError, "seed -1", 0):
        batch.reset(seed=-1)
    assert batch.seed == 3


def test_a_batch_of_one_copy() -> None:
    batch = Batch(dfaas(), 1, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    steps = [batch.step(batch.sample_actions(rng)) for _ in range(15)]
    assert [bool(step.over[0]) for step in steps] == [t % 7 == 6 for t in range(15)]
    assert all(step.reward.shape == (1, 4) for step in steps)


# --- Ends of episodes ----------------------------------------------------------------------------


def test_without_a_time_limit_the_rules_alone_end_an_episode() -> None:
    batch = Batch(mortal(sizes=(2, 2, 2), lives=(2, 5, 3)), 2, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    seen: list[BatchStep] = []
    acting = []
    for _ in range(10):
        acting.append(batch.acting[0].tolist())
        seen.append(batch.step(batch.sample_actions(rng)))
    one = [[True] * 3] * 2 + [[False, True, True]] + [[False, True, False]] * 2
    assert acting == one * 2
    for t, step in enumerate(seen):
        lived = t % 5 + 1
        assert not step.truncated.any()
        assert step.terminated.tolist() == [[lived == 2, lived == 5, lived == 3]] * 2
        assert step.reward.tolist() == [[float(lived <= 2), 10.0, 100.0 * (lived <= 3)]] * 2
        assert step.over.tolist() == [lived == 5] * 2
        if lived == 5:
            assert step.finished is not None
            assert step.finished.rows.tolist() == [0, 1]
            assert step.finished.returns.tolist() == [[2.0, 50.0, 300.0]] * 2
            assert step.finished.lengths.tolist() == [5, 5]
        else:
            assert step.finished is None


def test_the_time_limit_cuts_only_who_is_still_alive() -> None:
    batch = Batch(mortal(sizes=(2, 2, 2), lives=(2, 5, 3), max_cycles=3), 1, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    steps = [batch.step(batch.sample_actions(rng)) for _ in range(3)]
    assert [step.terminated[0].tolist() for step in steps] == [
        [False, False, False],
        [True, False, False],
        [False, False, True],  # dies in the very step in which time is up: not cut
    ]
    assert [step.truncated[0].tolist() for step in steps] == [
        [False, False, False],
        [False, False, False],
        [False, True, False],
    ]
    assert steps[2].finished is not None
    assert steps[2].finished.returns.tolist() == [[2.0, 30.0, 300.0]]


def test_rewards_of_agents_that_do_not_move_count_in_their_returns() -> None:
    # 3 stones, at most 1 at a time: agent_0, agent_1, agent_0 wins; 0.5 for whoever waits.
    rules = PileRules((3, 4), takes=(1, 1), gift=0.5, illegal="raise")
    batch = Batch(rules, 2, 0)
    batch.reset()
    steps = [batch.step(np.zeros((2, 2), dtype=int)) for _ in range(3)]
    assert [step.reward[0].tolist() for step in steps] == [[0.0, 0.5], [0.5, 0.0], [1.0, -0.5]]
    assert steps[2].finished is not None
    assert steps[2].finished.returns.tolist() == [[1.5, 0.0]] * 2


@pytest.mark.parametrize("name", RULES)
def test_the_last_step_keeps_its_own_info(name: str) -> None:
    """The reset that follows at once leaves the info, reward and ends of the step alone."""
    batch, twin = Batch(RULES[name](), 3, 1), Batch(RULES[name](), 3, 1)
    batch.reset()
    twin.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(30):
        actions = batch.sample_actions(rng)
        outcome = twin.rules.step(copy.deepcopy(twin._state), actions)
        step = batch.step(actions)
        twin.step(actions)
        assert plain(step.info) == plain(outcome.info)
        assert plain(step.reward) == plain(outcome.reward)
        ends += int(step.over.sum())
    assert ends > 5


@pytest.mark.parametrize("name", [*RULES, *TURNS])
def test_steps_are_not_overwritten_by_later_ones(name: str) -> None:
    batch = Batch({**RULES, **TURNS}[name](), 3, 6)
    first = batch.reset()
    kept: list[tuple[Any, Any]] = [(first, copy.deepcopy(first))]
    rng = np.random.default_rng(2)
    for _ in range(25):
        step = batch.step(batch.sample_actions(rng))
        kept.append((step, copy.deepcopy(step)))
    for given, was in kept[1:]:
        for name in ("reward", "terminated", "truncated", "acting"):
            assert plain(getattr(given, name)) == plain(getattr(was, name))
        for name in ("observations", "info"):
            assert plain(getattr(given, name)) == plain(getattr(was, name))
        assert (given.finished is None) == (was.finished is None)
        if given.finished is not None:
            for name in ("rows", "observations", "global_state", "returns", "lengths"):
                value = getattr(given.finished, name)
                assert plain(value) == plain(getattr(was.finished, name))
    assert plain(kept[0][0]) == plain(kept[0][1])
    assert any(given.finished is not None for given, _ in kept[1:])


def test_terminated_and_truncated_never_meet() -> None:
    batch = Batch(mortal(max_cycles=4), 200, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    terminated = truncated = 0
    for _ in range(40):
        step = batch.step(batch.sample_actions(rng))
        assert not (step.terminated & step.truncated).any()
        terminated, truncated = terminated + step.terminated.sum(), truncated + step.truncated.sum()
    assert terminated > 1_000
    assert truncated > 1_000
