"""Rules of third-party environments with states that can be copied, like those of array code.

A state holds one ``Moment`` per row. ``step`` leaves moments unchanged and makes new ones, so rows
may share them. The first step from a moment takes its game along. A moment that is needed again
first keeps a game, and each further step gets a copy of it.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.adapters.snapshots.games import Game, PickledGame, SnapshotError, Way
from corral.adapters.snapshots.proof import Copied, has_chance, prove
from corral.adapters.zoo.batch import ZooRules, stack_rows
from corral.adapters.zoo.copies import Actions, CopyStep, Observed
from corral.envs.batch import Batch
from corral.envs.core import (
    Array,
    Observation,
    Outcome,
    Rules,
    generator,
    plays_as_arrays,
    third_party,
)
from corral.errors import CheckpointError

__all__ = ["SnapshotBatch", "SnapshotRules", "copyable", "snapshot_rules"]

KEY = 16
"""Number of bytes that identify a state."""


@dataclass(eq=False)
class Moment:
    """A moment of an episode that can be played on any number of times."""

    look: Observed
    over: bool = False
    chance: np.random.Generator | None = None  # at the start of the episode; else None
    before: Moment | None = None
    actions: Actions = field(default_factory=dict)  # after ``before``
    game: Game | None = None  # unused game at this moment
    kept: Game | None = None  # a game that is only copied

    def take(self, way: Way) -> Game:
        """Return a game at this moment, which the caller plays on."""
        if self.kept is not None:
            return self.kept.copy()
        if self.game is not None:
            game, self.game = self.game, None
            return game
        self.keep(way)
        return self.take(way)

    def keep(self, way: Way) -> None:
        """Keep a game at this moment, because more than one step is played from it."""
        if self.kept is None and not self.over:
            self.kept, self.game = self.game or self._played_again(way), None

    def _played_again(self, way: Way) -> Game:
        """Return a game that is played from the last kept moment, or from the start, to here."""
        past, moment = [self.actions], self.before
        while moment is not None and moment.kept is None:
            past.append(moment.actions)
            moment = moment.before
        if moment is not None and moment.kept is not None:
            game = moment.kept.copy()
        else:
            game = way.make()
            game.begin(copy.deepcopy(self._start().chance))  # type: ignore[arg-type]
            past.pop()  # the start has no actions
        for actions in reversed(past):
            game.play(actions)
        return game

    def _start(self) -> Moment:
        start = self
        while start.before is not None:
            start = start.before
        return start


@dataclass
class GameState:
    """The state of B rows."""

    moment: Array  # object [B]

    @property
    def looks(self) -> list[Observed]:
        return [moment.look for moment in self.moment]


class SnapshotRules:
    """The rules of a third-party environment with states that can be copied."""

    illegal: Literal["penalise", "raise"] = "raise"
    render_modes: tuple[str, ...] = ()
    render_fps = 1
    simultaneous = False  # an agent may join late, or wait

    def __init__(self, rules: ZooRules, way: Way, copied: Copied) -> None:
        self.name, self.agents, self.max_cycles = rules.name, rules.agents, rules.max_cycles
        self.zoo, self.copied, self._way = rules, copied, way
        self.max_rows = way.max_games
        self._numbers = itertools.count()

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.zoo.observation_space(agent)

    def action_space(self, agent: str) -> spaces.Discrete:
        space = self.zoo.action_space(agent)
        assert isinstance(space, spaces.Discrete)  # see ``snapshot_rules``
        return space

    def state_space(self) -> spaces.Box:
        return self.zoo.state_space()

    # --- Play ------------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> GameState:
        """Begin an episode in each row."""
        moments = []
        for rng in rngs:
            chance, game = copy.deepcopy(rng), self._way.make()
            moments.append(Moment(game.begin(rng), chance=chance, game=game))
        return GameState(_objects(moments))

    def step(self, state: GameState, action: Array) -> Outcome[GameState]:
        """Play ``action``, int [B, N]. Raises the errors of the environment."""
        shared = Counter(map(id, state.moment))
        moved = []
        moments = []
        for moment, row in zip(state.moment, action.tolist(), strict=True):
            if shared[id(moment)] > 1:
                moment.keep(self._way)
            step, following = self._step(moment, row)
            moved.append(step)
            moments.append(following)
        over = np.array([moment.over for moment in moments])
        truncated = np.stack([step.truncated for step in moved])
        terminated = np.stack([step.terminated for step in moved])
        # An episode may be over although some agents never joined.
        terminated |= over[:, None] & ~truncated
        return Outcome(
            state=GameState(_objects(moments)),
            reward=np.stack([step.reward for step in moved]).astype(np.float32),
            terminated=terminated,
            info=self._infos([step.info for step in moved]),
            truncated=truncated,
        )

    def _step(self, moment: Moment, row: Sequence[int]) -> tuple[CopyStep, Moment]:
        look = moment.look
        if moment.over:
            no_agent = np.zeros(len(row), dtype=bool)
            return CopyStep(look, np.zeros(len(row)), no_agent, no_agent.copy(), {}, None), moment
        actions = {agent: row[i] for i, agent in enumerate(self.agents) if look.acting[i]}
        game = moment.take(self._way)
        moved = game.play(actions)
        over = moved.final is not None
        return moved, Moment(
            moved.look, over, before=moment, actions=actions, game=None if over else game
        )

    def keep(self, state: GameState, rows: Array) -> None:
        """See ``OptionalRules.keep``."""
        for moment in state.moment[rows]:
            moment.keep(self._way)

    # --- Game trees ------------------------------------------------------------------------------

    def starts(self) -> tuple[GameState, Array] | None:
        """Return the start state and its probability, or None if episodes depend on the seed."""
        if self.copied.redraws or has_chance(self._way, self.zoo):
            return None
        return self.start([generator(0, "env")]), np.ones(1)

    def future(self, state: GameState) -> Array:
        """See ``OptionalRules.future``. Only pickled games can show that states are equal."""
        keys = b"".join(map(self._key, state.moment))
        return np.frombuffer(keys, dtype=np.uint8).reshape(len(state.moment), KEY)

    def _key(self, moment: Moment) -> bytes:
        game = moment.kept or moment.game
        if isinstance(game, PickledGame):
            data = game.data()
        else:
            data = next(self._numbers).to_bytes(KEY, "big")
        return hashlib.blake2b(data, digest_size=KEY).digest()

    # --- Observations ----------------------------------------------------------------------------

    def observe(self, state: GameState) -> dict[str, Observation]:
        """Return the observations of all agents, [B, ...]."""
        looks = state.looks
        return {
            agent: stack_rows([look.observations[i] for look in looks])
            for i, agent in enumerate(self.agents)
        }

    def acting(self, state: GameState) -> Array:
        acting = np.zeros((len(state.moment), len(self.agents)), dtype=bool)
        for row, look in enumerate(state.looks):
            acting[row] = look.acting
        return acting

    def global_state(self, state: GameState) -> Array:
        return np.stack([look.state for look in state.looks])

    def info(self, state: GameState) -> dict[str, Array]:
        return self._infos([look.info for look in state.looks])

    def _infos(self, infos: Sequence[dict[str, Array]]) -> dict[str, Array]:
        names, nothing = dict.fromkeys(itertools.chain(*infos)), np.zeros(len(self.agents))
        return {name: np.stack([info.get(name, nothing) for info in infos]) for name in names}

    def render(self, state: GameState, info: dict[str, Array], mode: str) -> Any:
        raise ValueError(f"mode={mode!r}: copies of {self.name} are not drawn")


class SnapshotBatch(Batch):
    """B environments of ``SnapshotRules``. They are copied in memory, but not into a file."""

    resumes_exactly = False

    def snapshot(self) -> dict[str, Any]:
        """Raise CheckpointError, see ``ZooBatch.snapshot``."""
        raise CheckpointError(f"{self.rules.name}: the state of the games cannot be saved")

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Raise CheckpointError, see ``ZooBatch.restore``."""
        raise CheckpointError(f"{self.rules.name}: the state of the games cannot be restored")


def snapshot_rules(rules: ZooRules) -> SnapshotRules:
    """Return rules of the same environment with states that can be copied.

    Plays a few episodes to prove that copies are exact, see ``SnapshotRules.copied``. Raises
    SnapshotError if they are not in any way, or if an agent's actions are not Discrete.
    """
    for agent in rules.agents:
        if not isinstance(space := rules.action_space(agent), spaces.Discrete):
            raise SnapshotError(f"{agent} has the action space {space}; only Discrete is supported")
    # The caller applies a time limit that is not the environment's own, as for array code.
    way, copied = prove(dataclasses.replace(rules, max_cycles=None))
    return SnapshotRules(rules, way, copied)


def copyable(rules: Rules[Any]) -> Rules[Any]:
    """Return rules with states that can be copied: ``rules``, or those of ``snapshot_rules``.

    Raises SnapshotError if a third-party environment cannot be copied, or for recorded steps.
    """
    if plays_as_arrays(rules):
        return rules
    if not third_party(rules):
        raise SnapshotError(f"{rules.name} are recorded steps, which have no states")
    return snapshot_rules(rules)  # type: ignore[arg-type]


def _objects(moments: Sequence[Moment]) -> Array:
    array = np.empty(len(moments), dtype=object)
    array[:] = moments
    return array
