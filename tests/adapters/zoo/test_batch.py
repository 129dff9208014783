"""ZooBatch plays what plain PettingZoo loops play, as Batch would show it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pettingzoo import AECEnv
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from corral.adapters.zoo.batch import make_zoo_batch
from corral.envs.batch import Batch
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell, TurnShell, ordered
from support.contract import plain
from support.loads import small_trace
from support.turn_rules import MortalRules, PileRules
from support.zoo_envs import MixedEnv, RingEnv

pytest.importorskip("pygame", reason="PettingZoo's classic games need pygame")
connect_four_v3 = pytest.importorskip("pettingzoo.classic.connect_four_v3")
tictactoe_v3 = pytest.importorskip("pettingzoo.classic.tictactoe_v3")

dfaas = functools.partial(
    DfaasRules, trace=small_trace(nodes=3), max_cycles=7, queue=5, route="two", illegal="raise"
)
mortal = functools.partial(MortalRules, illegal="raise")
pile = functools.partial(PileRules, illegal="raise")


def dfaas_aec() -> Any:
    return ordered(TurnShell(dfaas()))


def row_of(value: Any, row: int) -> Any:
    """One copy's part of nested batched arrays, as plain data."""
    if isinstance(value, dict):
        return {key: row_of(part, row) for key, part in value.items()}
    return plain(value[row])


def blank(observation: Any) -> bool:
    """Whether nothing is to be seen in plain data of one copy."""
    if isinstance(observation, dict):
        return all(map(blank, observation.values()))
    return not any(observation[2])  # its bytes


# --- Like Batch ----------------------------------------------------------------------------------

SHELLS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "dfaas": (ParallelShell, dfaas),
    "mortal": (ParallelShell, mortal),
    "mortal, unlike": (ParallelShell, functools.partial(mortal, sizes=(2, 5, 1))),
    "mortal, limited": (ParallelShell, functools.partial(mortal, max_cycles=3)),
    "pile": (TurnShell, pile),
    "pile, unlike, gifts": (TurnShell, functools.partial(pile, takes=(3, 2), gift=0.5)),
    "pile, one leaves": (TurnShell, functools.partial(pile, last_move=1, gift=0.5)),
    "pile, limited": (TurnShell, functools.partial(pile, max_cycles=3, gift=0.5)),
    "pile, in parallel": (ParallelShell, functools.partial(pile, gift=0.5)),
}


@pytest.mark.parametrize("name", SHELLS)
def test_shells_play_like_a_batch_of_their_rules(name: str) -> None:
    """Bit for bit; but those that have died show zeros here, and what the rules show there."""
    shell, rules = SHELLS[name]
    batch = Batch(rules(), 4, seed=11)
    zoo = make_zoo_batch(lambda: shell(rules()), 4, seed=11)
    assert (zoo.agents, zoo.name.removeprefix("wrapped_")) == (batch.agents, batch.rules.name)
    assert zoo.simultaneous == (batch.rules.simultaneous and shell is ParallelShell)
    for agent in zoo.agents:
        assert zoo.observation_space(agent) == batch.rules.observation_space(agent)
        assert zoo.action_space(agent) == batch.rules.action_space(agent)
    expected, shown = batch.reset(), zoo.reset()
    assert plain(shown) == plain(expected)
    rngs = np.random.default_rng(0), np.random.default_rng(0)
    alive = np.ones((4, len(zoo.agents)), dtype=bool)
    episodes = deaths = 0
    while episodes < 12:
        actions = batch.sample_actions(rngs[0])
        assert zoo.sample_actions(rngs[1]).tolist() == actions.tolist()
        a, b = batch.step(actions), zoo.step(actions)
        for field in ("reward", "terminated", "truncated", "acting", "over"):
            assert plain(getattr(a, field)) == plain(getattr(b, field)), field
            assert getattr(a, field).dtype == getattr(b, field).dtype
        for key, values in a.info.items():
            assert np.array_equal(np.where(alive, values, 0), b.info[key])
        assert plain(batch.global_state()) == plain(zoo.global_state())
        seen = alive.copy()
        if a.finished is not None and b.finished is not None:
            episodes += len(a.finished.rows)
            for key in ("rows", "returns", "lengths", "global_state"):
                assert plain(getattr(a.finished, key)) == plain(getattr(b.finished, key)), key
            for place, row in enumerate(a.finished.rows):
                for i, agent in enumerate(zoo.agents):
                    last = row_of(b.finished.observations[agent], place)
                    if alive[row, i]:
                        assert last == row_of(a.finished.observations[agent], place)
                    else:
                        assert blank(last["observation"])
            seen[a.finished.rows] = True
        for i, agent in enumerate(zoo.agents):
            for row in range(4):
                now = row_of(b.observations[agent], row)
                if seen[row, i]:
                    assert now == row_of(a.observations[agent], row)
                else:
                    deaths += 1
                    assert blank(now)
        alive &= ~(a.terminated | a.truncated)
        alive[a.over] = True
    if name in ("mortal", "pile, one leaves"):
        assert deaths > 0
    zoo.close()


# --- Like plain loops ----------------------------------------------------------------------------


def plain_of(value: Any) -> Any:
    """Like ``plain``, for numbers as well."""
    if isinstance(value, dict):
        return {key: plain_of(part) for key, part in value.items()}
    return plain(np.asarray(value))


def arrays(observation: Any) -> dict[str, Any]:
    """An observation as ZooBatch shows it."""
    if isinstance(observation, dict) and "action_mask" in observation:
        return {key: plain_of(value) for key, value in observation.items()}
    return {"observation": plain_of(observation)}


def first_reset(env: Any, seed: int, row: int) -> None:
    rng = generator(seed, "env", row)
    if isinstance(env.unwrapped, ParallelShell | TurnShell):
        env.unwrapped.np_random = rng
        env.reset()
    else:
        env.reset(seed=int(rng.integers(2**31)))


def ring_aec(gift: float = 0.3) -> Any:
    return RingEnv(gift)


AEC: dict[str, Callable[[], Any]] = {
    "tictactoe": tictactoe_v3.env,
    "connect four": connect_four_v3.env,
    "ring": RingEnv,
    "dfaas": dfaas_aec,
    "pile, one leaves": lambda: TurnShell(pile(last_move=1, gift=0.1)),
}


def aec_loop(
    env: AECEnv[str, Any, Any], moves: list[tuple[str, int]]
) -> tuple[dict[str, float], list[Any]]:
    """An episode as PettingZoo's manual plays it: returns, and all that the movers saw."""
    returns = dict.fromkeys(env.possible_agents, 0.0)
    seen = []
    left = iter(moves)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        returns[agent] += float(reward)
        seen.append((agent, arrays(observation), terminated and not truncated, truncated))
        if terminated or truncated:
            env.step(None)
        else:
            mover, action = next(left)
            assert mover == agent
            env.step(action)
    assert next(left, None) is None
    return returns, seen


@pytest.mark.parametrize("name", AEC)
def test_aec_environments_play_like_a_plain_loop(name: str) -> None:
    """Whose turn it is, what the movers see, and every agent's return to the last bit."""
    num_envs, seed = 3, 5
    batch = make_zoo_batch(AEC[name], num_envs, seed)
    batch.reset()
    moves: list[list[tuple[str, int]]] = [[] for _ in range(num_envs)]
    looks: list[list[Any]] = [[] for _ in range(num_envs)]
    paid = np.zeros((num_envs, len(batch.agents)))
    played: list[list[Any]] = [[] for _ in range(num_envs)]
    rng = np.random.default_rng(1)
    ends = np.zeros((num_envs, len(batch.agents)), dtype=int)
    observations = batch._observations
    while min(map(len, played)) < 3:
        actions = batch.sample_actions(rng)
        assert (batch.acting.sum(axis=1) == 1).all()
        for row, i in enumerate(batch.acting.argmax(axis=1)):
            agent = batch.agents[i]
            looks[row].append((agent, row_of(observations[agent], row)))
            moves[row].append((agent, int(actions[row, i])))
        step = batch.step(actions)
        observations = step.observations
        paid += step.reward
        ends += step.terminated
        ends += step.truncated
        assert not (step.terminated & step.truncated).any()
        if step.finished is not None:
            for place, row in enumerate(step.finished.rows):
                returns = step.finished.returns[place]
                assert returns == pytest.approx(paid[row], abs=1e-4)
                assert step.finished.lengths[place] == len(moves[row])
                assert (ends[row] == 1).all()
                played[row].append((moves[row], looks[row], returns.tolist()))
                moves[row], looks[row], paid[row], ends[row] = [], [], 0, 0
    for row in range(num_envs):
        env = AEC[name]()
        first_reset(env, seed, row)
        for number, (made, shown, returns) in enumerate(played[row]):
            if number:
                env.reset()
            expected, seen = aec_loop(env, made)
            assert list(expected.values()) == returns
            alive = [(agent, look) for agent, look, *ended in seen if not any(ended)]
            assert len(alive) == len(shown)
            for (agent, look), (mover, observed) in zip(alive, shown, strict=True):
                assert agent == mover
                assert {key: observed[key] for key in look} == look
    batch.close()


def test_the_rewards_of_a_step_are_paid_in_it() -> None:
    """Not when the turn of the agent that earned them comes; at a cut nothing is lost."""
    batch = make_zoo_batch(functools.partial(ring_aec, 0.0), 1, seed=3, max_cycles=6)
    env = RingEnv(0.0)
    batch.reset()
    first_reset(env, 3, 0)
    total = np.zeros(4)
    for t in range(6):
        step = batch.step(np.full((1, 4), 1))
        env.step(1)
        own = np.array([env.rewards.get(agent, 0.0) for agent in env.possible_agents])
        total += own
        assert step.reward[0] == pytest.approx(own, abs=1e-6)
        assert np.count_nonzero(own) >= 3
        assert step.over[0] == (t == 5)
    assert step.truncated.all()
    assert not step.terminated.any()
    assert step.finished is not None
    assert step.finished.returns[0] == pytest.approx(total, abs=1e-12)


def test_a_reward_with_the_first_observation_is_in_the_return() -> None:
    with_gift = make_zoo_batch(functools.partial(ring_aec, 2.0), 1, seed=3, max_cycles=6)
    without = make_zoo_batch(functools.partial(ring_aec, 0.0), 1, seed=3, max_cycles=6)
    totals = []
    for batch in (with_gift, without):
        batch.reset()
        paid = np.zeros(4)
        for _ in range(6):
            step = batch.step(np.full((1, 4), 1))
            paid += step.reward[0]
        assert step.finished is not None
        assert step.finished.returns[0] == pytest.approx(paid, abs=1e-5)
        totals.append(step.finished.returns[0])
    assert totals[0] - totals[1] == pytest.approx([2.0] * 4)


def test_parallel_environments_play_like_a_plain_loop() -> None:
    """Box and MultiDiscrete actions, deaths, a late agent, no masks: three episodes of each."""
    num_envs, seed = 2, 9
    batch = make_zoo_batch(MixedEnv, num_envs, seed)
    observations = batch.reset()
    envs = [MixedEnv() for _ in range(num_envs)]
    for row, env in enumerate(envs):
        first_reset(env, seed, row)
    assert set(observations["walker"]) == {"observation"}
    assert observations["picker"]["observation"].shape == (num_envs,)
    assert observations["late"]["action_mask"].shape == (num_envs, 3)
    rng = np.random.default_rng(0)
    returns = np.zeros((num_envs, 3))
    episodes = 0
    while episodes < 6:
        actions = batch.sample_actions(rng)
        was_acting = batch.acting
        step = batch.step(actions)
        for row, env in enumerate(envs):
            assert [a for i, a in enumerate(batch.agents) if was_acting[row, i]] == env.agents
            given = {agent: actions[agent][row] for agent in env.agents}
            if "late" in given:
                given["late"] = int(given["late"]) + 1  # the environment counts from 1
            shown, rewards, terminations, truncations, infos = env.step(given)
            for i, agent in enumerate(batch.agents):
                returns[row, i] += rewards.get(agent, 0.0)
                assert step.reward[row, i] == np.float32(rewards.get(agent, 0.0))
                assert step.terminated[row, i] == terminations.get(agent, False)
                assert step.truncated[row, i] == truncations.get(agent, False)
                assert step.info["t"][row, i] == infos.get(agent, {"t": 0})["t"]
                source, place = step.observations, row
                if not env.agents:
                    assert step.finished is not None
                    place = step.finished.rows.tolist().index(row)
                    source = step.finished.observations
                    assert step.finished.returns[place, i] == returns[row, i]
                seen = row_of(source[agent], place)
                if agent in shown:
                    expected = shown[agent]
                    if agent == "walker":
                        expected = {**expected, "place": expected["place"].astype(np.float32)}
                    assert seen["observation"] == plain_of(expected)
                else:
                    assert blank(seen["observation"])
            assert set(step.info) == {"t", "half"}
            if not env.agents:
                env.reset()
                returns[row] = 0
                episodes += 1
    batch.close()


def test_turn_based_games_in_parallel_say_who_acts() -> None:
    """A live agent with an empty mask does not act."""
    batch = make_zoo_batch(lambda: turn_based_aec_to_parallel(tictactoe_parallel()), 2, seed=0)
    assert not batch.simultaneous
    batch.reset()
    rng = np.random.default_rng(0)
    movers = []
    for _ in range(5):
        assert (batch.acting.sum(axis=1) == 1).all()
        movers.append(int(batch.acting[0].argmax()))
        batch.step(batch.sample_actions(rng))
    assert movers[:4] == [0, 1, 0, 1]
    batch.close()


def tictactoe_parallel() -> Any:
    env = tictactoe_v3.raw_env()
    env.metadata = {**env.metadata, "is_parallelizable": False}
    return env


def test_mpe2_plays_like_a_plain_loop() -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3", reason="mpe2 is not installed")
    batch = make_zoo_batch(functools.partial(spread.parallel_env, max_cycles=6), 2, seed=4)
    batch.reset()
    env = spread.parallel_env(max_cycles=6)
    first_reset(env, 4, 1)
    rng = np.random.default_rng(0)
    returns = dict.fromkeys(batch.agents, 0.0)
    for t in range(12):
        actions = batch.sample_actions(rng)
        assert plain(env.state().astype(np.float32)) == plain(batch.global_state()[1])
        step = batch.step(actions)
        shown, rewards, *_ = env.step({a: int(actions[1, i]) for i, a in enumerate(batch.agents)})
        for agent, reward in rewards.items():
            returns[agent] += reward
        if t % 6 == 5:
            assert step.finished is not None
            assert step.truncated.all()
            assert step.finished.returns[1].tolist() == list(returns.values())
            returns = dict.fromkeys(batch.agents, 0.0)
            shown, _ = env.reset()
        for agent in batch.agents:
            assert plain(step.observations[agent]["observation"][1]) == plain(shown[agent])
    batch.close()
