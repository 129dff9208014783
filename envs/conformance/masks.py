"""Checks of action masks: their format, and their agreement with the environment.

At several steps of each episode, and for each agent that must act, the check plays a few allowed
and a few masked actions. Each is played on a deep copy of the environment; if it cannot be copied,
on a replay of its seed and actions. An environment may react to an illegal action in any way: raise
an exception, end the game, penalize it, or play another action. Only these cases are findings:

- an allowed action raises an exception, while another allowed action at the same step does not;
- an allowed action is counted as illegal in info (a key like ``illegal_actions`` or
  ``invalid_move``);
- an allowed action ends the game with the same penalty as every masked action (a warning, because
  a game may have legal losing moves);
- a masked action is not counted, although info counts illegal actions;
- a masked action is played, although other masked actions raise an exception or end the game (a
  warning, because an environment may refuse only some actions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.play import EXCEPTION, Failure, Game, View, mask_of, play_on
from corral.envs.conformance.report import Severity, brief, fingerprint
from corral.envs.conformance.session import Session
from corral.envs.masks import MASK, has_mask

__all__ = ["RESERVE", "check_form", "check_masks", "twin_of"]

ADVICE = {
    "all zero": "end the episode if no action is possible, or add a pass action",
    "two masks": "keep the mask in one place only",
    "else": "build the mask with dtype np.int8; action_space.sample(mask) and learners need it",
}

# --- Format of a mask ----------------------------------------------------------------------------


def check_form(
    game: Game, view: View, agent: Any, add: Callable[..., None], *, may_wait: bool = False
) -> bool:
    """Check the mask of an agent that must act and ``add`` findings. Return True if it has one.

    ``may_wait``: a mask of a ParallelEnv may be all zero if another agent can act.
    """
    observation, info = view.observations.get(agent), view.infos.get(agent)
    mask, space = mask_of(observation, info), game.space("action", agent)

    def bad(cause: str, seen: str, expected: str) -> None:
        advice = ADVICE.get(cause, ADVICE["else"])
        add(f"mask: {cause}", agent, seen=seen, expected=expected, advice=advice)

    if mask is None:
        if has_mask(game.space("observation", agent)):
            bad("missing", f"{MASK} is missing in the observation", "the mask of the agent")
        return False
    if not isinstance(space, spaces.Discrete):
        return True  # a note reports it: other spaces have no standard mask format
    form = f"an int8 array of shape ({space.n},), with values 0 and 1"
    if not isinstance(mask, np.ndarray):
        bad("type", f"a {type(mask).__name__}: {brief(mask)}", form)
        return True
    if mask.shape != (int(space.n),):
        bad("shape", f"a mask of shape {mask.shape}", form)
        return True
    if mask.dtype != np.int8:
        bad("dtype", f"a mask of {mask.dtype}", form)
    if not np.isin(mask, (0, 1)).all():
        bad("values", f"a mask with {brief(np.unique(mask))}", form)
    if not mask.any() and not _waits(game, view, may_wait):
        bad("all zero", "an all-zero mask, but the agent must act", "at least one legal action")
    if mask_of(observation, None) is not None and mask_of(None, info) is not None:
        other = np.asarray(mask_of(None, info))
        if other.shape != mask.shape or (other != mask).any():
            bad("two masks", "the masks in the observation and in info differ", "one mask")
    return True


def _waits(game: Game, view: View, may_wait: bool) -> bool:
    """Return True if a mask may be all zero: a turn-based ParallelEnv in which another can act."""
    metadata = getattr(game.env, "metadata", None) or {}
    in_turns = may_wait or not metadata.get("is_parallelizable", True)
    masks = (mask_of(view.observations.get(a), view.infos.get(a)) for a in view.agents)
    return not game.turns and in_turns and any(np.any(mask) for mask in masks)


# --- Masks against the environment: actions tried on copies --------------------------------------

TRIES = 120  # approximate number per episode, at up to 12 steps
COUNTER = re.compile(r"(illegal|invalid)[_ ]?(action|move)", re.IGNORECASE)

RESERVE = 0.15  # share of the time that is reserved for other processes

LOSING = "mask this action, or ignore the warning if it is a legal losing move"
LOOK = "compute the mask and the legality check from the same rule and the same state"


@dataclass
class Try:
    """One tried action and its result."""

    seed: int
    step: int
    agent: Any
    action: Any
    legal: bool  # by the mask
    failure: Failure | None = None
    counted: bool | None = None  # counted as illegal in info; None: info has no counter
    ended: str | None = None  # fingerprint of the end of the agent's episode; None: no end
    penalty: bool = False  # the episode ended with a negative reward
    at_once: bool = False  # the episode ended with this action, not after a later one

    @property
    def moment(self) -> tuple[int, int, str]:
        return self.seed, self.step, str(self.agent)

    def note(self, view: View | None) -> None:
        """Record the result of the action from a view; None: the first call raised."""
        if view is None:
            return
        info = view.infos.get(self.agent)
        for key, value in info.items() if isinstance(info, Mapping) else ():
            if isinstance(key, str) and COUNTER.search(key) and np.ndim(value) == 0:
                self.counted = bool(value) or bool(self.counted)
        if view.is_over(self.agent) and self.ended is None:
            reward = view.rewards.get(self.agent)
            ends = view.terminations.get(self.agent), view.truncations.get(self.agent)
            everyone = all(view.is_over(other) for other in view.terminations)
            self.ended = fingerprint([reward, *ends, everyone])
            self.penalty = isinstance(reward, int | float | np.number) and bool(reward < 0)


def check_masks(session: Session) -> None:
    """Try allowed and masked actions in one episode per seed."""
    if not session.masked:
        return
    if session.fork is None and session.findings.has("seed"):
        session.findings.skip(
            ["mask-lies"], "the environment can neither be copied nor be replayed with its seed"
        )
        return
    tries: list[Try] = []
    for stream, seed in enumerate(session.seeds):
        tries += _tries(session, seed, stream)
    judge = _Judge(session, tries)
    judge.allowed()
    judge.forbidden()


def _tries(session: Session, seed: int, stream: int) -> Iterator[Try]:
    """Yield the results of several actions at several steps of the episode."""
    trace = session.traces[stream]
    last = trace[-1].step if trace else 0
    game = session.game()
    game.begin(seed, stream)
    masks = [mask for mask in game.to_act.values() if mask is not None]
    at_once = sum(min(4, mask.sum()) + min(4, (~mask).sum()) for mask in masks)
    count = int(np.clip(TRIES // max(1, at_once), 2, 12))
    moments = sorted({int(step) for step in np.linspace(0, max(0, last - 1), count)})
    for number, moment in enumerate(moments):
        if number and session.remaining() < RESERVE * (session.seconds or 0.0):
            session.findings.notes.append(
                f"time limit reached: masks of seed {seed} were tried at {number} of {count} steps"
            )
            break
        play_on(game, moment)
        if game.over:
            break
        for agent, mask in list(game.to_act.items()):
            if mask is None or not mask.any():
                continue  # no choice to test
            legal, illegal = game.alternatives(agent, mask)
            for action in (*legal, *illegal):
                twin = twin_of(session, game, seed, stream)
                allowed = any(action == one for one in legal)
                yield _outcome(twin, Try(seed, game.step, agent, action, allowed))
                session.count(twin)
    if trace and EXCEPTION in trace[-1].parts:  # a wrong mask may be the reason
        play_on(game, last)
        yield from _at_the_failure(session, game, seed, stream)
    session.count(game)


def _at_the_failure(session: Session, game: Game, seed: int, stream: int) -> Iterator[Try]:
    """Yield the results of other actions in place of the actions that raised."""
    failure = game.failure
    if failure is None or failure.call != "step" or session.findings.has("seed"):
        return
    for agent, action in failure.actions.items():
        situation = _replayed(session, game.played[:-1], seed, stream)
        mask = situation.to_act.get(agent)
        if mask is None:
            continue
        legal, _ = situation.alternatives(agent, mask)
        for other in {int(action), *map(int, legal)}:
            twin = _replayed(session, game.played[:-1], seed, stream)
            tried = Try(seed, situation.step, agent, np.int64(other), True)
            rest = {**failure.actions, agent: tried.action}
            yield _outcome(twin, tried, rest)
            session.count(twin)
        session.count(situation)


def twin_of(session: Session, game: Game, seed: int, stream: int) -> Game:
    if session.fork is not None:
        return game.fork(session.fork)
    return _replayed(session, game.played, seed, stream)


def _replayed(
    session: Session, played: Iterable[Mapping[Any, Any]], seed: int, stream: int
) -> Game:
    game = session.game()
    game.begin(seed, stream)
    for _ in played:
        game.play(game.choose())  # the same actions; the random streams reach the same state
    return game


def _outcome(game: Game, tried: Try, actions: Mapping[Any, Any] | None = None) -> Try:
    """Play the action, then play on to the agent's next turn (AEC environments may react late)."""
    agent = tried.agent
    game.view = None
    game.play(actions or {**game.choose(), agent: tried.action})
    tried.note(game.view)
    tried.at_once = tried.ended is not None
    rounds = 2 * len(game.view.agents) if game.view else 0
    while game.turns and not game.over and rounds and agent not in game.to_act:
        game.play(game.choose())
        tried.note(game.view)
        rounds -= 1
    tried.failure = game.failure
    return tried


class _Judge:
    """Derive the findings from all tries together."""

    def __init__(self, session: Session, tries: list[Try]) -> None:
        self.session = session
        self.legal = [one for one in tries if one.legal]
        self.illegal = [one for one in tries if not one.legal]
        self.raising = {type(one.failure.error) for one in self.illegal if one.failure}
        self.counting = any(one.counted is not None for one in tries)
        # The common end of the game after every masked action, if it exists.
        ends = {one.ended for one in self.illegal if one.failure is None}
        punished = all(one.penalty for one in self.illegal if one.failure is None)
        self.penalty = ends.pop() if len(ends) == 1 and punished else None

    def _add(
        self, cause: str, tried: Try, result: str, severity: Severity = "error", advice: str = LOOK
    ) -> None:
        self.session.findings.add(
            f"mask-lies: {cause}",
            severity,
            at=(tried.agent, tried.seed, tried.step),
            seen=f"the mask says action {tried.action} is {'' if tried.legal else 'il'}legal, "
            f"{result}",
            expected="allowed actions are legal, masked actions are illegal",
            advice=advice,
        )

    def allowed(self) -> None:
        """Judge the actions that the mask allows."""
        played = {one.moment for one in self.legal if one.failure is None}
        harmless = {one.moment for one in self.legal if one.ended != self.penalty}
        for one in self.legal:
            if one.failure is not None:
                if one.moment in played:
                    # The same exception also ended the episode: report it only once.
                    kind = f"step {type(one.failure.error).__name__}"
                    self.session.findings.entries.pop(("crash", kind), None)
                    result = f"but it raised {one.failure}; another allowed action did not"
                    self._add("allowed, raises", one, result)
            elif one.counted:
                self._add("allowed, counted", one, "but info counted it as illegal")
            elif self.penalty == one.ended and one.at_once and one.moment in harmless:
                result = "but it ended the game with the same penalty as every masked action"
                self._add("allowed, punished", one, result, "warning", LOSING)

    def forbidden(self) -> None:
        """Judge the actions that the mask forbids."""
        some_end = any(one.ended and one.penalty for one in self.illegal)
        for one in self.illegal:
            if one.failure is not None:
                continue
            if self.counting:
                if one.counted is False:
                    result = "but info did not count it as illegal"
                    self._add("forbidden, not counted", one, result)
            elif self.raising:
                names = ", ".join(sorted(kind.__name__ for kind in self.raising))
                result = f"but it was played, while other masked actions raise {names}"
                self._add("forbidden, played", one, result, "warning")
            elif some_end and not one.ended:
                result = "but the game continued, while other masked actions end it with a penalty"
                self._add("forbidden, unpunished", one, result, "warning")
        if not self.illegal and not self.session.findings.has("mask-lies"):
            note = "at the tested steps no action was masked, so illegal actions were not tested"
        elif self.illegal and not (self.counting or self.raising or some_end):
            note = (
                "the reaction to illegal actions is not visible: the environment raises no "
                "exception, counts none in info and does not end; only allowed actions were tested"
            )
        else:
            return
        self.session.findings.notes.append(note)
