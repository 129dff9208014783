"""Batch plays what PettingZoo environments play, row by row, and never an illegal action."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from corral.envs.arena_v0 import ArenaRules
from corral.envs.batch import Batch, BatchStep, make_batch
from corral.envs.core import Outcome, generator, stack_agents
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import ResetNeededError, UnknownNameError
from support.contract import plain
from support.loads import small_trace
from support.steady_rules import SteadyRules, SteadyState
from support.turn_rules import MortalRules, PileRules

dfaas = functools.partial(
    DfaasRules, trace=small_trace(nodes=4), max_cycles=7, queue=5, illegal="raise"
)
mortal = functools.partial(MortalRules, illegal="raise")
pile = functools.partial(PileRules, illegal="raise")

RULES: dict[str, Callable[..., Any]] = {
    "dfaas equal": dfaas,
    "dfaas two": functools.partial(dfaas, route="two", second_offer=False, wait_cost=0.1),
    "dfaas team": functools.partial(dfaas, reward="team", queue=0),
    "arena": functools.partial(ArenaRules, 3, 2, max_cycles=9, walls="mask", illegal="raise"),
    "mortal": mortal,
    "mortal, unlike agents": functools.partial(mortal, sizes=(2, 5, 1)),
    "mortal, limited": functools.partial(mortal, max_cycles=3),
    "mortal, ends told once": functools.partial(mortal, tell="once", max_cycles=5),
}
TURNS: dict[str, Callable[..., Any]] = {
    "pile": pile,
    "pile, unlike agents": functools.partial(pile, takes=(3, 2), gift=0.5),
    "pile, one leaves": functools.partial(pile, last_move=1, gift=0.5),
    "pile, told once": functools.partial(pile, last_move=2, tell="once"),
    "pile, limited": functools.partial(pile, max_cycles=3),
}


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
    with pytest.raises(ValueError, match="seed -1"):
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


# --- Snapshots -----------------------------------------------------------------------------------


def play(batch: Batch, rng: np.random.Generator, steps: int) -> list[Any]:
    """All that some steps show, as plain data."""
    record = []
    for _ in range(steps):
        step = batch.step(batch.sample_actions(rng))
        shown = [plain(step.observations), plain(step.reward), plain(step.info)]
        shown += [plain(step.terminated), plain(step.truncated), plain(step.acting)]
        if step.finished is not None:
            shown += [plain(step.finished.returns), plain(step.finished.observations)]
        record.append(shown)
    return record


@pytest.mark.parametrize("name", [*RULES, *TURNS])
@pytest.mark.parametrize("before", [0, 4])
def test_a_restored_snapshot_goes_on_bit_for_bit(name: str, before: int) -> None:
    rules = {**RULES, **TURNS}[name]
    batch = Batch(rules(), 3, 8)
    batch.reset()
    play(batch, np.random.default_rng(0), before)
    observations = plain(batch._observations)
    snapshot = batch.snapshot()
    played = play(batch, np.random.default_rng(1), 20)

    fresh = Batch(rules(), 3, 99)
    assert plain(fresh.restore(copy.deepcopy(snapshot))) == observations
    assert play(fresh, np.random.default_rng(1), 20) == played
    # The snapshot is a copy: neither who took it nor who restored it changes it.
    assert plain(fresh.restore(snapshot)) == observations
    assert play(fresh, np.random.default_rng(1), 20) == played
    assert play(batch, np.random.default_rng(2), 5) == play(fresh, np.random.default_rng(2), 5)


def edited(snapshot: dict[str, Any], **arrays: Any) -> dict[str, Any]:
    return {**snapshot, "arrays": {**snapshot["arrays"], **arrays}}


def misfits(snapshot: dict[str, Any]) -> dict[str, Any]:
    arrays, generators = snapshot["arrays"], snapshot["generators"]
    philox = np.random.Philox(0).state
    return {
        "an array too few": {
            **snapshot,
            "arrays": {k: v for k, v in arrays.items() if k != "state.t"},
        },
        "an array too many": edited(snapshot, other=np.zeros(3)),
        "another dtype": edited(snapshot, elapsed=arrays["elapsed"].astype(np.int32)),
        "another shape": edited(snapshot, **{"state.queue": arrays["state.queue"][:, :2]}),
        "a generator too few": {**snapshot, "generators": generators[:-1]},
        "a generator of another kind": {**snapshot, "generators": [*generators[:-1], philox]},
        "a generator without numbers": {
            **snapshot,
            "generators": [*generators[:-1], {"bit_generator": "PCG64"}],
        },
        "no generators": {"arrays": arrays},
        "no arrays": {"generators": generators},
        "nothing": {},
        "of fewer copies": Batch(dfaas(), 2, 0),
        "of another route": Batch(dfaas(route="two"), 3, 0),
        "of another trace": Batch(dfaas(trace=small_trace(nodes=3)), 3, 0),
        "of other rules": Batch(mortal(), 3, 0),
    }


MISFITS = (
    "an array too few",
    "an array too many",
    "another dtype",
    "another shape",
    "a generator too few",
    "a generator of another kind",
    "a generator without numbers",
    "no generators",
    "no arrays",
    "nothing",
    "of fewer copies",
    "of another route",
    "of another trace",
    "of other rules",
)


@pytest.mark.parametrize("which", MISFITS)
def test_snapshots_that_do_not_fit_are_refused_and_change_nothing(which: str) -> None:
    batch, twin = Batch(dfaas(), 3, 8), Batch(dfaas(), 3, 8)
    for each in (batch, twin):
        each.reset()
        play(each, np.random.default_rng(0), 4)
    misfit = misfits(batch.snapshot())[which]
    if isinstance(misfit, Batch):
        misfit.reset()
        misfit = misfit.snapshot()
    with pytest.raises(ValueError, match=r"snapshot|state must be|generator"):
        batch.restore(misfit)
    assert play(batch, np.random.default_rng(1), 20) == play(twin, np.random.default_rng(1), 20)
    assert len(misfits(batch.snapshot())) == len(MISFITS)


# --- Legal actions -------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(40,) * 4, (1, 2, 7, 40)], ids=["alike", "unlike"])
def test_a_million_samples_are_legal(sizes: tuple[int, ...]) -> None:
    """Random masks from one legal action to nearly all; 250 copies, 4 agents, 1000 draws."""
    num_envs, draws = 250, 1_000
    batch = Batch(mortal(sizes, lives=(9,) * 4), num_envs, 0)
    observations = batch.reset()
    masks = [observations[agent]["action_mask"] for agent in batch.agents]
    assert min(int(mask.sum(axis=1).min()) for mask in masks) == 1
    rows = np.arange(num_envs)
    rng = np.random.default_rng(0)
    illegal = samples = 0
    for _ in range(draws):
        actions = batch.sample_actions(rng)
        assert actions.dtype == np.int64
        assert actions.shape == (num_envs, 4)
        for i, mask in enumerate(masks):
            illegal += int((mask[rows, actions[:, i]] == 0).sum())
        samples += actions.size
    assert (samples, illegal) == (1_000_000, 0)


@pytest.mark.parametrize("sizes", [(6,) * 3, (3, 6, 40)], ids=["alike", "unlike"])
def test_samples_are_uniform_over_the_legal_actions(sizes: tuple[int, ...]) -> None:
    num_envs, draws = 30, 3_000
    batch = Batch(mortal(sizes, lives=(9,) * 3), num_envs, 1)
    observations = batch.reset()
    counts = [np.zeros((num_envs, size)) for size in sizes]
    rng = np.random.default_rng(0)
    rows = np.arange(num_envs)
    for _ in range(draws):
        actions = batch.sample_actions(rng)
        for i, count in enumerate(counts):
            count[rows, actions[:, i]] += 1
    for agent, count in zip(batch.agents, counts, strict=True):
        mask = observations[agent]["action_mask"]
        legal = mask.sum(axis=1, keepdims=True)
        expected = mask * (draws / legal)
        assert (count[mask == 0] == 0).all()
        chi_square = ((count - expected) ** 2 / np.maximum(expected, 1)).sum()
        freedom = int((legal - 1).sum())
        assert freedom > 15
        assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)  # five standard deviations


@pytest.mark.parametrize("name", [*RULES, *TURNS])
def test_agents_that_do_not_act_are_given_0_and_may_be_given_anything(name: str) -> None:
    rules = {**RULES, **TURNS}[name]
    batch, twin = Batch(rules(), 6, 2), Batch(rules(), 6, 2)
    batch.reset()
    twin.reset()
    rng = np.random.default_rng(0)
    idle = 0
    for _ in range(20):
        actions = batch.sample_actions(rng)
        rest = ~batch.acting
        assert (actions[rest] == 0).all()
        idle += int(rest.sum())
        # Their entries are ignored, even those out of range.
        step, other = batch.step(actions), twin.step(np.where(rest, 10**6, actions))
        assert plain(step.observations) == plain(other.observations)
        assert plain(step.reward) == plain(other.reward)
    assert (idle > 0) == (not name.startswith(("dfaas", "arena")))


def test_stacked_masks_are_those_of_the_agents() -> None:
    batch = Batch(dfaas(), 5, 0)
    observations = batch.reset()
    for key in ("observation", "action_mask"):
        block = stack_agents(observations, key)
        assert block.shape[:2] == (5, 4)
        for i, agent in enumerate(batch.agents):
            np.testing.assert_array_equal(block[:, i], observations[agent][key])
        apart = {agent: {key: seen[key].copy()} for agent, seen in observations.items()}
        np.testing.assert_array_equal(stack_agents(apart, key), block)


@pytest.mark.parametrize("name", ["dfaas equal", "mortal, unlike agents"])
def test_masks_can_be_taken_out_of_the_observations(name: str) -> None:
    """Adapters move the mask elsewhere: legality does not hang on the dicts handed out."""
    batch = Batch(RULES[name](), 4, 0)
    observations = batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(10):
        masks = [observations[agent].pop("action_mask") for agent in batch.agents]
        actions = batch.sample_actions(rng)
        for i, mask in enumerate(masks):
            chosen = mask[np.arange(4), actions[:, i]]
            assert (chosen[batch.acting[:, i]] == 1).all()
        observations = batch.step(actions).observations


# --- Making one ----------------------------------------------------------------------------------


def test_make_batch_takes_names_and_rules() -> None:
    named = make_batch("dfaas_v0", num_envs=3, seed=4, trace=small_trace(), max_cycles=5)
    given = make_batch(DfaasRules(trace=small_trace(), max_cycles=5), num_envs=3, seed=4)
    assert plain(named.reset()) == plain(given.reset())
    assert named.num_envs == 3
    modes = getattr(gymnasium.vector, "AutoresetMode", None)  # Gymnasium 1.0 has no names for them
    assert named.autoreset_mode == ("SameStep" if modes is None else modes.SAME_STEP)
    with pytest.raises(ValueError, match=r"arguments \['queue'\] need an environment's name"):
        make_batch(DfaasRules(trace=small_trace()), queue=3)
    with pytest.raises(UnknownNameError, match="did you mean 'dfaas_v0'"):
        make_batch("dfas_v0")
    with pytest.raises(ValueError, match="num_envs=0"):
        make_batch("dfaas_v0", num_envs=0, trace=small_trace())


@pytest.mark.parametrize("call", ["step", "sample_actions", "global_state", "snapshot"])
def test_before_reset_there_is_nothing(call: str) -> None:
    batch = Batch(dfaas(), 2, 0)
    arguments: dict[str, tuple[Any, ...]] = {
        "step": (np.zeros((2, 4), dtype=int),),
        "sample_actions": (np.random.default_rng(0),),
    }
    with pytest.raises(ResetNeededError, match=r"call reset\(\) first"):
        getattr(batch, call)(*arguments.get(call, ()))


def test_a_snapshot_of_other_rules_is_refused() -> None:
    """Same shapes, another game: it was taken."""
    batch = make_batch("dfaas_v0", num_envs=2, seed=0, trace=small_trace(), queue=3)
    batch.reset()
    taken = batch.snapshot()
    for other in ({"queue": 4}, {"queue": 3, "forward_cost": 0.5}, {"queue": 3, "route": "spare"}):
        misfit = make_batch("dfaas_v0", num_envs=2, seed=0, trace=small_trace(), **other)
        misfit.reset()
        with pytest.raises(ValueError, match="another environment, other arguments, or another"):
            misfit.restore(taken)


class PaidBySeven(SteadyRules):
    """Pays 7, out of an array of the state, in which fresh episodes have 1."""

    def step(self, state: SteadyState, action: np.ndarray) -> Outcome[SteadyState]:
        state.pay[...] = 7.0
        return super().step(state, action)


def test_the_last_reward_of_an_episode_is_not_that_of_the_next() -> None:
    batch = make_batch(PaidBySeven(max_cycles=2), num_envs=3, seed=0)
    batch.reset()
    for _ in range(4):
        step = batch.step(np.zeros((3, 2), dtype=np.int64))
        assert step.reward.tolist() == [[7.0, 7.0]] * 3
    assert step.finished is not None
    assert step.finished.returns.tolist() == [[14.0, 14.0]] * 3
