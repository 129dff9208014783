"""Mistakes in what is observed: by environments, wrappers, buffers and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils import BaseParallelWrapper

from corral.adapters.zoo.batch import zoo_rules
from corral.envs import arena_v0
from corral.envs.arena_v0.rules import ArenaRules
from corral.trainers.on_policy.buffer import GroupBuffer
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained
from faults.masks import WALLS, BufferOf
from faults.sound import NAMES, Depots, Pictured, depots


def buffer_of(store: Callable[[Any, Any, Any], None]) -> type[MAPPO]:
    """A trainer whose buffers change what they have stored by ``store``."""

    class Changed(GroupBuffer):
        def store(self, at: Any, observations: Any) -> None:
            super().store(at, observations)
            store(self, at, observations)

    return type("Changed", (BufferOf,), {"kind": Changed})


def wrapped_arena(wrapper: Callable[[Any], Any], **arguments: Any) -> Any:
    """arena_v0 behind a wrapper of PettingZoo's kind."""
    return zoo_rules(lambda: wrapper(arena_v0.parallel_env(max_cycles=12, **arguments)))


# --- A field that is not fed ---------------------------------------------------------------------


def zero_capacity(buffer: Any, at: Any, observations: Any) -> None:
    buffer.vector[at][..., 1] = 0.0


@fault("observation-changed")
def capacity_zeroed_in_the_buffer(folder: Path) -> Run:
    """A field of the observation is written over with 0 when it is stored."""
    return trained(folder, depots(), trainer=buffer_of(zero_capacity))


class NoCapacity(Depots):
    def look(self, i: int) -> Any:
        return super().look(i) * np.array([1, 0, 1, 1], np.float32)


@fault("observation-blank", sure=False)
def capacity_zeroed_in_the_environment(folder: Path) -> Run:
    """The environment leaves a field of the observation 0."""
    return trained(folder, depots(NoCapacity))


# --- One thing twice -----------------------------------------------------------------------------


class NextTwice(Depots):
    def look(self, i: int) -> Any:
        peers = [self.load[(i + 1) % 3] for _ in (1, 2)]
        return np.array([self.load[i], self.capacity[i], *peers], np.float32)


@fault("observation-repeated")
def neighbour_written_twice(folder: Path) -> Run:
    """The first neighbour's load stands where the second one's should."""
    return trained(folder, depots(NextTwice))


class OneKey(Depots):
    """Shows each peer's load and capacity under a key of its own, bound in a loop too late."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        part = spaces.Box(0, 10, (2,), np.float32)
        parts = spaces.Dict(dict.fromkeys(("own", "next", "after"), part))
        return spaces.Dict(observation=parts, action_mask=spaces.Box(0, 1, (3,), np.int8))

    def look(self, i: int) -> Any:
        readers = {}
        for k, name in enumerate(("own", "next", "after")):
            j = (i + k) % 3
            readers[name] = lambda: np.array([self.load[j], self.capacity[j]])  # noqa: B023
        own = np.array([self.load[i], self.capacity[i]])
        parts = {"own": own, "next": readers["next"](), "after": readers["after"]()}
        return {name: part.astype(np.float32) for name, part in parts.items()}


@fault("observation-repeated")
def peers_read_by_one_closure(folder: Path) -> Run:
    """Two peers' entries are read by functions that are bound to the same loop variable."""
    return trained(folder, depots(OneKey), trainer="ippo")


# --- An earlier observation, or another's --------------------------------------------------------


def late(buffer: Any, at: Any, observations: Any) -> None:
    fresh = buffer.vector[at].copy(), [image[at].copy() for image in buffer.images]
    before = getattr(buffer, "before", None)
    if before is not None and before[0].shape == fresh[0].shape:
        buffer.vector[at] = before[0]
        for image, old in zip(buffer.images, before[1], strict=True):
            image[at] = old
    buffer.before = fresh


@fault("observation-late")
def observation_late_in_the_buffer(folder: Path) -> Run:
    """Decisions are made on the observation of the step before."""
    return trained(folder, depots(), trainer=buffer_of(late))


@fault("observation-late")
def images_late_in_the_buffer(folder: Path) -> Run:
    """Images, and all else, are those of the step before."""
    return trained(folder, depots(Pictured), trainer=buffer_of(late))


class LateDepots(Depots):
    def looks(self) -> dict[str, Any]:
        fresh = {agent: self.look(i) for i, agent in enumerate(NAMES)}
        shown = fresh if self.t == 0 else self.before
        self.before = fresh
        return {
            agent: {"observation": shown[agent], "action_mask": self.mask(i)}
            for i, agent in enumerate(NAMES)
        }


@fault("observation-late")
def observation_late_in_the_environment(folder: Path) -> Run:
    """The environment hands out the observation of the step before."""
    return trained(folder, depots(LateDepots))


class Delay(BaseParallelWrapper):  # type: ignore[misc]
    """Hands out the observation of the step before, and the mask of this one."""

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed=seed, options=options)
        self.before = observations
        return observations, infos

    def step(self, actions: Any) -> Any:
        fresh, *rest = super().step(actions)
        shown = {
            agent: {**each, "observation": self.before[agent]["observation"]}
            for agent, each in fresh.items()
        }
        self.before = fresh
        return shown, *rest


@fault("observation-late")
def observation_late_in_a_wrapper(folder: Path) -> Run:
    """A wrapper hands out the observation of the step before."""
    return trained(folder, wrapped_arena(Delay))


def swap(buffer: Any, at: Any, observations: Any) -> None:
    width = buffer.group.layout.width
    buffer.vector[at][..., :width] = np.roll(buffer.vector[at][..., :width], 1, axis=1)


@fault("observation-of-another")
def observation_of_another_agent(folder: Path) -> Run:
    """The buffer stores observations one column further."""
    return trained(folder, depots(), trainer=buffer_of(swap))


def blank_images(buffer: Any, at: Any, observations: Any) -> None:
    for image in buffer.images:
        image[at] = 0


@fault("observation-changed")
def images_not_stored(folder: Path) -> Run:
    """Images are never copied into the buffer."""
    return trained(folder, depots(Pictured), trainer=buffer_of(blank_images))


# --- Nothing -------------------------------------------------------------------------------------


class Frozen(Depots):
    def looks(self) -> dict[str, Any]:
        if self.t == 0:
            self.first = {agent: self.look(i) for i, agent in enumerate(NAMES)}
        return {
            agent: {"observation": self.first[agent], "action_mask": self.mask(i)}
            for i, agent in enumerate(NAMES)
        }


@fault("observation-constant")
def observation_of_the_reset_for_ever(folder: Path) -> Run:
    """The observation that reset made is handed out until the next one."""
    return trained(folder, depots(Frozen))


class Blank(Depots):
    def look(self, i: int) -> Any:
        return np.zeros(4, np.float32)


@fault("observation-constant")
def observation_never_written(folder: Path) -> Run:
    """The array of the observation is made, and never written."""
    return trained(folder, depots(Blank))


class NotANumber(Depots):
    def look(self, i: int) -> Any:
        seen = super().look(i)
        seen[1] = np.float32(self.load[i]) / np.float32(self.load.sum() if self.t % 5 else 0.0)
        return seen


@fault("observation-not-finite")
def observation_is_not_a_number(folder: Path) -> Run:
    """An observation divides by a sum that may be 0."""
    with np.errstate(all="ignore"):
        return trained(folder, depots(NotANumber))


class Infinite(Depots):
    def step(self, actions: Any) -> Any:
        looks, rewards, *rest = super().step(actions)
        if self.t == 7:
            rewards["depot_1"] = float(np.log(np.zeros(1))[0])
        return looks, rewards, *rest


@fault("reward-not-finite")
def reward_is_infinite(folder: Path) -> Run:
    """A reward is the logarithm of 0."""
    with np.errstate(all="ignore"):
        return trained(folder, depots(Infinite))


# --- Who plays -----------------------------------------------------------------------------------


@fault("shared-without-identity")
def shared_without_identity(folder: Path) -> Run:
    """Agents that observe the same share a policy that is not told which one it plays."""
    return trained(folder, "two_step_v0", trainer="ippo", agent_id=False)


class AllLoads(Depots):
    def look(self, i: int) -> Any:
        return np.array([*self.load, self.capacity.sum()], np.float32)


@fault("shared-without-identity")
def common_view_without_identity(folder: Path) -> Run:
    """Each depot observes all loads in the same order, and nobody tells it which one is its own."""
    return trained(folder, depots(AllLoads), agent_id=False)


def forget_identity(buffer: Any, at: Any, observations: Any) -> None:
    buffer.vector[at][..., buffer.group.layout.width :] = 0.0


@fault("identity-changed", "observation-changed")
def identity_zeroed(folder: Path) -> Run:
    """The columns that tell which agent it is are written over with 0."""
    return trained(folder, depots(AllLoads), trainer=buffer_of(forget_identity))


def first_identity(buffer: Any, at: Any, observations: Any) -> None:
    width = buffer.group.layout.width
    buffer.vector[at][..., width:] = np.eye(buffer.group.identities, dtype=np.float32)[0]


@fault("identity-changed", "observation-changed")
def everybody_is_the_first(folder: Path) -> Run:
    """Every agent is told that it is the first one."""
    return trained(folder, depots(AllLoads), trainer=buffer_of(first_identity))


# --- Masks and actions of the environment --------------------------------------------------------


class NoMask(BaseParallelWrapper):  # type: ignore[misc]
    """Hands out masks of ones, while the environment goes on to judge by its own."""

    @staticmethod
    def opened(looks: Any) -> Any:
        return {
            agent: {**each, "action_mask": np.ones_like(each["action_mask"])}
            for agent, each in looks.items()
        }

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        looks, infos = super().reset(seed=seed, options=options)
        return self.opened(looks), infos

    def step(self, actions: Any) -> Any:
        looks, *rest = super().step(actions)
        return self.opened(looks), *rest


@fault("mask-lies")
def mask_forbids_nothing(folder: Path) -> Run:
    """The mask allows everything, and the environment penalises part of it."""
    return trained(folder, wrapped_arena(NoMask, **WALLS))


class OpenArena(ArenaRules):
    name = "open_arena"

    def observe(self, state: Any) -> Any:
        looks = super().observe(state)
        for each in looks.values():
            each["action_mask"][...] |= 1
        return looks


@fault("mask-lies")
def rules_judge_by_another_mask(folder: Path) -> Run:
    """Rules of one's own show masks of ones, and count moves off the grid as illegal."""
    return trained(folder, OpenArena(walls="mask", illegal="penalise"), trainer="ippo")


class RollsActions(BaseParallelWrapper):  # type: ignore[misc]
    """Hands each agent the action of the one before it."""

    def step(self, actions: Any) -> Any:
        names = list(actions)
        return super().step(
            {names[i]: actions[names[i - 1]] for i in range(len(names))} if names else actions
        )


@fault("actions-permuted", "mask-lies")
def actions_permuted_by_a_wrapper(folder: Path) -> Run:
    """A wrapper hands each agent the action of another one."""
    return trained(folder, wrapped_arena(RollsActions, **WALLS))


class OwnOnly(Depots):
    """Each depot sends away as much as it chooses, and observes its own load alone."""

    def mask(self, i: int) -> Any:
        return np.ones(3, np.int8)

    def look(self, i: int) -> Any:
        return np.array([self.load[i], self.capacity[i], 0, 0], np.float32)

    def step(self, actions: Any) -> Any:
        names = list(actions)
        wrong = {names[i]: actions[names[i - 1]] for i in range(3)}
        self.load = np.array([self.load[i] / (1 + wrong[a]) for i, a in enumerate(NAMES)])
        return super().step(dict.fromkeys(names, 0))


@fault("actions-permuted")
def actions_permuted_in_the_environment(folder: Path) -> Run:
    """The environment indexes actions one agent further."""
    return trained(folder, depots(OwnOnly), trainer="ippo")


class PaidForOthers(Depots):
    """Each depot throws away as much as it chooses; a wrapper pays it for another one."""

    def step(self, actions: Any) -> Any:
        self.load = np.array([self.load[i] / (1 + actions[a]) for i, a in enumerate(NAMES)])
        looks, rewards, *rest = super().step(dict.fromkeys(NAMES, 0))
        return looks, dict(zip(NAMES, np.roll(list(rewards.values()), 1), strict=True)), *rest


@fault("reward-of-another", sure=False)
def rewards_zipped_with_other_names(folder: Path) -> Run:
    """The environment hands out rewards one agent further."""
    return trained(folder, depots(PaidForOthers))
