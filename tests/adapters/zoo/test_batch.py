"""ZooBatch plays what plain PettingZoo loops play, as Batch would show it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from corral.adapters.zoo.batch import make_zoo_batch, zoo_rules
from corral.envs.batch import Batch
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell, TurnShell, ordered
from corral.errors import (
    ActionError,
    CheckpointError,
    EnvironmentFault,
    IllegalActionError,
    ResetNeededError,
    UnsupportedSpaceError,
)
from support.bits_env import STEPS, BitsEnv, bits
from support.contract import plain
from support.loads import small_trace
from support.turn_rules import MortalRules, PileRules
from support.zoo_envs import MixedEnv, RingEnv, SleepyEnv, trajectory

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


# --- Seeds, limits, state ------------------------------------------------------------------------


def test_64_copies_have_64_streams_and_a_seed_says_which() -> None:
    batch = make_zoo_batch(MixedEnv, 64, seed=7)
    batch.reset()
    numbers = {float(copy.env.rng.random()) for copy in batch._group._copies}  # type: ignore[attr-defined]
    assert len(numbers) == 64
    small = [make_zoo_batch(MixedEnv, 2, seed=seed) for seed in (7, 7, 8)]
    first, same, other = map(trajectory, small)
    assert first == same
    assert first != other
    unseeded = make_zoo_batch(MixedEnv, 2)
    played = trajectory(unseeded)
    assert played != first
    assert isinstance(unseeded.seed, int)
    assert trajectory(make_zoo_batch(MixedEnv, 2, unseeded.seed)) == played


def test_reset_goes_on_and_with_a_seed_begins_again() -> None:
    batch = make_zoo_batch(RingEnv, 2, seed=7)
    first = plain(batch.reset())
    assert plain(batch.reset()) != first
    assert plain(batch.reset(7)) == first
    assert plain(make_zoo_batch(RingEnv, 2, seed=8).reset(7)) == first


def test_the_time_limit_cuts_and_does_not_end() -> None:
    batch = make_zoo_batch(functools.partial(SleepyEnv, 0.0), 2, seed=0, max_cycles=3)
    batch.reset()
    steps = [batch.step(np.zeros((2, 2), int)) for _ in range(6)]
    assert [bool(step.over.all()) for step in steps] == [False, False, True] * 2
    assert all((step.truncated == step.over[:, None]).all() for step in steps)
    assert not any(step.terminated.any() for step in steps)
    assert steps[5].finished is not None
    assert steps[5].finished.returns.tolist() == [[3.0, 3.0]] * 2
    assert batch.max_cycles == 3


def test_an_environment_without_state_shows_all_observations_as_one() -> None:
    batch = make_zoo_batch(MixedEnv, 2, seed=0)
    batch.reset()
    walker, picker, late = 5, 1, 2
    assert batch.global_state().shape == (2, walker + picker + late)
    assert batch.rules.state_space().shape == (8,)
    step = batch.step(batch.sample_actions(np.random.default_rng(0)))
    seen = step.observations["walker"]["observation"]
    expected = np.concatenate([seen["place"], seen["seen"], [[1, 0, 0]] * 2], axis=1)
    assert plain(batch.global_state()) == plain(expected.astype(np.float32))
    own = make_zoo_batch(lambda: ParallelShell(dfaas()), 2, seed=0)
    assert own.rules.state_space().shape == dfaas().state_space().shape


def test_nothing_to_save() -> None:
    batch = make_zoo_batch(RingEnv, 1, seed=0)
    batch.reset()
    assert not batch.resumes_exactly
    with pytest.raises(CheckpointError, match="state cannot be saved"):
        batch.snapshot()
    with pytest.raises(CheckpointError, match=r"reset\(\)"):
        batch.restore({})
    assert batch.autoreset_mode == Batch.autoreset_mode


# --- Wrong actions, wrong environments -----------------------------------------------------------


def test_illegal_and_malformed_actions_change_nothing() -> None:
    batch = make_zoo_batch(tictactoe_v3.env, 2, seed=0)
    with pytest.raises(ResetNeededError):
        batch.step(np.zeros((2, 2), int))
    batch.reset()
    batch.step(np.full((2, 2), 4))
    before = plain(batch.global_state())
    with pytest.raises(IllegalActionError, match=r"copy 0, player_2: action 4 is illegal"):
        batch.step(np.full((2, 2), 4))
    with pytest.raises(
        ActionError, match=r"copy 1, player_2: action 9 is out of range; give 0\.\."
    ):
        batch.step(np.array([[0, 0], [0, 9]]))
    for wrong in (np.zeros((2, 2)), np.zeros((2, 3), int), [[0], [0, 0]], {"player_1": 0}, None):
        with pytest.raises(ActionError):
            batch.step(wrong)  # type: ignore[arg-type]
    assert plain(batch.global_state()) == before
    step = batch.step(np.array([[77, 0], [-5, 0]]))  # whoever does not act may say anything
    assert step.acting[:, 0].all()


def test_malformed_box_and_multidiscrete_actions() -> None:
    batch = make_zoo_batch(MixedEnv, 2, seed=0)
    batch.reset()
    good = batch.sample_actions(np.random.default_rng(0))
    wrong: list[dict[str, Any]] = [
        {"walker": np.array([[np.nan, 0], [0, 0]])},
        {"walker": np.array([[0, 0], [1.5, 0]])},
        {"walker": np.array([[0, 0], [0, np.inf]])},
        {"walker": np.zeros(2)},
        {"walker": [["a", "b"], ["a", "b"]]},
        {"picker": np.array([[0, 4], [0, 0]])},
        {"picker": np.array([[0.0, 1.0], [0, 0]])},
        {"stranger": np.zeros(2)},
    ]
    for change in wrong:
        with pytest.raises(ActionError):
            batch.step({**good, **change})
    with pytest.raises(ActionError, match="walker, picker, late"):
        batch.step(np.zeros((2, 3), int))
    assert not batch.step(good).over.any()


@pytest.mark.parametrize(
    ("lose", "match"),
    [
        ("shape", r"late: an observation of shape \(3,\)"),
        ("values", "values would be lost"),
        ("reward", "no reward of walker"),
        ("vanish", "picker left without termination"),
        ("stranger", "'nobody' is none of possible_agents"),
    ],
)
def test_environments_that_break_the_rules_are_told_so(lose: str, match: str) -> None:
    batch = make_zoo_batch(functools.partial(MixedEnv, lose=lose), 2, seed=0)
    batch.reset()
    rng = np.random.default_rng(0)
    batch.step(batch.sample_actions(rng))
    with pytest.raises(EnvironmentFault, match=match) as caught:
        batch.step(batch.sample_actions(rng))
    assert "copy 0 (first reset with seed=" in caught.value.__notes__[0]
    with pytest.raises(ResetNeededError, match="closed"):
        batch.reset()


class OddSpaces(SleepyEnv):
    """With spaces of choice."""

    def __init__(self, seen: Any, act: Any) -> None:
        super().__init__(0.0)
        self.seen, self.act = seen, act

    def observation_space(self, agent: str) -> Any:
        return self.seen

    def action_space(self, agent: str) -> Any:
        return self.act


BOX = spaces.Box(0, 1, (4,), np.float32)
MASKED = spaces.Dict({"observation": BOX, "action_mask": spaces.Box(0, 1, (2,), np.int8)})


@pytest.mark.parametrize(
    ("seen", "act", "match"),
    [
        (BOX, spaces.MultiBinary(2), "action space MultiBinary"),
        (BOX, spaces.Tuple([spaces.Discrete(2)]), "action space Tuple"),
        (spaces.Text(4), spaces.Discrete(2), "observation space Text"),
        (spaces.Tuple([spaces.Text(4)]), spaces.Discrete(2), "observation space Text"),
        (MASKED, spaces.MultiDiscrete([2, 2]), "masks are for Discrete"),
    ],
)
def test_spaces_that_are_not_handled_are_named(seen: Any, act: Any, match: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=match):
        make_zoo_batch(lambda: OddSpaces(seen, act), 1, seed=0)


def test_what_is_no_environment_and_arguments_out_of_range() -> None:
    with pytest.raises(UnsupportedSpaceError, match="no PettingZoo environment"):
        make_zoo_batch(lambda: object(), 1, seed=0)
    wrong: dict[str, Any]
    for wrong in ({"num_envs": 0}, {"workers": -1}, {"deadline": 0.0}, {"max_cycles": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_zoo_batch(RingEnv, **{"num_envs": 1, **wrong})


class ChangedMask(SleepyEnv):
    """Puts the mask where PettingZoo also allows it: into info."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        shown, _ = super().reset(seed)
        return shown, {agent: {"action_mask": np.array([0, 1])} for agent in self.agents}


def test_masks_in_info_are_heeded() -> None:
    batch = make_zoo_batch(functools.partial(ChangedMask, 0.0), 2, seed=0)
    observations = batch.reset()
    assert observations["a"]["action_mask"].tolist() == [[0, 1]] * 2
    with pytest.raises(IllegalActionError):
        batch.step(np.zeros((2, 2), int))
    observations["a"]["action_mask"][...] = 1  # the caller's, to change at will
    with pytest.raises(IllegalActionError):
        batch.step(np.array([[0, 1]] * 2))
    assert batch.step(np.ones((2, 2), int)).observations["b"]["action_mask"].all()


# --- States --------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [False, True])
def test_a_state_that_is_gone_at_the_end_is_the_last_one(turns: bool) -> None:
    """``state()`` raises once the agents are gone, as that of PettingZoo's multiwalker."""
    with make_zoo_batch(functools.partial(bits, turns=turns, stateful=True), 2, seed=0) as batch:
        batch.reset()
        ends = 0
        for _ in range(4 * STEPS):
            before = batch.global_state()
            step = batch.step(np.zeros((2, 2), dtype=int))
            if step.finished is not None:
                ends += 1
                assert step.finished.global_state.tolist() == before.tolist()
                assert (batch.global_state()[:, 0] == 0).all()  # of the next episode
        assert ends == (2 if turns else 4)


def test_a_state_that_raises_in_mid_episode_is_the_environments_fault() -> None:
    class Broken(BitsEnv):
        def state(self) -> Any:
            if self.t == 2:
                raise AttributeError("no state")
            return super().state()

    batch = make_zoo_batch(functools.partial(Broken, stateful=True), 1, seed=0)
    batch.reset()
    batch.step(np.zeros((1, 2), dtype=int))
    with pytest.raises(AttributeError, match="no state"):
        batch.step(np.zeros((1, 2), dtype=int))


def test_rules_without_a_state_ask_for_none() -> None:
    class Costly(BitsEnv):
        def state(self) -> Any:
            raise AssertionError("nobody needs it")

    rules = zoo_rules(functools.partial(BitsEnv, stateful=True))
    assert rules.state_space().shape == (3,)
    rules = dataclasses.replace(rules.without_state(), make_env=Costly)
    assert rules.state_space().shape == (0,)
    with rules.make_batch(2, 0) as batch:
        batch.reset()
        for _ in range(STEPS):
            step = batch.step(batch.sample_actions(np.random.default_rng(0)))
        assert step.finished.global_state.shape == (2, 0)


def test_copies_at_rest_are_not_stepped() -> None:
    with make_zoo_batch(BitsEnv, 3, seed=0) as batch, make_zoo_batch(BitsEnv, 3, seed=0) as twin:
        batch.reset()
        twin.reset()
        steps = [each.step(np.zeros((3, 2), dtype=int)) for each in (batch, twin)]
        batch.rest(np.array([1]))
        for _ in range(2 * STEPS):
            steps = [each.step(np.zeros((3, 2), dtype=int)) for each in (batch, twin)]
            assert steps[0].acting.tolist() == [[True] * 2, [False] * 2, [True] * 2]
            rows = [0, 2]
            for key in ("reward", "terminated", "acting"):
                one, other = (getattr(step, key) for step in steps)
                assert one[rows].tolist() == other[rows].tolist()
            assert not steps[0].reward[1].any()
        assert batch._group._copies[1].env.t == 1  # type: ignore[union-attr]
        assert batch.reset() is not None  # all begin anew
        assert batch.acting.all()
