"""Games are stepped below PettingZoo's wrappers that only check, and play the same episodes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils import wrappers

from corral.adapters.zoo.bare import ObservedOnce, bare
from corral.adapters.zoo.batch import zoo_rules
from corral.adapters.zoo.copies import make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.masks import MASK
from support.contract import plain

pytest.importorskip("pygame", reason="PettingZoo's classic games need pygame")
connect_four_v3 = pytest.importorskip("pettingzoo.classic.connect_four_v3")
rps_v2 = pytest.importorskip("pettingzoo.classic.rps_v2")
tictactoe_v3 = pytest.importorskip("pettingzoo.classic.tictactoe_v3")


def speaker_listener() -> Any:
    name = "mpe2.simple_speaker_listener_v4"
    return pytest.importorskip(name, reason="mpe2 is not installed").parallel_env(max_cycles=7)


GAMES = {
    "connect_four": connect_four_v3.env,
    "tictactoe": tictactoe_v3.env,
    "without masks": rps_v2.env,
    "without masks, parallel": rps_v2.parallel_env,
    "speaker_listener": speaker_listener,
}


def content(value: Any) -> Any:
    """Return everything in a step, or in a part of it, for comparison bit by bit."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: content(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {name: content(part) for name, part in value.items()}
    if isinstance(value, list):
        return [content(part) for part in value]
    return plain(value) if isinstance(value, np.ndarray) else value


def episodes(game: Any, *, checked: bool) -> list[Any]:
    """Return all that 40 legal steps show."""
    spec = ZooSpec.of(game(), max_cycles=9)
    env = make_copy(game(), spec, checked=checked)
    assert (env._stepped is env.env) is not checked
    rng = np.random.default_rng(3)
    look = env.reset(np.random.default_rng(7))
    shown: list[Any] = [content(look)]
    for _ in range(40):
        actions = {}
        for i in np.flatnonzero(look.acting):
            actions[spec.agents[i]] = rng.choice(np.flatnonzero(look.observations[i][MASK]))
        moved = env.step(actions)
        look = moved.look
        shown.append(content(moved))
    env.close()
    return shown


@pytest.mark.parametrize("name", GAMES)
def test_the_same_episodes_with_and_without_the_checks(name: str) -> None:
    assert episodes(GAMES[name], checked=True) == episodes(GAMES[name], checked=False)


class Logged(wrappers.OrderEnforcingWrapper):  # type: ignore[misc,type-arg]
    """A user's wrapper."""


class OwnLast(rps_v2.raw_env):  # type: ignore[misc]
    def last(self, observe: bool = True) -> Any:
        return super().last(observe)


def test_only_known_wrappers_are_skipped() -> None:
    """By class identity, from outside to inside, and if no attribute was replaced."""
    raw = connect_four_v3.raw_env()
    illegal = wrappers.TerminateIllegalWrapper(raw, illegal_reward=-1)
    bounds = wrappers.AssertOutOfBoundsWrapper(illegal)
    order = wrappers.OrderEnforcingWrapper(bounds)
    assert bare(raw, masked=True) is raw
    assert bare(order, masked=True) is raw
    assert bare(order, masked=False) is illegal  # actions may be illegal without a mask
    assert bare(Logged(order), masked=True).env is order
    assert bare(wrappers.OrderEnforcingWrapper(kept := Logged(bounds)), masked=True) is kept
    bounds.step = order.step
    assert bare(order, masked=True) is bounds
    below = wrappers.OrderEnforcingWrapper(OwnLast())
    assert bare(below, masked=True) is below


def test_a_conversion_to_parallel_keeps_the_check_of_masks() -> None:
    """Masks may change between the moves of a step."""
    env = rps_v2.parallel_env()
    raw = bare(env, masked=True).aec_env
    assert type(raw) is rps_v2.raw_env
    assert bare(env, masked=True) is not env
    assert env.aec_env is not raw  # the environment is unchanged
    env.aec_env = wrappers.TerminateIllegalWrapper(raw, illegal_reward=-1)
    assert bare(env, masked=True) is env


def test_environments_of_mpe2_are_observed_once() -> None:
    """``observe`` may draw random numbers in environments other than those of MPE2 itself."""
    env = speaker_listener()
    assert type(bare(env, masked=False)) is ObservedOnce
    assert ZooSpec.of(env, None).state_size is None  # the state repeats the observations
    env.unwrapped.observe = env.unwrapped.observe
    assert type(bare(env, masked=False)) is not ObservedOnce
    assert ZooSpec.of(env, None).state_size == 14


def test_who_does_not_check_keeps_the_wrappers() -> None:
    rules = zoo_rules(tictactoe_v3.env)
    env = make_copy(rules.make(), rules)
    env.reset(np.random.default_rng(0))
    env.play({"player_1": 4})
    assert env.play({"player_2": 4}).reward.tolist() == [0, -1]  # by TerminateIllegalWrapper


@pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_a_game_steps_its_own_environment(again: Any) -> None:
    rules = zoo_rules(rps_v2.env)
    env = again(make_copy(rules.make(), rules, checked=True))
    assert env._stepped is env.env.unwrapped


def test_a_game_without_its_checks_renders() -> None:
    rules = zoo_rules(connect_four_v3.env)
    turns = rules.make_turns("player_0", render_mode="rgb_array")
    turns.reset(seed=0)
    turns.step(3)
    assert turns.render().ndim == 3
    turns.close()
