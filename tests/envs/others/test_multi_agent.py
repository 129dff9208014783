"""RLlib's MultiAgentEnv classes, without Ray, as PettingZoo environments."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import corral
from corral.adapters import MultiAgentEnv, from_multi_agent_env, make_batch
from corral.adapters.sources import resolve, rules_of
from corral.envs import check_env
from corral.errors import EnvironmentFault
from support.messages import refused, shown
from support.rllib_envs import (
    Arena,
    Corridors,
    Endless,
    Faulty,
    RockPaperScissors,
    TicTacToe,
    TupleObservations,
)


@pytest.mark.parametrize("kind", [Arena, RockPaperScissors, TicTacToe, Corridors])
def test_each_form_passes_the_checks(kind: Any) -> None:
    found = check_env(kind, processes=False, seeds=(0, 1))
    assert not found.errors, found.text()
    assert not found.warnings, found.text()
    assert kind.__name__ in found.text()


@pytest.mark.filterwarnings("ignore")  # PettingZoo's own
def test_pettingzoo_itself_is_content() -> None:
    pytest.importorskip("pygame", reason="PettingZoo's tests import its classic games")
    from pettingzoo.test import parallel_api_test

    parallel_api_test(from_multi_agent_env(RockPaperScissors), num_cycles=50)


def test_four_values_and_a_reset_without_a_seed() -> None:
    env = from_multi_agent_env(Arena, {"ts": 2})
    assert isinstance(env, ParallelEnv)
    observations, infos = env.reset(seed=3)
    assert (list(observations), infos) == (["agent1", "agent2"], {"agent1": {}, "agent2": {}})
    _, rewards, ends, cuts, _ = env.step({"agent1": 1, "agent2": 0})
    assert rewards == {"agent1": 1.0, "agent2": 1.0}
    assert not any({**ends, **cuts}.values())
    _, _, ends, cuts, _ = env.step({"agent1": 1, "agent2": 0})
    assert ends == {"agent1": True, "agent2": True}
    assert not any(cuts.values())
    assert env.agents == []


def test_the_time_limit_of_the_old_gym_is_a_cut() -> None:
    class Timed(Arena):
        def step(self, action_dict: Any) -> Any:
            observations, rewards, dones, infos = super().step(action_dict)
            infos["agent1"] = {"TimeLimit.truncated": True}
            dones = {**dones, "agent1": dones["__all__"]}
            return observations, rewards, dones, infos

    env = from_multi_agent_env(Timed, {"ts": 1})
    env.reset()
    _, _, ends, cuts, _ = env.step({"agent1": 1, "agent2": 0})
    assert (ends, cuts) == ({"agent1": False, "agent2": True}, {"agent1": True, "agent2": False})


def test_who_is_observed_acts_and_who_waits_is_shown_by_its_mask() -> None:
    env = from_multi_agent_env(TicTacToe)
    observations, infos = env.reset(seed=0)
    (waits,) = env.waiting
    (moves,) = set(env.agents) - env.waiting
    assert infos[waits]["action_mask"].tolist() == [0] * 9
    assert infos[moves]["action_mask"].tolist() == [1] * 9
    observations, *_ = env.step({moves: 4, waits: 0})  # the other's action is not passed on
    assert observations[waits][4] == -1
    assert env.waiting == {moves}
    rules: Any = rules_of(TicTacToe)
    assert not rules.simultaneous
    batch = rules.make_batch(2, 0)
    batch.reset()
    assert batch.acting.sum(axis=1).tolist() == [1, 1]


def test_rewards_of_those_who_are_not_observed_are_not_lost() -> None:
    batch = make_batch(Corridors, num_envs=1, seed=0)
    batch.reset()
    rng, seen = np.random.default_rng(0), []
    for _ in range(12):
        seen.append(batch.acting[0].tolist())
        step = batch.step(batch.sample_actions(rng))
        if step.finished is not None:
            break
    assert seen[:3] == [[True] * 3, [True, False, False], [True, True, False]]
    assert step.finished is not None
    assert step.finished.returns.tolist() == [[12.0, 12.0, 5.0]]
    assert batch.agents == ("agent_0", "agent_1", "agent_2")
    assert step.truncated[0].tolist() == [True, True, False]  # the third was cut before


def test_agents_come_from_the_first_reset_or_are_given() -> None:
    assert from_multi_agent_env(Arena).possible_agents == ["agent1", "agent2"]
    given = from_multi_agent_env(Arena, agents=["agent2", "agent1", "agent3"])
    assert given.possible_agents == ["agent2", "agent1", "agent3"]
    typed = from_multi_agent_env(Arena, agents="agent1,agent2")  # --arg agents=agent1,agent2
    assert typed.possible_agents == ["agent1", "agent2"]
    given.reset()
    assert given.waiting == {"agent3"}
    assert "agent3" in rules_of(Arena, {"agents": ["agent1", "agent2", "agent3"]}).agents


def test_spaces_by_agent_may_be_a_dict_space_or_a_method() -> None:
    class ByMethod(Arena):
        def get_action_space(self, agent_id: Any) -> Any:
            return spaces.Discrete(2 if agent_id == "agent1" else 3)

    class ByDict(Arena):
        def __init__(self, config: Any = None) -> None:
            super().__init__(config)
            both = {"agent1": spaces.Discrete(4), "agent2": spaces.Discrete(5)}
            self.action_space = spaces.Dict(both)

    class OneDict(Arena):
        def __init__(self, config: Any = None) -> None:
            super().__init__(config)
            self.observation_space = spaces.Dict({"at": spaces.MultiDiscrete([5, 5])})

        def _seen(self) -> Any:
            return {agent: {"at": at} for agent, at in super()._seen().items()}

    shared = from_multi_agent_env(OneDict)
    assert set(shared.observation_space("agent1").spaces) == {"at"}
    for kind, sizes in ((ByMethod, [2, 3]), (ByDict, [4, 5])):
        env = from_multi_agent_env(kind)
        assert [int(env.action_space(agent).n) for agent in env.possible_agents] == sizes
    assert Arena().get_action_space("agent1") == spaces.Discrete(2)


def test_a_config_is_the_one_argument_of_the_constructor() -> None:
    assert from_multi_agent_env(Corridors).env.worker == 0  # None is an empty one
    assert from_multi_agent_env(Corridors, {"cut": 3}).env.cut == 3
    assert from_multi_agent_env(lambda config: Arena(config), {"ts": 4}).env.limit == 4
    assert from_multi_agent_env(lambda: Arena()).env.limit == 6

    class Keywords(Arena):
        def __init__(self, size: int = 4) -> None:
            super().__init__({"ts": size})

    assert from_multi_agent_env(Keywords).env.limit == 6 - 2
    assert corral.make(Keywords, size=9).env.limit == 9

    class Two(Arena):
        def __init__(self, width: int, height: int) -> None:
            super().__init__({"ts": width * height})

    assert corral.make(Two, width=2, height=3).env.limit == 6
    with refused(TypeError, 2, "'width'", "'height'"):
        from_multi_agent_env(Two)  # a config is not the width
    with refused(ValueError, "env_config={'ts': 3}", "Arena"):
        from_multi_agent_env(Arena(), {"ts": 3})


@pytest.mark.parametrize(
    ("fault", "values"),
    [
        ("no space", ("'agent1'", "self.observation_space")),
        ("nobody", ("reset()", "observation")),
        ("other agents", ("'agent3'", "observations", "reset()", "self.possible_agents")),
        ("no all", ("step()", "{'agent1': False}", 'dones["__all__"]')),
        ("stranger", ("'agent9'", "rewards", "step()", "self.possible_agents")),
        ("zombie", ("'agent2'", "step()", "observation", "done")),
        ("all done", ('"__all__"', 'terminateds["__all__"]')),
        ("three values", ("step()", 3, "obs, rewards, terminateds, truncateds, infos")),
    ],
)
def test_faults_are_told_in_words_of_the_class(fault: str, values: tuple[str, ...]) -> None:
    with refused(EnvironmentFault, "Faulty", *values):
        _play(from_multi_agent_env(Faulty, {"fault": fault}))
    found = check_env(functools.partial(Faulty, {"fault": fault}), processes=False, seconds=1)
    assert found.errors
    assert "docs/environments.md" in found.text(), found.text()


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("nan", "reward"),
        ("outside", "observation"),
        ("shape", "observation"),
        ("dtype", "observation"),
        ("chance", "seed"),
    ],
)
def test_the_check_finds_faults_of_a_class(fault: str, check: str) -> None:
    found = check_env(functools.partial(Faulty, {"fault": fault}), processes=False, seconds=1)
    assert {each.check for each in found.errors} == {check}, found.text()


def test_what_a_class_raises_when_it_is_made_is_told_with_its_line() -> None:
    class Broken(Arena):
        def reset(self) -> Any:
            raise RuntimeError("no map")

    (error,) = check_env(Broken, processes=False).errors
    shown(error.seen, "RuntimeError: no map", "test_multi_agent.py")
    shown(error.advice, "--arg name=value")


@pytest.mark.parametrize("reward", [None, [1.0, 2.0], "much"])
def test_a_reward_that_is_no_number_is_told(reward: Any) -> None:
    class Paid(Arena):
        def step(self, action_dict: Any) -> Any:
            observations, rewards, *rest = super().step(action_dict)
            return observations, {**rewards, "agent2": reward}, *rest

    batch = make_batch(Paid, num_envs=1, seed=0)
    batch.reset()
    with refused(EnvironmentFault, "Paid", "agent2", reward):
        batch.step(batch.sample_actions(np.random.default_rng(0)))


def _play(env: Any, episodes: int = 2) -> None:
    for episode in range(episodes):
        env.reset(seed=episode)
        while env.agents:
            env.step(dict.fromkeys(env.agents, 0))


def test_an_old_space_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old = type("Discrete", (), {"__module__": "gym.spaces.discrete"})
    env = Arena()
    monkeypatch.setattr(env, "action_space", old())
    with refused(EnvironmentFault, "Arena", "gym", "gymnasium.spaces"):
        from_multi_agent_env(env)


def test_an_episode_that_never_ends_is_told_and_can_be_cut() -> None:
    with refused(EnvironmentFault, "Endless", "10,000 steps", "--arg max_cycles=1000"):
        _play(from_multi_agent_env(Endless))
    batch = make_batch(Endless, num_envs=1, seed=0, max_cycles=3)
    batch.reset()
    for _ in range(3):
        step = batch.step(batch.sample_actions(np.random.default_rng(0)))
    assert step.finished is not None
    assert step.truncated.all()
    assert not step.terminated.any()
    found = check_env(Endless, processes=False, limit=50)
    assert {each.check for each in found.errors} == {"endless"}


def test_tuples_and_nested_dicts_become_one_level() -> None:
    rules = rules_of(TupleObservations)
    inner = rules.observation_space("a")["observation"]
    assert isinstance(inner, spaces.Dict)
    assert set(inner.spaces) == {"0", "1.number", "1.deep.0"}
    batch = make_batch(TupleObservations, num_envs=2, seed=0)
    seen = batch.reset()["b"]["observation"]
    assert seen["1.deep.0"].tolist() == [[0.5, 0.25]] * 2
    assert seen["1.number"].shape == (2,)


def test_waiting_agents_keep_their_own_masks_shut() -> None:
    class Masked(TicTacToe):
        def __init__(self, config: Any = None) -> None:
            super().__init__(config)
            own = {"observations": self.observation_spaces["player1"]}
            own["action_mask"] = spaces.Box(0.0, 1.0, (9,), np.float32)
            self.observation_spaces = dict.fromkeys(self.agents, spaces.Dict(own))

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            observations, infos = super().reset(seed=seed)
            return self._masked(observations), infos

        def step(self, action_dict: Any) -> Any:
            observations, *rest = super().step(action_dict)
            return self._masked(observations), *rest

        def _masked(self, observations: Any) -> Any:
            free = (self.board == 0).astype(np.float32)
            return {a: {"observations": o, "action_mask": free} for a, o in observations.items()}

    batch = make_batch(Masked, num_envs=1, seed=0)
    rng, observations = np.random.default_rng(0), batch.reset()
    for move in range(9):
        masks = [int(observations[agent]["action_mask"].sum()) for agent in batch.agents]
        assert sorted(masks) == [0, 9 - move]
        step = batch.step(batch.sample_actions(rng))
        observations = step.observations
        if step.finished is not None:
            break
    assert set(abs(step.finished.returns[0]).tolist()) <= {0.0, 5.0}  # nothing illegal was played


def test_what_a_class_prints_is_its_text_picture() -> None:
    env = from_multi_agent_env(Arena, render_mode="ansi")
    env.reset()
    assert env.metadata["render_modes"] == ["ansi"]
    assert env.render() == "{'agent1': 0, 'agent2': 4}\n"


def test_classes_instances_and_copies_are_environments() -> None:
    for env in (Arena, Arena(), from_multi_agent_env(Arena), lambda: Arena()):
        assert resolve(env).name == "Arena"
    assert resolve(Arena).text == f"{Arena.__module__}:Arena"
    env = from_multi_agent_env(TicTacToe)
    env.reset(seed=1)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.waiting == env.waiting
    with refused(
        TypeError, "Odd", "corral.adapters.MultiAgentEnv", "pettingzoo.ParallelEnv", "gymnasium.Env"
    ):
        resolve(Odd())


class Odd:
    """Has steps, and no base that says whose."""

    def reset(self) -> Any: ...

    def step(self, action: Any) -> Any: ...


def test_ray_classes_are_known_by_the_name_of_their_base() -> None:
    theirs = type("MultiAgentEnv", (), {"__module__": "ray.rllib.env.multi_agent_env"})
    kind = type("Mine", (theirs,), {k: v for k, v in vars(Arena).items() if k != "__dict__"})
    assert not issubclass(kind, MultiAgentEnv)
    assert resolve(kind).name == "Mine"
