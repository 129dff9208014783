"""PettingZoo's own tests, its registry and ours, over every registered environment."""

from __future__ import annotations

import functools
import importlib
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pettingzoo
import pytest
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

import corral
from corral.envs import ENVIRONMENTS, dfaas_v0, make_rules, registry
from corral.envs.shells import ParallelShell
from corral.errors import UnknownNameError
from support.loads import small_trace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PettingZoo's tests import an environment it has deprecated
    from pettingzoo.test import (
        api_test,
        max_cycles_test,
        parallel_api_test,
        parallel_seed_test,
        render_test,
        seed_test,
        state_test,
    )

    state_tests = importlib.import_module("pettingzoo.test.state_test")

KWARGS: dict[str, dict[str, Any]] = {"dfaas_v0": {"trace": small_trace(), "queue": 3}}
"""Arguments without which an environment would need files."""

# PettingZoo's tests know observations with masks from a list of its own environments: of any other
# it takes the Dict for a slip.
DICT_OBSERVATIONS = [
    "ignore:Observation is not a NumPy array:UserWarning",
    "ignore:Observation space for each agent probably should be:UserWarning",
]
# Nor does it expect an empty board where another environment than its own has one.
EMPTY_BOARD = ["ignore:Observation numpy array is all zeros:UserWarning"]
UNLIKE = {"tiles_v0"}
"""Environments whose agents differ; PettingZoo's test has a list of its own for these as well."""

# Some of them sample actions without the mask. That is what the warning tells users to mend.
UNMASKED = ["ignore::corral.errors.IllegalActionWarning"]


def ignoring(*messages: str) -> Any:
    marks = [pytest.mark.filterwarnings(message) for message in messages]

    def apply(test: Any) -> Any:
        for mark in marks:
            test = mark(test)
        return test

    return apply


def makers(name: str) -> dict[str, Any]:
    """The functions of an environment's module, with the arguments it needs."""
    module = importlib.import_module(ENVIRONMENTS[name].module)
    kinds = ("parallel_env", "env", "raw_env") if ENVIRONMENTS[name].simultaneous else ("env",)
    return {
        kind: functools.partial(getattr(module, kind), **KWARGS.get(name, {})) for kind in kinds
    }


SIMULTANEOUS = [name for name, spec in ENVIRONMENTS.items() if spec.simultaneous]
SHORT = {"two_step_v0"}
"""Those that end by their rules before the limit that PettingZoo's test sets."""


# --- PettingZoo's tests --------------------------------------------------------------------------


@ignoring(*DICT_OBSERVATIONS, *EMPTY_BOARD)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_api(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        if name in UNLIKE:
            warnings.filterwarnings("ignore", "Agents have different observation space sizes")
        api_test(makers(name)["env"](), num_cycles=300)
    assert "Passed API test" in capsys.readouterr().out


@ignoring(*DICT_OBSERVATIONS)
@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_api_of_conversions(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make = makers(name)
    api_test(make["raw_env"](), num_cycles=100)
    api_test(parallel_to_aec(make["parallel_env"]()), num_cycles=100)
    parallel_api_test(aec_to_parallel(make["env"]()), num_cycles=100)
    out = capsys.readouterr().out
    assert out.count("Passed API test") == 2
    assert out.count("Passed Parallel API test") == 1


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_parallel_api(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = makers(name)["parallel_env"]()
    parallel_api_test(env, num_cycles=50)
    assert env.agents == []  # an episode did end
    assert "Passed Parallel API test" in capsys.readouterr().out


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_seed(name: str) -> None:
    made = []

    def make() -> Any:
        made.append(makers(name)["env"]())
        return made[-1]

    seed_test(make, num_cycles=50)
    assert len(made) == 2


@ignoring(*UNMASKED)
@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_parallel_seed(name: str) -> None:
    made = []

    def make() -> Any:
        made.append(makers(name)["parallel_env"]())
        return made[-1]

    parallel_seed_test(make, num_cycles=50)
    parallel_seed_test(lambda: aec_to_parallel(makers(name)["env"]()), num_cycles=50)
    # That test compares a single step, as any() of a dict asks its keys: test_contract.py compares
    # whole episodes.
    assert [env._elapsed for env in made] == [1, 1]


@ignoring(*UNMASKED)
@pytest.mark.parametrize("name", [name for name in SIMULTANEOUS if name not in SHORT])
def test_max_cycles(name: str) -> None:
    make = makers(name)
    max_cycles_test(SimpleNamespace(parallel_env=make["parallel_env"], env=make["env"]))
    assert make["parallel_env"](max_cycles=4).max_cycles == 4


@ignoring(*UNMASKED)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_state(name: str) -> None:
    make = makers(name)
    env = make["env"]()
    if "parallel_env" in make:
        state_test(env, make["parallel_env"](), num_cycles=400)
    else:  # the part of it that needs no parallel environment
        importlib.import_module("pettingzoo.test.state_test").test_state(env, num_cycles=400)
    assert env.agents == []


@ignoring(*UNMASKED)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_render(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="pictures need Pillow")
    pytest.importorskip("pygame", reason="windows need pygame-ce")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    rules = type(make_rules(name, **KWARGS.get(name, {})))
    monkeypatch.setattr(rules, "render_fps", 0)  # as fast as it can
    modes = []

    def make(render_mode: str) -> Any:
        modes.append(render_mode)
        return makers(name)["env"](render_mode=render_mode)

    render_test(make)
    assert modes == ["human", *rules.render_modes]
    assert set(rules.render_modes) >= {"human", "rgb_array"}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_attributes_that_pettingzoo_users_expect(name: str) -> None:
    for make in makers(name).values():
        env = make()
        assert env.metadata["name"] == name == str(env.unwrapped)
        assert env.metadata["is_parallelizable"] is ENVIRONMENTS[name].simultaneous
        assert env.metadata["render_fps"] > 0
        assert "human" in env.metadata["render_modes"]
        assert env.render_mode is None
        assert env.max_num_agents == len(env.possible_agents) > 0
        env.reset(seed=0)
        assert env.num_agents == len(env.agents) == env.max_num_agents
        env.close()
        env.close()


def test_render_modes_are_checked_and_none_draws_nothing() -> None:
    with pytest.raises(ValueError, match="render_mode='rgb': give one of 'human', 'ansi'"):
        dfaas_v0.parallel_env(render_mode="rgb", trace=small_trace())
    env = dfaas_v0.parallel_env(trace=small_trace())
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="needs a render_mode"):
        assert env.render() is None
    text = dfaas_v0.parallel_env(render_mode="ansi", trace=small_trace())
    text.reset(seed=0)
    assert isinstance(text.render(), str)


# --- By name -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_make(name: str) -> None:
    env = corral.make(name, max_cycles=6, **KWARGS.get(name, {}))
    kind = pettingzoo.ParallelEnv if ENVIRONMENTS[name].simultaneous else pettingzoo.AECEnv
    assert isinstance(env, kind)
    assert env.max_cycles == 6
    rules = make_rules(name, max_cycles=7, **KWARGS.get(name, {}))
    assert (rules.name, rules.max_cycles) == (name, 7)
    assert rules.simultaneous is ENVIRONMENTS[name].simultaneous


@pytest.mark.parametrize("make", [corral.make, make_rules])
@pytest.mark.parametrize(
    ("name", "hint"),
    [("dfas_v0", "dfaas_v0"), ("dfaas-v0", "dfaas_v0"), ("dfaas_v1", "dfaas_v0"), ("", None)],
)
def test_unknown_names_are_answered_with_the_nearest(make: Any, name: str, hint: Any) -> None:
    with pytest.raises(UnknownNameError) as raised:
        make(name)
    message = str(raised.value)
    assert f"no environment named {name!r}" in message
    assert (f"did you mean {hint!r}?" in message) == (hint is not None)
    assert "Known: " in message
    assert all(known in message for known in ENVIRONMENTS)
    assert isinstance(raised.value, ValueError)


def test_the_registry_names_what_is_there() -> None:
    for name, spec in ENVIRONMENTS.items():
        assert spec.name == name
        assert spec.summary
        module = importlib.import_module(spec.module)
        assert getattr(module, spec.rules).name == name
        assert hasattr(module, "parallel_env") is spec.simultaneous
        assert module.__doc__


needs_registry = pytest.mark.skipif(
    not hasattr(pettingzoo, "register"), reason="PettingZoo has a registry since 1.27"
)


@needs_registry
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_pettingzoo_makes_them_by_name(name: str) -> None:
    identity = "corral/" + "-v".join(name.rsplit("_v", 1))
    kwargs = KWARGS.get(name, {})
    kinds = {"aec": pettingzoo.AECEnv}
    if ENVIRONMENTS[name].simultaneous:
        kinds["parallel"] = pettingzoo.ParallelEnv
    for kind, base in kinds.items():
        env = pettingzoo.make(kind, identity, max_cycles=3, **kwargs)
        assert isinstance(env, base)
        assert env.metadata["name"] == name
        env.reset(seed=0)
        assert env.agents == env.possible_agents


@needs_registry
def test_registering_twice_changes_nothing() -> None:
    before = dict(pettingzoo.parallel_registry), dict(pettingzoo.aec_registry)
    registry.register_with_pettingzoo()
    assert before == (dict(pettingzoo.parallel_registry), dict(pettingzoo.aec_registry))
    assert "corral/dfaas-v0" in before[0]


def test_without_a_registry_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """PettingZoo before 1.27 has none."""
    calls: list[Any] = []
    monkeypatch.setattr(registry, "pettingzoo", SimpleNamespace())
    registry.register_with_pettingzoo()
    monkeypatch.setattr(
        registry,
        "pettingzoo",
        SimpleNamespace(
            register=lambda *args, **kwargs: calls.append((*args, kwargs)),
            aec_registry={},
            parallel_registry={},
        ),
    )
    registry.register_with_pettingzoo()
    entry = {"entry_point": "corral.envs.dfaas_v0:parallel_env"}
    assert ("parallel", "corral/dfaas-v0", entry) in calls


def test_parallel_and_aec_show_the_same_game() -> None:
    """``env()`` is the parallel environment, asked one agent after the other."""
    parallel = dfaas_v0.parallel_env(trace=small_trace(), max_cycles=5)
    aec = dfaas_v0.env(trace=small_trace(), max_cycles=5)
    observations, _ = parallel.reset(seed=3)
    aec.reset(seed=3)
    rewards = dict.fromkeys(parallel.agents, 0.0)
    rng = np.random.default_rng(0)
    steps = 0
    while parallel.agents:
        actions = {}
        for agent in parallel.agents:
            assert aec.agent_selection == agent
            observation, reward, terminated, truncated, _ = aec.last()
            for key in observation:
                np.testing.assert_array_equal(observation[key], observations[agent][key])
            assert (reward, terminated, truncated) == (rewards[agent], False, False)
            actions[agent] = int(rng.choice(np.flatnonzero(observation["action_mask"])))
            aec.step(actions[agent])
        observations, rewards, *_ = parallel.step(actions)
        np.testing.assert_array_equal(aec.state(), parallel.state())
        steps += 1
    assert steps == 5
    assert aec.truncations == dict.fromkeys(aec.possible_agents, True)
    assert isinstance(aec.unwrapped, ParallelShell)
