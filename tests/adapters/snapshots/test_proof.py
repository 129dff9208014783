"""Which way copies an environment, and whether the proof refuses ways that are wrong."""

from __future__ import annotations

import functools
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils import EzPickle

from corral.adapters.snapshots import forks, proof
from corral.adapters.snapshots.forks import Fork
from corral.adapters.snapshots.games import Deepcopy, Pickled, Replay, SnapshotError
from corral.adapters.snapshots.proof import prove
from corral.adapters.sources import rules_of
from corral.adapters.zoo.batch import zoo_rules
from corral.envs.core import generator
from support.arena_scalar import PlainArena
from support.messages import refused, shown
from support.nim_c import Nim, compiled
from support.zoo_envs import RingEnv

CLASS = f"{Path(__file__).parents[3] / 'docs/environments/multi_agent_arena.py'}:MultiAgentArena"

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = compiled(tmp_path_factory.mktemp("nim"))
    if path is None:
        pytest.skip("no C compiler (cc) to build the library")
    return path


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that leaves some ways to try."""
    return lambda *ways: monkeypatch.setattr(proof, "WAYS", ways)


def small_arena() -> PlainArena:
    return PlainArena(width=4, height=4, max_cycles=12)


# --- The cheapest way that is right --------------------------------------------------------------


def test_a_plain_class_is_copied_by_pickle() -> None:
    _, copied = prove(zoo_rules(small_arena))
    assert (copied.way, copied.redraws, copied.repeats, copied.refused) == (
        "pickle",
        False,
        True,
        (),
    )
    assert copied.per_second > 0
    shown(copied.text(), "pickle")


class Saved(PlainArena, EzPickle):
    """Pickles as a new environment. Draws from a space, and may hold what cannot be copied."""

    def __init__(self, held: Any = None) -> None:
        EzPickle.__init__(self, held)
        super().__init__(width=4, height=4, max_cycles=12)
        self.held, self.reward = held, Discrete(9)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.reward.seed(seed)
        return super().reset(seed, options)

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        shown, rewards, *rest = super().step(actions)
        return (shown, dict.fromkeys(rewards, float(self.reward.sample())), *rest)


def test_an_ezpickle_environment_is_copied_with_its_state() -> None:
    _, copied = prove(zoo_rules(Saved))
    assert (copied.way, copied.refused) == ("pickle", ())


def test_copies_share_the_spaces_but_not_those_that_were_drawn_from() -> None:
    game = Pickled(zoo_rules(Saved)).make()
    game.begin(generator(0, "env"))
    one, two = (other._env.env for other in (game, game.copy()))  # type: ignore[attr-defined]
    assert one is not two
    assert one.reward is not two.reward
    assert one.action_space("agent_1") is two.action_space("agent_1")


class Drawn(Saved):
    """Pays by the color of its surface, which is blank in copies."""

    def __init__(self) -> None:
        pygame = pytest.importorskip("pygame")
        super().__init__(pygame.Surface((4, 4)))

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        seen, rewards, *rest = super().step(actions)
        red = self.held.get_at((0, 0))[0]
        self.held.set_at((0, 0), (min(red + 9, 255), 0, 0))
        return (seen, {agent: reward + red for agent, reward in rewards.items()}, *rest)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.held.fill((0, 0, 0))
        return super().reset(seed, options)


def test_an_environment_that_draws_is_replayed() -> None:
    _, copied = prove(zoo_rules(Drawn))
    assert (copied.way, [way for way, _ in copied.refused]) == ("replay", ["pickle", "deepcopy"])


def test_a_surface_that_is_not_observed_is_blank_in_copies() -> None:
    pygame = pytest.importorskip("pygame")
    held = (pygame.Surface((4, 3)), pygame.time.Clock())
    rules = zoo_rules(functools.partial(Saved, held))
    _, copied = prove(rules)
    assert copied.way == "pickle"
    game = Pickled(rules).make()
    game.begin(generator(0, "env"))
    surface, clock = game.copy()._env.env.held  # type: ignore[attr-defined]
    assert surface.get_size() == (4, 3)
    assert type(clock) is type(held[1])


def test_states_that_differ_in_a_space_have_different_data() -> None:
    data = []
    for size in (2, 2, 3):
        game = Pickled(zoo_rules(functools.partial(Saved, Discrete(size)))).make()
        game.begin(generator(0, "env"))
        data.append(game.data())  # type: ignore[attr-defined]
    assert data[0] == data[1]
    assert data[0] != data[2]


def test_local_functions_are_copied_by_deepcopy() -> None:
    class Local(PlainArena):
        pass

    _, copied = prove(zoo_rules(functools.partial(Local, width=4, height=4, max_cycles=12)))
    assert (copied.way, [way for way, _ in copied.refused]) == ("deepcopy", ["pickle"])


def test_each_way_copies_games_with_seeded_chance_and_early_ends(only: Any) -> None:
    ways = (Pickled, Deepcopy, Replay, *([Fork] if hasattr(os, "fork") else []))
    for way in ways:
        only(way)
        for make in (small_arena, RingEnv):
            _, copied = prove(zoo_rules(make))
            assert (copied.way, copied.redraws, copied.repeats) == (way.name, False, True)


@forking
def test_a_state_in_c_memory_is_not_copied_by_deepcopy(library: Path) -> None:
    _, copied = prove(zoo_rules(functools.partial(Nim, library)))
    assert (copied.way, [way for way, _ in copied.refused]) == ("replay", ["pickle", "deepcopy"])


@forking
def test_a_state_that_all_environments_share_needs_a_process(library: Path) -> None:
    way, copied = prove(zoo_rules(functools.partial(Nim, library, shared=True)))
    assert copied.way == "fork"
    assert [name for name, _ in copied.refused] == ["pickle", "deepcopy", "replay"]
    shown(copied.text(), "pickle", "deepcopy", "replay")
    way.close()


# --- Chance --------------------------------------------------------------------------------------


def test_global_generators_are_reported_and_left_unchanged() -> None:
    random.seed(3)
    before = random.getstate()
    _, copied = prove(rules_of(CLASS))  # type: ignore[arg-type]
    assert random.getstate() == before
    assert (copied.way, copied.redraws) == ("pickle", True)
    shown(copied.text(), "random")


def test_a_replay_needs_a_seed_that_covers_all_chance(only: Any) -> None:
    only(Replay)
    with refused(SnapshotError, "replay"):
        prove(rules_of(CLASS))  # type: ignore[arg-type]


@forking
def test_a_fork_seeds_the_global_generators(only: Any) -> None:
    only(Fork)
    way, copied = prove(rules_of(CLASS))  # type: ignore[arg-type]
    assert (copied.redraws, copied.repeats) == (False, True)
    way.close()


# --- Environments that cannot be copied -----------------------------------------------------------


class Threaded(PlainArena):
    """Starts a thread, which holds a lock that nobody can copy."""

    def __init__(self) -> None:
        super().__init__(width=4, height=4, max_cycles=12)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.stop.wait, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.stop.set()


def test_an_environment_with_threads_is_replayed() -> None:
    way, copied = prove(zoo_rules(Threaded))
    assert (copied.way, [name for name, _ in copied.refused]) == ("replay", ["pickle", "deepcopy"])
    way.close()


@forking
def test_an_environment_with_threads_is_not_forked(only: Any) -> None:
    only(Fork)
    with refused(SnapshotError, "threads"):
        prove(zoo_rules(Threaded))


class Forgetful(PlainArena):
    """Draws rewards from the operating system: no seed covers them and no copy repeats them."""

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        shown, rewards, *rest = super().step(actions)
        rewards = {agent: reward + os.urandom(1)[0] for agent, reward in rewards.items()}
        return (shown, rewards, *rest)


def test_chance_that_nothing_repeats_is_refused_by_all_ways() -> None:
    with refused(SnapshotError, "pickle", "deepcopy", "replay", "fork", "reward"):
        prove(zoo_rules(Forgetful))


class Silent(PlainArena):
    """Hangs in its third step."""

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        if self.rules.t == 2:
            time.sleep(1000)
        return super().step(actions)


@forking
def test_a_silent_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Fork(zoo_rules(Silent))
    game = way.make()
    game.begin(generator(0, "env"))
    actions = {"agent_1": 1, "agent_2": 3}
    game.play(actions)
    game.play(actions)
    with refused(SnapshotError, "play"):
        game.ask("play", actions, 0.2)  # type: ignore[attr-defined]
    assert gone(game.pid)  # type: ignore[attr-defined]
    way.close()


def gone(pid: int) -> bool:
    """Return True if the process ends within a minute."""
    for _ in range(3000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@forking
def test_no_process_is_left() -> None:
    way = Fork(zoo_rules(small_arena))
    game = way.make()
    game.begin(generator(0, "env"))
    copies = [game.copy() for _ in range(3)]
    pids = [one.pid for one in (game, *copies)]  # type: ignore[attr-defined]
    worker = way._worker.pid
    del game, copies
    assert all(map(gone, pids))
    way.close()
    assert gone(worker)


def test_windows_says_why_it_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(forks.os, "fork", raising=False)
    monkeypatch.setattr(forks.sys, "platform", "win32")
    with refused(SnapshotError, "win32"):
        Fork(zoo_rules(small_arena))
