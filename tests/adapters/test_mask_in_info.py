"""The mask moves from observations to infos, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

from corral.adapters import mask_in_info
from corral.envs import dfaas_v0, probes, tictactoe_v0, tiles_v0
from corral.errors import IllegalActionError, UnsupportedSpaceError
from support.loads import small_trace
from support.messages import refused
from support.zoo_envs import MixedEnv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PettingZoo's tests import an environment it has deprecated
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test


def dfaas(**kwargs: Any) -> Any:
    return dfaas_v0.parallel_env(trace=small_trace(), max_cycles=9, illegal="raise", **kwargs)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


def legal(rng: np.random.Generator, mask: Any) -> int:
    return int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize("build", [dfaas, lambda: probes.parallel_env("probe_p10_v0")])
def test_a_parallel_game_is_the_same_but_for_the_place_of_masks(build: Any) -> None:
    env, plain = mask_in_info(build()), build()
    rng = np.random.default_rng(0)
    played = 0
    for seed in range(4):
        seen, infos = env.reset(seed=seed)
        theirs, told = plain.reset(seed=seed)
        while True:
            assert env.agents == plain.agents
            assert seen.keys() == theirs.keys()
            for agent in seen:
                assert same(seen[agent], theirs[agent]["observation"])
                assert seen[agent] in env.observation_space(agent)
                expected = {**told[agent], "action_mask": theirs[agent]["action_mask"]}
                assert same(infos[agent], expected)
            if not env.agents:
                break
            actions = {a: legal(rng, infos[a]["action_mask"]) for a in env.agents}
            seen, *rest, infos = env.step(actions)
            theirs, *others, told = plain.step(actions)
            assert rest == others
            played += 1
    assert played >= 8


@pytest.mark.parametrize(
    "build",
    [tictactoe_v0.env, tiles_v0.env, lambda: dfaas_v0.env(trace=small_trace(), max_cycles=9)],
)
def test_a_game_in_turns_is_the_same_but_for_the_place_of_masks(build: Any) -> None:
    env, plain = mask_in_info(build()), build()
    rng = np.random.default_rng(0)
    turns = 0
    for seed in range(3):
        env.reset(seed=seed)
        plain.reset(seed=seed)
        for agent in plain.agent_iter():
            assert env.agent_selection == agent
            seen, *rest, info = env.last()
            theirs, *others, told = plain.last()
            assert rest == others
            assert same(seen, theirs["observation"])
            assert seen in env.observation_space(agent)
            assert same(info, {**told, "action_mask": theirs["action_mask"]})
            for each in plain.agents:
                assert same(env.infos[each]["action_mask"], plain.observe(each)["action_mask"])
            nothing, *_, again = env.last(observe=False)
            assert nothing is None
            assert same(again, info)
            over = rest[1] or rest[2]
            action = None if over else legal(rng, info["action_mask"])
            env.step(action)
            plain.step(action)
            turns += 1
        assert env.agents == plain.agents == []
    assert turns > 20


def test_spaces_lose_the_mask_alone() -> None:
    env, plain = mask_in_info(tiles_v0.env()), tiles_v0.env()
    for agent in plain.possible_agents:
        assert env.observation_space(agent) == plain.observation_space(agent)["observation"]
        assert isinstance(env.observation_space(agent), spaces.Dict)
        assert env.observation_spaces[agent] == env.observation_space(agent)
        assert env.action_space(agent) == plain.action_space(agent)
    parallel = mask_in_info(dfaas())
    assert isinstance(parallel.observation_spaces["node_0"], spaces.Box)


def test_other_entries_beside_the_mask_stay_in_a_dict() -> None:
    class WithMore(MixedEnv):
        def observation_space(self, agent: str) -> Any:
            own = super().observation_space(agent)
            if agent != "late":
                return own
            mask = spaces.Box(0, 1, (3,), np.int8)
            return spaces.Dict(
                {"observation": own, "turn": spaces.Discrete(9), "action_mask": mask}
            )

        def _shown(self, agents: Any) -> Any:
            shown = super()._shown(agents)
            if "late" in shown:
                mask = np.array([1, 0, 1], np.int8)
                shown["late"] = {"observation": shown["late"], "turn": self.t, "action_mask": mask}
            return shown

    env = mask_in_info(WithMore())
    assert set(env.observation_space("late").spaces) == {"observation", "turn"}
    assert env.observation_space("picker") == spaces.Discrete(9)  # it never had a mask
    _, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    came = 0
    while env.agents:
        actions = {a: env.action_space(a).sample() for a in env.agents}
        if "late" in env.agents:
            actions["late"] = 1 + legal(rng, infos["late"]["action_mask"])
        seen, *_, infos = env.step(actions)
        assert all("action_mask" not in infos[a] for a in infos if a != "late")
        if "late" in infos:
            came += 1
            assert set(seen["late"]) == {"observation", "turn"}
            assert infos["late"]["action_mask"].tolist() == [1, 0, 1]
    assert came > 1


def test_the_mask_is_a_copy_and_the_environment_still_judges_by_its_own() -> None:
    env = mask_in_info(dfaas())
    _, infos = env.reset(seed=0)
    masks = {agent: infos[agent]["action_mask"] for agent in env.agents}
    wrong = {a: int(np.argmin(mask)) for a, mask in masks.items()}
    assert any(masks[a][wrong[a]] == 0 for a in wrong)
    for mask in masks.values():
        mask[:] = 1
    with pytest.raises(IllegalActionError):
        env.step(wrong)


def test_what_has_no_mask_to_move_is_refused() -> None:
    with refused(UnsupportedSpaceError, "mixed_v0", '"action_mask"'):
        mask_in_info(MixedEnv())
    with refused(UnsupportedSpaceError, "dfaas_v0", '"action_mask"'):
        mask_in_info(mask_in_info(dfaas()))
    with refused(UnsupportedSpaceError, "dict", "ParallelEnv", "AECEnv"):
        mask_in_info({})


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_alike(duplicate: Any) -> None:
    rng = np.random.default_rng(0)
    env = mask_in_info(dfaas())
    _, infos = env.reset(seed=1)
    twin = duplicate(env)
    for _ in range(9):
        actions = {a: legal(rng, infos[a]["action_mask"]) for a in env.agents}
        *rest, infos = env.step(actions)
        assert same(dict(enumerate([*rest, infos])), dict(enumerate(twin.step(actions))))
    turns = mask_in_info(tictactoe_v0.env())
    turns.reset(seed=0)
    turns.step(4)
    twin = duplicate(turns)
    assert same(twin.last()[-1], turns.last()[-1])
    assert twin.last()[-1]["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_attributes_are_the_environments_own() -> None:
    env = mask_in_info(dfaas(render_mode="ansi"))
    env.reset(seed=0)
    assert env.possible_agents == env.unwrapped.possible_agents
    assert env.metadata["name"] == "dfaas_v0"
    assert isinstance(env.render(), str)
    assert env.state() in env.state_space
    env.close()


# PettingZoo's seed tests look for masks in observations only: illegal actions are warned of.
# Its api test takes an empty board, and agents that differ, for slips.
@pytest.mark.filterwarnings(
    "ignore::corral.errors.IllegalActionWarning",
    "ignore:Observation numpy array is all zeros:UserWarning",
    "ignore:Observation is not a NumPy array:UserWarning",
    "ignore:Observation space for each agent probably should be:UserWarning",
    "ignore:Agents have different observation space sizes:UserWarning",
)
def test_pettingzoo_finds_nothing_amiss(capsys: pytest.CaptureFixture[str]) -> None:
    def parallel() -> Any:
        return mask_in_info(dfaas_v0.parallel_env(trace=small_trace(), max_cycles=9))

    for env in (tictactoe_v0.env(), tiles_v0.env(), dfaas_v0.env(trace=small_trace())):
        api_test(mask_in_info(env), num_cycles=100)
    api_test(parallel_to_aec(parallel()), num_cycles=100)
    parallel_api_test(parallel(), num_cycles=100)
    parallel_api_test(mask_in_info(probes.parallel_env("probe_p10_v0")), num_cycles=50)
    parallel_api_test(aec_to_parallel(mask_in_info(dfaas_v0.env(trace=small_trace()))), 50)
    parallel_seed_test(parallel)
    seed_test(lambda: mask_in_info(dfaas_v0.env(trace=small_trace(), max_cycles=9)), num_cycles=30)
    out = capsys.readouterr().out
    assert out.count("Passed API test") == 4
    assert out.count("Passed Parallel API test") == 3
