"""PettingZoo's own tests, its registry and ours, over every registered environment.

Its tests run with their defaults. Three do not apply: ``test_save_obs`` wants observations that are
images and nothing else, ``manual_control_test`` a keyboard, and ``bombardment_test`` takes what
``step`` of an AECEnv returns, None, for an observation.
"""

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
from corral.envs.shells import TurnShell
from corral.errors import UnknownNameError
from support.loads import small_trace
from support.messages import refused

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


def identity(name: str) -> str:
    """The name of an environment in PettingZoo's registry."""
    return "corral/" + "-v".join(name.rsplit("_v", 1))


def makers(name: str) -> dict[str, Any]:
    """The functions of an environment's module, and its entries in PettingZoo's registry."""
    spec, module = ENVIRONMENTS[name], importlib.import_module(ENVIRONMENTS[name].module)
    kinds = ("parallel_env", "env", "raw_env") if spec.simultaneous else ("env", "raw_env")
    made = {kind: getattr(module, kind) for kind in kinds}
    if hasattr(pettingzoo, "register"):  # since 1.27
        for kind in ("parallel", "aec") if spec.simultaneous else ("aec",):
            made[kind] = functools.partial(pettingzoo.make, kind, identity(name))
    return made


SIMULTANEOUS = [name for name, spec in ENVIRONMENTS.items() if spec.simultaneous]
SHORT = {"two_step_v0"}
"""Those that end by their rules before the limit that PettingZoo's test sets."""
FORMS = [
    pytest.param(name, kind, id=f"{name}-{kind}") for name in ENVIRONMENTS for kind in makers(name)
]
PARALLEL = [form for form in FORMS if str(form.values[1]).startswith("parallel")]
AEC = [form for form in FORMS if form not in PARALLEL]


# --- PettingZoo's tests --------------------------------------------------------------------------


@ignoring(*DICT_OBSERVATIONS, *EMPTY_BOARD)
@pytest.mark.parametrize(("name", "kind"), AEC)
def test_api(name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        if name in UNLIKE:
            warnings.filterwarnings("ignore", "Agents have different observation space sizes")
        api_test(makers(name)[kind]())
    assert "Passed" in capsys.readouterr().out


@ignoring(*DICT_OBSERVATIONS)
@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_api_of_conversions(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make = makers(name)
    api_test(parallel_to_aec(make["parallel_env"]()))
    parallel_api_test(aec_to_parallel(make["env"]()))
    out = capsys.readouterr().out
    assert out.count("Passed API test") == 1
    assert out.count("Passed Parallel API test") == 1


@pytest.mark.parametrize(("name", "kind"), PARALLEL)
def test_parallel_api(name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It sets ``max_cycles`` to the cycles that it plays, 1000 by default."""
    env = makers(name)[kind]()
    parallel_api_test(env)
    assert env.agents == []  # an episode did end
    assert env.max_cycles == 1000
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "kind"), AEC)
def test_seed(name: str, kind: str) -> None:
    made = []

    def make() -> Any:
        made.append(makers(name)[kind]())
        return made[-1]

    seed_test(make)
    assert len(made) == 2


@ignoring(*UNMASKED)
@pytest.mark.parametrize(("name", "kind"), PARALLEL)
def test_parallel_seed(name: str, kind: str) -> None:
    made = []

    def make() -> Any:
        made.append(makers(name)[kind]())
        return made[-1]

    parallel_seed_test(make)
    parallel_seed_test(lambda: aec_to_parallel(makers(name)["env"]()))
    # That test compares a single step, as any() of a dict asks its keys: test_contract.py compares
    # whole episodes.
    assert [env._elapsed for env in made] == [1, 1]


@ignoring(*UNMASKED)
@pytest.mark.parametrize("name", [name for name in SIMULTANEOUS if name not in SHORT])
def test_max_cycles(name: str) -> None:
    make = makers(name)
    for env in ("env", "raw_env"):
        max_cycles_test(SimpleNamespace(parallel_env=make["parallel_env"], env=make[env]))
    assert make["parallel_env"](max_cycles=4).max_cycles == 4


@ignoring(*UNMASKED)
@pytest.mark.parametrize(("name", "kind"), AEC)
def test_state(name: str, kind: str) -> None:
    make = makers(name)
    env = make[kind]()
    if "parallel_env" in make:
        state_test(env, make["parallel_env"]())
    # The parts of it that need no parallel environment, to the end of an episode.
    state_tests.test_state_space(env)
    state_tests.test_state(env, num_cycles=400)
    assert env.agents == []


@ignoring(*UNMASKED)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        form if form.values[1] == "env" else pytest.param(*form.values, marks=pytest.mark.slow)
        for form in AEC
    ],
)
def test_render(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="pictures need Pillow")
    pytest.importorskip("pygame", reason="windows need pygame-ce")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    rules = type(make_rules(name))
    monkeypatch.setattr(rules, "render_fps", 0)  # as fast as it can
    modes = []

    def make(render_mode: str) -> Any:
        modes.append(render_mode)
        return makers(name)[kind](render_mode=render_mode)

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
    with refused(ValueError, "render_mode='rgb'", "'human', 'ansi', 'rgb_array'", "None"):
        dfaas_v0.parallel_env(render_mode="rgb", trace=small_trace())
    env = dfaas_v0.parallel_env(trace=small_trace())
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    text = dfaas_v0.parallel_env(render_mode="ansi", trace=small_trace())
    text.reset(seed=0)
    assert isinstance(text.render(), str)


# --- By name -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_make(name: str) -> None:
    env = corral.make(name, max_cycles=6)
    kind = pettingzoo.ParallelEnv if ENVIRONMENTS[name].simultaneous else pettingzoo.AECEnv
    assert isinstance(env, kind)
    assert env.max_cycles == 6
    rules = make_rules(name, max_cycles=7)
    assert (rules.name, rules.max_cycles) == (name, 7)
    assert rules.simultaneous is ENVIRONMENTS[name].simultaneous


@pytest.mark.parametrize("make", [corral.make, make_rules])
@pytest.mark.parametrize(
    ("name", "hint"),
    [("dfas_v0", "dfaas_v0"), ("dfas-v0", "dfaas_v0"), ("dfaas_v1", "dfaas_v0"), ("", None)],
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
    kinds = {"aec": pettingzoo.AECEnv}
    if ENVIRONMENTS[name].simultaneous:
        kinds["parallel"] = pettingzoo.ParallelEnv
    for kind, base in kinds.items():
        env = pettingzoo.make(kind, identity(name), max_cycles=3)
        assert isinstance(env, base)
        assert env.metadata["name"] == name
        env.reset(seed=0)
        assert env.agents == env.possible_agents


@needs_registry
def test_registering_twice_changes_nothing() -> None:
    before = dict(pettingzoo.parallel_registry), dict(pettingzoo.aec_registry)
    registry.register()
    assert before == (dict(pettingzoo.parallel_registry), dict(pettingzoo.aec_registry))
    assert "corral/dfaas-v0" in before[0]


def test_without_a_registry_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """PettingZoo before 1.27 has none."""
    calls: list[Any] = []
    monkeypatch.setattr(registry, "pettingzoo", SimpleNamespace())
    registry.register()
    monkeypatch.setattr(
        registry,
        "pettingzoo",
        SimpleNamespace(
            register=lambda *args, **kwargs: calls.append((*args, kwargs)),
            aec_registry={},
            parallel_registry={},
        ),
    )
    registry.register()
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
    assert isinstance(aec.unwrapped, TurnShell)
