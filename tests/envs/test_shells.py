"""The two shells: what an agent is shown, and when, in games played in turn and at once."""

from __future__ import annotations

import functools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils.conversions import parallel_to_aec
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from corral.envs import dfaas_v0
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell, TurnShell
from support.contract import plain
from support.loads import small_trace
from support.messages import refused
from support.turn_rules import MortalRules, PileRules

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PettingZoo's tests import an environment it has deprecated
    from pettingzoo.test import api_test, parallel_api_test, seed_test


def asked(env: Any, actions: dict[str, list[int]]) -> list[tuple[str, float, bool, bool]]:
    """Play an episode from the given actions; who was asked, and what ``last`` told it."""
    told = []
    for agent in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        assert info == env.infos[agent]
        told.append((agent, reward, terminated, truncated))
        env.step(None if terminated or truncated else actions[agent].pop(0))
    assert not any(actions.values())
    assert env.agents == []
    return told


def pile(stones: int, **kwargs: Any) -> TurnShell:
    env = TurnShell(PileRules((stones, stones + 1), **kwargs))
    env.reset(seed=0)
    return env


# --- Turns ---------------------------------------------------------------------------------------


def test_agents_alternate_and_the_winner_takes_the_last() -> None:
    # 6 stones: 3, 2, 1. agent_0 takes the last.
    told = asked(pile(6), {"agent_0": [2, 0], "agent_1": [1]})
    assert told == [
        ("agent_0", 0.0, False, False),
        ("agent_1", 0.0, False, False),
        ("agent_0", 0.0, False, False),
        ("agent_0", 1.0, True, False),
        ("agent_1", -1.0, True, False),
    ]


def test_rewards_of_others_moves_wait_until_an_agent_is_asked() -> None:
    # 4 stones, one at a time; whoever waits is given 0.5. agent_1's first 0.5 arrives before it
    # has moved at all. agent_1 takes the last stone.
    told = asked(pile(4, gift=0.5, takes=(1, 1)), {"agent_0": [0, 0], "agent_1": [0, 0]})
    assert told == [
        ("agent_0", 0.0, False, False),
        ("agent_1", 0.5, False, False),
        ("agent_0", 0.5, False, False),
        ("agent_1", 0.5, False, False),
        ("agent_0", -0.5, True, False),
        ("agent_1", 1.0, True, False),
    ]


def test_rewards_add_up_over_several_moves_of_the_other() -> None:
    # agent_1 leaves with its first move, and agent_0 plays on: 3 stones, one at a time each.
    env = pile(4, gift=0.5, takes=(1, 1), last_move=1)
    told = asked(env, {"agent_0": [0, 0, 0], "agent_1": [0]})
    assert told == [
        ("agent_0", 0.0, False, False),
        ("agent_1", 0.5, False, False),
        ("agent_1", 0.0, True, False),  # it dies at once, and is stepped over before agent_0
        ("agent_0", 0.5, False, False),
        ("agent_0", 0.0, False, False),
        ("agent_0", 1.0, True, False),
    ]


def test_an_own_move_clears_what_was_told_and_nobody_is_paid_twice() -> None:
    env = pile(8, gift=0.5, takes=(1, 1))
    paid = {"agent_0": 0.0, "agent_1": 0.0}
    told = {"agent_0": 0.0, "agent_1": 0.0}
    for agent in env.agent_iter():
        _, reward, terminated, _, _ = env.last()
        told[agent] += reward
        env.step(None if terminated else 0)
        for other, reward in env.rewards.items():
            paid[other] += reward
    # agent_0: waits 4 times, one of them as agent_1 takes the last: 4 * 0.5 - 1.
    assert told == paid == {"agent_0": 1.0, "agent_1": 3.0}


@pytest.mark.parametrize("tell", ["always", "once"])
def test_a_dead_agent_steps_once_and_with_none(tell: str) -> None:
    env = pile(5, takes=(1, 1), last_move=1, tell=tell)
    env.step(0)
    assert env.agent_selection == "agent_1"
    env.step(0)
    assert env.agent_selection == "agent_1"  # dead, and first to step
    assert env.terminations == {"agent_0": False, "agent_1": True}
    assert not env.last()[0]["action_mask"].any()
    with refused(ValueError, "agent_1", "None", 0):
        env.step(0)
    env.step(None)
    assert env.agents == ["agent_0"]
    for part in (env.rewards, env.terminations, env.truncations, env.infos):
        assert list(part) == ["agent_0"]
    for _ in range(3):
        assert env.agent_selection == "agent_0"
        env.step(0)
    assert env.terminations == {"agent_0": True}
    env.step(None)
    assert env.agents == []


def test_the_time_limit_truncates_all_who_are_alive() -> None:
    env = pile(9, takes=(1, 1), max_cycles=3)
    told = asked(env, {"agent_0": [0, 0], "agent_1": [0]})
    assert told[-2:] == [("agent_0", 0.0, False, True), ("agent_1", 0.0, False, True)]
    assert len(told) == 5


def test_an_end_at_the_time_limit_is_an_end() -> None:
    told = asked(pile(3, takes=(1, 1), max_cycles=3), {"agent_0": [0, 0], "agent_1": [0]})
    assert told[-2:] == [("agent_0", 1.0, True, False), ("agent_1", -1.0, True, False)]


def test_the_time_limit_spares_who_died_before() -> None:
    env = pile(9, takes=(1, 1), last_move=1, max_cycles=3)
    told = asked(env, {"agent_0": [0, 0], "agent_1": [0]})
    assert told[2] == ("agent_1", 0.0, True, False)
    assert told[-1] == ("agent_0", 0.0, False, True)
    assert len(told) == 5


def test_reset_in_the_middle_begins_anew() -> None:
    env = pile(9, gift=0.5, last_move=1)
    env.step(0)
    env.step(0)  # agent_1 is dead and has not stepped
    env.reset(seed=0)
    assert env.agents == env.possible_agents
    assert env.agent_selection == "agent_0"
    assert env.terminations == {"agent_0": False, "agent_1": False}
    assert env.last()[1] == 0.0
    env.step(0)
    assert env.agent_selection == "agent_1"
    assert env.last()[1] == 0.5


def test_only_the_agent_to_move_has_legal_actions() -> None:
    env = pile(2, takes=(3, 2))
    masks = {agent: env.observe(agent)["action_mask"].tolist() for agent in env.agents}
    assert masks == {"agent_0": [1, 1, 0], "agent_1": [0, 0]}
    env.step(0)
    masks = {agent: env.observe(agent)["action_mask"].tolist() for agent in env.agents}
    assert masks == {"agent_0": [0, 0, 0], "agent_1": [1, 0]}


def test_an_observation_can_be_taken_apart() -> None:
    """Popping the mask, as many do, harms nobody: the next look is whole, and legality stays."""
    env = TurnShell(MortalRules((3, 3), lives=(4, 4), illegal="raise"))
    env.reset(seed=0)
    while env.agents:
        observation, _, terminated, _, _ = env.last()
        mask = observation.pop("action_mask")
        assert set(env.last()[0]) == {"observation", "action_mask"}
        env.step(None if terminated else int(mask.argmax()))


# PettingZoo's tests know observations with masks from a list of its own environments: of any other
# it takes the Dict for a slip.
@pytest.mark.filterwarnings(
    "ignore:Observation is not a NumPy array:UserWarning",
    "ignore:Observation space for each agent probably should be:UserWarning",
    # Stated on purpose: two agents with different numbers of actions, a dead agent's empty mask.
    "ignore:Agents have different observation space sizes:UserWarning",
    "ignore:Action mask numpy array is all zeros:UserWarning",
)
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"gift": 0.5}, {"last_move": 1}, {"max_cycles": 4}, {"takes": (3, 2), "last_move": 2}],
    ids=str,
)
@pytest.mark.parametrize("wrap", [lambda env: env, OrderEnforcingWrapper])
def test_pettingzoos_tests_of_turns(
    kwargs: dict[str, Any], wrap: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make = lambda: wrap(TurnShell(PileRules((20, 30), **kwargs)))  # noqa: E731
    api_test(make(), num_cycles=60)
    seed_test(make, num_cycles=60)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.filterwarnings(
    "ignore:Observation is not a NumPy array:UserWarning",
    "ignore:Observation space for each agent probably should be:UserWarning",
    "ignore:Action mask numpy array is all zeros:UserWarning",  # of the dead
)
@pytest.mark.parametrize("max_cycles", [None, 4])
def test_pettingzoos_tests_where_agents_die(
    max_cycles: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = functools.partial(MortalRules, max_cycles=max_cycles)
    parallel_api_test(ParallelShell(rules()), num_cycles=30)
    api_test(parallel_to_aec(ParallelShell(rules())), num_cycles=30)
    api_test(TurnShell(rules()), num_cycles=30)
    assert capsys.readouterr().out.count("Passed") == 3


# --- Both shells over the same rules -------------------------------------------------------------

SIMULTANEOUS = {
    "dfaas": lambda: DfaasRules(small_trace(), max_cycles=6, queue=4, illegal="raise"),
    "mortal": lambda: MortalRules((3, 4, 5), illegal="raise"),
    "mortal, limited": lambda: MortalRules((3, 4, 5), max_cycles=3, illegal="raise"),
}


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_turn_shell_equals_pettingzoos_conversion(name: str) -> None:
    """Over three episodes, all that either shows at any moment."""
    rules = SIMULTANEOUS[name]
    ours, theirs = TurnShell(rules()), parallel_to_aec(ParallelShell(rules()))
    rng = np.random.default_rng(0)
    steps = 0
    for seed in (4, None, None):
        ours.reset(seed=seed)
        theirs.reset(seed=seed)
        while ours.agents:
            assert ours.agent_selection == theirs.agent_selection
            assert sorted(ours.agents) == sorted(theirs.agents)
            observation, *told = ours.last()
            other, *they_told = theirs.last()
            assert plain(observation) == plain(other)
            assert told == they_told
            for part in ("rewards", "terminations", "truncations", "infos"):
                assert getattr(ours, part) == getattr(theirs, part), part
            for agent in ours.agents:
                assert plain(ours.observe(agent)) == plain(theirs.observe(agent))
            assert plain(ours.state()) == plain(theirs.state())
            legal = np.flatnonzero(observation["action_mask"])
            action = None if told[1] or told[2] else int(rng.choice(legal))
            ours.step(action)
            theirs.step(action)
            steps += 1
        assert theirs.agents == []
    assert steps > 20


# --- The parallel shell --------------------------------------------------------------------------


@pytest.mark.parametrize("tell", ["always", "once"])
def test_the_dead_are_neither_asked_nor_shown(tell: str) -> None:
    env = ParallelShell(MortalRules((1, 1, 1), lives=(1, 3, 2), tell=tell))
    env.reset(seed=0)
    seen = []
    while env.agents:
        observations, rewards, terminated, truncated, infos = env.step(dict.fromkeys(env.agents, 0))
        for part in (observations, terminated, truncated, infos):
            assert list(part) == list(rewards)
        assert not any(truncated.values())
        seen.append((rewards, [agent for agent, ended in terminated.items() if ended]))
    assert seen == [
        ({"agent_0": 1.0, "agent_1": 10.0, "agent_2": 100.0}, ["agent_0"]),
        ({"agent_1": 10.0, "agent_2": 100.0}, ["agent_2"]),
        ({"agent_1": 10.0}, ["agent_1"]),
    ]


def test_the_time_limit_is_the_shells_to_change() -> None:
    """Wrappers and PettingZoo's tests set ``max_cycles`` on the environment."""
    env = dfaas_v0.parallel_env(trace=small_trace(), max_cycles=9)
    env.max_cycles = 2
    env.reset(seed=0)
    steps = 0
    while env.agents:
        *_, truncated, _ = env.step(dict.fromkeys(env.agents, 0))
        steps += 1
    assert steps == 2
    assert truncated == dict.fromkeys(env.possible_agents, True)


def test_an_environment_pickles_before_its_first_reset() -> None:
    env = pickle.loads(pickle.dumps(dfaas_v0.env(trace=small_trace())))
    env.reset(seed=1)
    other = dfaas_v0.env(trace=small_trace())
    other.reset(seed=1)
    assert plain(env.last()[0]) == plain(other.last()[0])


def test_options_of_reset_are_accepted() -> None:
    parallel, turns = ParallelShell(MortalRules()), TurnShell(PileRules())
    parallel.reset(seed=0, options={"anything": 1})
    turns.reset(seed=0, options={"anything": 1})
    assert parallel.agents == parallel.possible_agents
    assert turns.agents == turns.possible_agents
