"""What users set on an environment from outside: time limit, render mode, generator."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

import corral
from corral.adapters import SeatEnv
from corral.envs import ENVIRONMENTS, PROBES, dfaas_v0, make_rules
from corral.envs.batch import make_batch
from corral.envs.core import generator
from corral.envs.shells import TurnShell
from support.contract import plain
from support.loads import small_trace
from support.messages import refused, shown
from support.turn_rules import PileRules

KWARGS: dict[str, dict[str, Any]] = {
    "dfaas_v0": {"trace": small_trace(), "route": "two", "max_cycles": 6},
    "arena_v0": {"max_cycles": 6},
}

FORMS = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, spec in ENVIRONMENTS.items()
    for kind in (("parallel_env",) if spec.simultaneous else ()) + ("env", "raw_env")
]
LONGEST = {"two_step_v0": 2, "rps_v0": 10, "tictactoe_v0": 9, "tiles_v0": 32}
"""Steps after which an environment may end by its rules."""


def make(name: str, kind: str, **kwargs: Any) -> Any:
    module = importlib.import_module(ENVIRONMENTS[name].module)
    return getattr(module, kind)(**{**KWARGS.get(name, {}), **kwargs})


def length(env: Any, seed: int | None = 0, most: int = 40) -> int:
    """Steps of the rules in an episode of random legal play, counted up to ``most``."""
    env.reset(seed=seed)
    rng = np.random.default_rng(0)
    draw = lambda observation: int(rng.choice(np.flatnonzero(observation["action_mask"])))  # noqa: E731
    shell = env.unwrapped
    while env.agents and shell._elapsed < most:
        if hasattr(env, "agent_selection"):
            observation, _, terminated, truncated, _ = env.last()
            env.step(None if terminated or truncated else draw(observation))
        else:
            seen = {a: shell._observations[a] for a in env.agents}
            acting = {a: seen[a] for a in seen if seen[a]["action_mask"].any()}
            env.step({agent: draw(observation) for agent, observation in acting.items()})
    return int(shell._elapsed)


# --- The time limit ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), FORMS)
def test_a_time_limit_takes_effect_at_the_next_reset(name: str, kind: str) -> None:
    env = make(name, kind)
    most = LONGEST.get(name, 40)
    for limit in (9, 1, None, 3):
        env.max_cycles = limit
        assert env.max_cycles == limit == env.unwrapped.max_cycles
        played = length(env)
        if limit is not None and limit <= 3:
            assert played == min(limit, most)
        elif limit is None:
            assert played >= min(most, 10) or name in ("tictactoe_v0", "tiles_v0")
        else:
            assert 1 < played <= min(limit, most)


@pytest.mark.parametrize("name", ["arena_v0", "dfaas_v0"])
@pytest.mark.parametrize("kind", ["parallel_env", "env", "raw_env"])
def test_episodes_without_an_end_of_their_own_go_on(name: str, kind: str) -> None:
    env = make(name, kind)
    for limit, played in ((9, 9), (1000, 40), (None, 40), (2, 2)):
        env.max_cycles = limit
        assert length(env) == played


def test_a_probe_takes_a_limit() -> None:
    for name, spec in PROBES.items():
        env = corral.make(name)
        env.max_cycles = 1
        assert length(env) == 1, name
        assert env.render_mode is None
        env.max_cycles = None
        if name != "probe_p09_v0":  # which goes on until it is cut
            assert length(env) < 40, spec


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_another_limit_is_the_environment_made_with_it(name: str) -> None:
    """Bit for bit: what is drawn ahead follows the limit too."""
    kwargs = KWARGS.get(name, {})
    env, other = (
        TurnShell(make_rules(name, **kwargs)),
        TurnShell(make_rules(name, **{**kwargs, "max_cycles": 4})),
    )
    env.max_cycles = 4
    for seed in (5, None, None):
        env.reset(seed=seed)
        other.reset(seed=seed)
        while other.agents:
            assert plain(env.last()[0]) == plain(other.last()[0])
            assert env.last()[1:] == other.last()[1:]
            assert plain(env.state()) == plain(other.state())
            observation, _, terminated, truncated, _ = env.last()
            action = None if terminated or truncated else int(observation["action_mask"].argmax())
            env.step(action)
            other.step(action)
        assert env.agents == []


def test_the_episode_that_is_played_keeps_its_limit() -> None:
    parallel, turns = make("arena_v0", "parallel_env"), make("arena_v0", "env")
    for env in (parallel, turns):
        env.max_cycles = 3
        env.reset(seed=0)
        env.max_cycles = 1
    for step in range(3):
        *_, truncated, _ = parallel.step(dict.fromkeys(parallel.agents, 0))
        turns.step(0)
        turns.step(0)
        for cut in (truncated, turns.truncations):
            assert cut == dict.fromkeys(parallel.possible_agents, step == 2)
    assert (length(parallel), length(turns)) == (1, 1)


class Hurried(PileRules):
    """Stones, and a global state that tells how much of the time a step takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__((30, 31), takes=(1, 1), **kwargs)

    def global_state(self, state: Any) -> Any:
        share = 0.0 if self.max_cycles is None else 1 / self.max_cycles
        return np.full((len(state.pile), 1), share, dtype=np.float32)


def test_what_depends_on_the_limit_follows_it() -> None:
    env = TurnShell(Hurried(max_cycles=10))
    for limit in (10, 4, None, 2):
        env.max_cycles = limit
        env.reset(seed=0)
        env.max_cycles = 7
        assert env.state().tolist() == [pytest.approx(0.0 if limit is None else 1 / limit)]


def test_two_environments_of_the_same_rules_have_limits_of_their_own() -> None:
    rules = PileRules((9, 10), takes=(1, 1), max_cycles=5)
    one, other = TurnShell(rules), TurnShell(rules)
    one.max_cycles = 2
    assert (length(one), length(other), rules.max_cycles) == (2, 5, 5)


@pytest.mark.parametrize("value", [0, -1, "x", 2.5, True, [3]])
def test_a_limit_that_is_none_is_refused_at_once(value: Any) -> None:
    for name, kind in (("arena_v0", "parallel_env"), ("arena_v0", "env"), ("tiles_v0", "env")):
        env = make(name, kind)
        before = env.max_cycles
        with refused(ValueError, f"max_cycles={value!r}", 1, "None"):
            env.max_cycles = value
        assert env.max_cycles == before


def test_wrappers_reach_it_through_unwrapped() -> None:
    for wrapped in (
        BaseParallelWrapper(make("arena_v0", "parallel_env")),
        BaseWrapper(make("arena_v0", "env")),
    ):
        wrapped.unwrapped.max_cycles = 2
        assert wrapped.max_cycles == 2
        assert length(wrapped) == 2


def test_a_seat_takes_a_time_limit() -> None:
    env = SeatEnv("arena_v0")
    env.max_cycles = 3
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match="max_cycles=0"):
        env.max_cycles = 0


def test_without_a_limit_pictures_show_the_step_alone() -> None:
    for name in ("arena_v0", "dfaas_v0"):
        env = make(name, "parallel_env", render_mode="ansi")
        env.max_cycles = None
        env.reset(seed=0)
        env.step(dict.fromkeys(env.agents, 0))
        shown(env.render(), "step 1")
        assert "None" not in env.render()
        pytest.importorskip("PIL", reason="pictures need Pillow")
        env.render_mode = "rgb_array"
        assert env.render().dtype == np.uint8


# --- The render mode -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), FORMS)
def test_a_render_mode_is_checked_and_takes_effect(name: str, kind: str) -> None:
    env = make(name, kind)
    env.reset(seed=0)
    for value in ("nonsense", "rgb", "", 3):
        with refused(ValueError, f"render_mode={value!r}", "'human', 'ansi', 'rgb_array'", "None"):
            env.render_mode = value
    assert env.render_mode is None
    env.render_mode = "ansi"
    assert isinstance(env.render(), str)
    assert env.unwrapped.render_mode == env.render_mode == "ansi"


def test_a_seat_checks_its_render_mode() -> None:
    env = SeatEnv("arena_v0")
    env.reset(seed=0)
    with refused(ValueError, "render_mode='nonsense'", "'human', 'ansi', 'rgb_array'", "None"):
        env.render_mode = "nonsense"
    env.render_mode = "ansi"
    assert isinstance(env.render(), str)


@pytest.mark.parametrize("kind", ["parallel_env", "env", "seat"])
def test_pictures_of_dfaas_show_who_serves_whom(kind: str) -> None:
    """Rules keep it for pictures alone; also where the mode is set later."""
    if kind == "seat":
        env: Any = SeatEnv("dfaas_v0", trace=small_trace(), render_mode="ansi")
        shell = env._shell
    else:
        env = make("dfaas_v0", kind)
        env.reset(seed=0)
        assert env.unwrapped._state.flow.size == 0
        env.render_mode = "ansi"
        shell = env.unwrapped
    env.reset(seed=0)
    n = len(shell.possible_agents)
    assert shell._state.flow.shape == (1, n, n)


# --- The generator -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), FORMS)
def test_np_random_is_the_generator_of_the_episodes(name: str, kind: str) -> None:
    env = make(name, kind)
    assert isinstance(env.np_random, np.random.Generator)
    env.reset(seed=3)
    rng = generator(3, "env")
    env.unwrapped.rules.start([rng])
    assert env.np_random.bit_generator.state == rng.bit_generator.state


def test_a_generator_that_is_set_plays_the_episodes_to_come() -> None:
    batch = make_batch("dfaas_v0", 2, seed=4, trace=small_trace())
    observations = batch.reset()
    for env in (dfaas_v0.parallel_env(trace=small_trace()), dfaas_v0.env(trace=small_trace())):
        env.np_random = generator(4, "env", 1)
        env.reset()
        for agent in env.agents:
            row = {key: values[1] for key, values in observations[agent].items()}
            assert plain(env.unwrapped._observations[agent]) == plain(row)
