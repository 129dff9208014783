"""dfaas_v0 with one fault each, planted to see whether the contract catches it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell
from support.loads import small_trace


def _rules(kind: type[DfaasRules], **kwargs: Any) -> DfaasRules:
    return kind(**{"trace": small_trace(), "max_cycles": 6, "queue": 3, **kwargs})


class Masks(DfaasRules):
    """Masks edited by ``edit``, a method of subclasses, after they were made."""

    def observe(self, state: Any) -> Any:
        observations = super().observe(state)
        for observation in observations.values():
            mask = observation["action_mask"]
            for row, highest in enumerate(mask.sum(axis=1) - 1):
                self.edit(mask[row], highest)
        return observations


class AllowsOneTooMany(Masks):
    def edit(self, mask: np.ndarray, highest: int) -> None:
        mask[: highest + 2] = 1


class ForbidsOneTooMany(Masks):
    def edit(self, mask: np.ndarray, highest: int) -> None:
        mask[highest] = highest == 0


class EmptyMask(Masks):
    def edit(self, mask: np.ndarray, highest: int) -> None:
        if highest == 0:
            mask[:] = 0


class NanReward(DfaasRules):
    def step(self, state: Any, action: Any) -> Any:
        outcome = super().step(state, action)
        outcome.reward[:, 1] = np.where(outcome.state.t == 4, np.nan, outcome.reward[:, 1])
        return outcome


class ObservationOutside(DfaasRules):
    def observe(self, state: Any) -> Any:
        observations = super().observe(state)
        observations["node_1"]["observation"][:, 0] += (state.t == 3) * 1.5
        return observations


class WrongDtype(DfaasRules):
    def observe(self, state: Any) -> Any:
        observations = super().observe(state)
        features = observations["node_2"]["observation"]
        return {
            **observations,
            "node_2": {**observations["node_2"], "observation": features.astype(np.float16)},
        }


class StateOutside(DfaasRules):
    def global_state(self, state: Any) -> Any:
        return super().global_state(state) * 2


class IgnoresSeed(DfaasRules):
    def start(self, rngs: Any) -> Any:
        return super().start([np.random.default_rng() for _ in rngs])


class AlwaysTheSame(DfaasRules):
    def start(self, rngs: Any) -> Any:
        return super().start([np.random.default_rng(0) for _ in rngs])


class RandomFromStepTwo(DfaasRules):
    def step(self, state: Any, action: Any) -> Any:
        outcome = super().step(state, action)
        chance = np.random.default_rng().random(outcome.reward.shape, dtype=np.float32)
        outcome.reward -= chance * (outcome.state.t > 2)[:, None]
        return outcome


class InfoMissingAtReset(DfaasRules):
    def info(self, state: Any) -> Any:
        return {key: value for key, value in super().info(state).items() if key != "lost"}


class SharedState(DfaasRules):
    """The steps that have passed are counted for all environments of the process together."""

    _passed: ClassVar[np.ndarray] = np.zeros(1, dtype=np.int64)

    def start(self, rngs: Any) -> Any:
        state = super().start(rngs)
        if len(rngs) == 1:
            self._passed[...] = 0
            state.t = self._passed
        return state


class DependsOnHash(DfaasRules):
    """The first row follows the order of a set of strings, which differs between processes."""

    def start(self, rngs: Any) -> Any:
        state = super().start(rngs)
        state.start += list({f"name {i}" for i in range(40)}).index("name 0")
        return state


class ChanceInCopies(DfaasRules):
    """What a copy draws depends on how many copies there are."""

    def start(self, rngs: Any) -> Any:
        return super().start([rngs[0]] * len(rngs))


class Shell(ParallelShell):
    """The base of faults that lie in the shell."""


class NeverEnds(Shell):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.max_cycles = None


class RemembersTheEpisodeBefore(Shell):
    def _begin(self, seed: int | None) -> None:
        elapsed = self._elapsed // 2
        super()._begin(seed)
        self._elapsed = elapsed


class NumpyRewards(Shell):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, {a: np.float32(r) for a, r in rewards.items()}, *rest


class BothEnds(Shell):
    def step(self, actions: Any) -> Any:
        observations, rewards, _, truncated, infos = super().step(actions)
        return observations, rewards, dict(truncated), truncated, infos


class RewardsTheAbsent(Shell):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, {**rewards, "node_9": 0.0}, *rest


class ChangesBeforeRefusing(Shell):
    def step(self, actions: Any) -> Any:
        self._tries = getattr(self, "_tries", 0) + 1
        return super().step(actions)


class LosesItsClock(Shell):
    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_elapsed": 0}


class NewSpaces(Shell):
    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self.rules.levels)


class KeepsItsObservations(Shell):
    """The same arrays are filled anew at each step."""

    def step(self, actions: Any) -> Any:
        kept = self._kept = getattr(self, "_kept", {})
        observations, *rest = super().step(actions)
        for agent, observation in observations.items():
            array = kept.setdefault(agent, observation["observation"].copy())
            array[...] = observation["observation"]
            observation["observation"] = array
        return observations, *rest


class LegalByWhatWasHandedOut(Shell):
    """Legal is what the observation says that the caller holds, and may have overwritten."""

    def _checked(self, agent: str, action: Any, acts: bool = True) -> int:
        self._masks = {a: o["action_mask"] for a, o in self._observations.items()}
        return super()._checked(agent, action, acts)


def faulty(kind: type, **kwargs: Any) -> ParallelShell:
    """A parallel environment with the fault ``kind``, of its rules or of its shell."""
    if issubclass(kind, ParallelShell):
        return kind(_rules(DfaasRules, **kwargs))
    return ParallelShell(_rules(kind, **kwargs))


def faulty_rules(kind: type[DfaasRules], **kwargs: Any) -> DfaasRules:
    return _rules(kind, **kwargs)
