"""Episode statistics: sums over a batch's steps, by environment and agent.

An EpisodeRecorder keeps the steps themselves instead of sums:

    recorder = EpisodeRecorder(rules.agents, num_envs=64)
    batch = recorder.wrap(make_batch("arena_v0", num_envs=64, seed=0))
    ...  # play in it as in any batch
    for episode in recorder.ended():
        episode.rewards, episode.info["blocked"]  # [T, N] each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.batch import BatchStep
from corral.envs.core import Array

__all__ = ["EndedEpisodes", "Episode", "EpisodeRecord", "EpisodeRecorder", "EpisodeStats"]

MAX_BYTES = 2**30
"""Memory limit for the steps of unfinished episodes. Beyond it the longest are dropped."""

FIRST_STEPS = 64
"""Initial capacity of a recorder, in steps."""


@dataclass(frozen=True)
class Episode:
    """An episode that ended."""

    returns: dict[str, float]  # agent -> sum of its rewards
    length: int  # steps
    kpis: dict[str, float]  # sums of the environment's info, over steps and agents
    players: dict[str, str] = field(default_factory=dict)
    """agent -> name of the snapshot that played it instead of its policy, in self-play."""


@dataclass(frozen=True, eq=False)
class EndedEpisodes:
    """D episodes that ended, in one step or in many. Iterating returns an ``Episode`` for each."""

    agents: tuple[str, ...]
    rows: Array  # int64 [D] rows of the batch
    returns: Array  # float64 [D, N] sum of each agent's rewards
    lengths: Array  # int64 [D] steps
    infos: dict[str, Array]  # [D, N] each, sums of the infos over the steps

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def join(cls, parts: Sequence[EndedEpisodes]) -> EndedEpisodes:
        """Return the episodes of all ``parts`` in order; requires at least one part."""
        rows, returns, lengths = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("rows", "returns", "lengths")
        )
        infos = {key: np.concatenate([p.infos[key] for p in parts]) for key in parts[0].infos}
        return cls(parts[0].agents, rows, returns, lengths, infos)

    def take(self, chosen: Array) -> EndedEpisodes:
        """Return the episodes with ``chosen``: bool [D]."""
        infos = {key: sums[chosen] for key, sums in self.infos.items()}
        return EndedEpisodes(
            self.agents, self.rows[chosen], self.returns[chosen], self.lengths[chosen], infos
        )

    def __iter__(self) -> Iterator[Episode]:
        kpis = {key: sums.sum(axis=1).astype(float) for key, sums in self.infos.items()}
        returns, lengths = self.returns.tolist(), self.lengths.tolist()
        for d in range(len(self)):
            yield Episode(
                dict(zip(self.agents, returns[d], strict=True)),
                lengths[d],
                {key: float(values[d]) for key, values in kpis.items()},
            )


class EpisodeStats:
    """Sums the infos of B environments step by step, and returns each episode when it ends.

    ``sums`` holds the sums of running episodes, [B, N] each. A checkpoint saves and restores them.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self.sums: dict[str, Array] = {}
        n = len(self.agents)
        none = np.zeros(0, dtype=np.int64)
        self._none = EndedEpisodes(self.agents, none, np.zeros((0, n)), none, {})

    def add(self, step: BatchStep) -> EndedEpisodes:
        """Add a step of the batch. Return the episodes that ended in it, in the order of rows."""
        for key, values in step.info.items():
            if key not in self.sums:
                wide = np.float64 if np.asarray(values).dtype.kind == "f" else np.int64
                self.sums[key] = np.zeros(np.shape(values), dtype=wide)
            self.sums[key] += values
        if step.finished is None:
            return self._none
        rows = step.finished.rows
        infos = {key: sums[rows] for key, sums in self.sums.items()}
        for sums in self.sums.values():
            sums[rows] = 0
        return EndedEpisodes(self.agents, rows, step.finished.returns, step.finished.lengths, infos)


# --- Whole episodes ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EpisodeRecord:
    """A finished episode of T steps and N agents."""

    agents: tuple[str, ...]  # of the columns
    rewards: Array  # float32 [T, N]
    actions: Any  # int64 [T, N]; agent -> [T, ...] if some spaces are not Discrete
    acted: Array  # bool [T, N] which agents acted: alive, and on turn
    info: dict[str, Array]  # [T, N] each
    terminated: Array  # bool [N] agents that the rules ended in the last step; no time limit
    env: int  # row of the batch
    players: dict[str, str] = field(default_factory=dict)  # as in ``Episode``

    @property
    def length(self) -> int:
        """Number of steps, T."""
        return len(self.rewards)

    @property
    def returns(self) -> dict[str, float]:
        """agent -> sum of its rewards."""
        sums = self.rewards.sum(axis=0, dtype=np.float64).tolist()
        return dict(zip(self.agents, sums, strict=True))


class EpisodeRecorder:
    """Keeps the steps of B running episodes, and returns each episode when it ends."""

    def __init__(self, agents: Sequence[str], num_envs: int) -> None:
        self.agents, self.num_envs = tuple(agents), num_envs
        self._ended: list[EpisodeRecord] = []
        self.given_up = 0  # episodes that were dropped because they were too long
        self.players_in: Callable[[int], dict[str, str]] = lambda row: {}  # of a row's episode
        self.forget()

    def wrap(self, batch: Any) -> Any:
        """Return ``batch`` with a recorder: its steps are recorded from now on."""
        return _RecordedBatch(batch, self)

    def ended(self) -> list[EpisodeRecord]:
        """Return the episodes that ended since the last call."""
        records, self._ended = self._ended, []
        return records

    # --- Steps -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Mark all running episodes as complete: they start now."""
        self._drop_steps()
        self._complete[...] = True

    def forget(self) -> None:
        """Mark all running episodes as incomplete, so that they do not count."""
        self._complete = np.zeros(self.num_envs, dtype=bool)
        self._drop_steps()

    @property
    def waiting(self) -> int:
        """Number of environments with a running episode that does not count."""
        return int(np.count_nonzero(~self._complete))

    def add(self, acting: Array, actions: Any, step: BatchStep) -> None:
        """Add a step: which agents acted, bool [B, N], the actions, and the result of the step."""
        values = {"reward": step.reward, "acted": acting, **_named("info", step.info)}
        values |= _named("action", actions) if isinstance(actions, Mapping) else {"action": actions}
        if self._steps == self._capacity:
            self._make_room()
        for name, value in values.items():
            kept = self._kept.get(name)
            if kept is None:  # a new info of a third-party environment; 0 in earlier steps
                kept = self._kept[name] = np.zeros((self._capacity, *value.shape), value.dtype)
            elif kept.dtype != value.dtype:  # such as floats after integers
                wide = np.result_type(kept.dtype, value.dtype)
                kept = self._kept[name] = kept.astype(wide, copy=False)
            kept[self._steps] = value
        self._steps += 1
        if step.finished is not None:
            for row in step.finished.rows.tolist():
                if self._complete[row]:
                    self._ended.append(self._record(row, step.terminated[row]))
                self._began[row], self._complete[row] = self._steps, True

    def _record(self, row: int, terminated: Array) -> EpisodeRecord:
        arrays = {name: a[self._began[row] : self._steps, row] for name, a in self._kept.items()}
        actions = arrays.get("action")
        return EpisodeRecord(
            agents=self.agents,
            rewards=arrays["reward"].copy(),
            actions=_parts("action", arrays) if actions is None else actions.copy(),
            acted=arrays["acted"].copy(),
            info=_parts("info", arrays),
            terminated=np.array(terminated),
            env=row,
            players=self.players_in(row),
        )

    def _drop_steps(self) -> None:
        self._kept: dict[str, Array] = {}  # [capacity, B, ...] each
        self._began = np.zeros(self.num_envs, dtype=np.int64)  # step of each running episode
        self._steps, self._capacity = 0, FIRST_STEPS

    def _make_room(self) -> None:
        """Drop steps that no running episode needs. If these are few, double the capacity.

        Beyond ``MAX_BYTES`` the longest episodes are dropped instead.
        """
        if self._oldest() < self._capacity // 2:
            if 2 * sum(a.nbytes for a in self._kept.values()) > MAX_BYTES:
                longest = self._complete & (self._began < self._capacity // 2)
                self.given_up += int(np.count_nonzero(longest))
                self._complete[longest] = False
            else:
                self._capacity *= 2
        first = self._oldest()
        for name, old in self._kept.items():
            self._kept[name] = np.zeros((self._capacity, *old.shape[1:]), old.dtype)
            self._kept[name][: self._steps - first] = old[first : self._steps]
        self._began = np.maximum(self._began - first, 0)
        self._steps -= first

    def _oldest(self) -> int:
        """Return the first step of the running episodes that count."""
        return int(self._began[self._complete].min(initial=self._steps))

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> dict[str, Array]:
        """Return the steps of the running episodes as named arrays."""
        first = self._oldest()
        kept = {f"step.{name}": a[first : self._steps].copy() for name, a in self._kept.items()}
        began = np.maximum(self._began - first, 0)
        return {**kept, "began": began, "known": self._complete.copy()}

    def load(self, saved: Mapping[str, Array]) -> None:
        """Restore the result of ``save``; for ``{}`` as ``forget``. Raises ValueError, KeyError."""
        self.forget()
        if not saved:
            return
        began, complete = saved["began"], saved["known"]
        kept = _parts("step", saved)
        steps = len(kept["reward"]) if kept else 0
        shape = (steps, self.num_envs, len(self.agents))
        fits = all(a.shape[:2] == shape[:2] for a in kept.values())
        fits &= all(kept[name].shape == shape for name in ("reward", "acted") if kept)
        fits &= began.shape == complete.shape == (self.num_envs,)
        if not fits or (complete.any() and not 0 <= began.min() <= began.max() <= steps):
            raise ValueError(
                f"saved steps of unfinished episodes do not fit {shape[1:]} = (copies, agents)"
            )
        while self._capacity < steps:
            self._capacity *= 2
        for name, array in kept.items():
            self._kept[name] = np.zeros((self._capacity, *array.shape[1:]), array.dtype)
            self._kept[name][:steps] = array
        self._began, self._complete, self._steps = began.copy(), complete.copy(), steps


def _named(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{kind}.{name}": value for name, value in values.items()}


def _parts(kind: str, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies of the arrays named ``kind.name`` by ``_named``: name -> array."""
    split_names = {name.partition("."): array for name, array in values.items()}
    return {name: array.copy() for (first, _, name), array in split_names.items() if first == kind}


class _RecordedBatch:
    """A batch with an EpisodeRecorder that keeps its steps. Other attributes are the batch's."""

    def __init__(self, batch: Any, recorder: EpisodeRecorder) -> None:
        self._batch, self._recorder = batch, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def reset(self, seed: int | None = None) -> Any:
        observations = self._batch.reset(seed)
        self._recorder.begin()
        return observations

    def step(self, actions: Any) -> BatchStep:
        acting = np.array(self._batch.acting)  # a copy: the rules may reuse their array
        step: BatchStep = self._batch.step(actions)
        self._recorder.add(acting, actions, step)
        return step
