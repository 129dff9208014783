"""Checks of action masks: their form, and their truth.

At some moments of each episode, and for each agent that must act, a few actions that its mask
allows and a few that it forbids are played, each on a copy (deep copy; where the environment cannot
be copied, a replay of its seed and actions). What an environment does with an illegal action is its
own affair: raise, end the game, penalise, play something else. So only these are findings:

- an action that the mask allows raises, while another one at the same moment is played;
- it is counted as illegal in info (a key like ``illegal_actions`` or ``invalid_move``);
- it ends the game with just the penalty that all forbidden ones end it with (a warning: a game may
  have such losing moves);
- an action that the mask forbids is not counted, where info counts illegal actions;
- it is played on, where other forbidden ones raise, or end the game (a warning: an environment may
  refuse some only).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.play import EXCEPTION, Broke, Game, View, mask_of, play_on
from corral.envs.conformance.report import Severity, brief, fingerprint
from corral.envs.conformance.session import Session
from corral.envs.masks import MASK, has_mask

__all__ = ["check_form", "check_masks"]

ADVICE = {
    "all zero": "end the episode where nothing can be done, or add an action that passes",
    "two masks": "keep the mask in one place",
    "else": "action_space.sample(mask) and learners rely on it; build it with np.int8",
}

# --- The form of a mask --------------------------------------------------------------------------


def check_form(game: Game, view: View, agent: Any, add: Callable[..., None]) -> bool:
    """Check the mask of an agent that is to act, and ``add`` findings; return if it has one."""
    observation, info = view.observations.get(agent), view.infos.get(agent)
    mask, space = mask_of(observation, info), game.space("action", agent)

    def bad(cause: str, seen: str, expected: str) -> None:
        advice = ADVICE.get(cause, ADVICE["else"])
        add(f"mask: {cause}", agent, seen=seen, expected=expected, advice=advice)

    if mask is None:
        if has_mask(game.space("observation", agent)):
            bad("missing", f"no {MASK} in the observation", "its mask")
        return False
    if not isinstance(space, spaces.Discrete):
        return True  # said once in a note: there is no one form of masks for other spaces
    form = f"an int8 array of shape ({space.n},), of 0 and 1"
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
    if not mask.any() and not _waits(game, view):
        bad("all zero", "an all-zero mask, and it has to act", "one legal action or more")
    if mask_of(observation, None) is not None and mask_of(None, info) is not None:
        other = np.asarray(mask_of(None, info))
        if other.shape != mask.shape or (other != mask).any():
            bad("two masks", "one mask in the observation, another in info", "one mask")
    return True


def _waits(game: Game, view: View) -> bool:
    """Return True if a mask may be all zero: a ParallelEnv of turns, and another can act."""
    metadata = getattr(game.env, "metadata", None) or {}
    in_turns = not metadata.get("is_parallelizable", True)
    masks = (mask_of(view.observations.get(a), view.infos.get(a)) for a in view.agents)
    return not game.turns and in_turns and any(np.any(mask) for mask in masks)


# --- The truth of masks: legal and illegal actions, tried on copies of one situation -------------

TRIES = 120  # about as many in each episode, at 12 moments or fewer
COUNTER = re.compile(r"(illegal|invalid)[_ ]?(action|move)", re.IGNORECASE)

RESERVE = 0.15  # share of the time that is left for other processes

LOSING = "forbid it, or, where it is a legal way to lose, let it be"
LOOK = "compute the mask and the check of actions from the same rule, on the same state"


@dataclass
class Try:
    """An action tried, and what came of it."""

    seed: int
    step: int
    agent: Any
    action: Any
    legal: bool  # by the mask
    broke: Broke | None = None
    counted: bool | None = None  # as illegal, in info; None: info has no such key
    ended: str | None = None  # how the agent's episode ended with it, as a fingerprint
    penalty: bool = False  # it ended with a negative reward
    at_once: bool = False  # it ended with this action, not with what others did after it

    @property
    def moment(self) -> tuple[int, int, str]:
        return self.seed, self.step, str(self.agent)

    def note(self, view: View | None) -> None:
        """Take down what a view says of the agent and its action; None: the first call raised."""
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
    """Try out masks in an episode of each seed."""
    if not session.masked:
        return
    if session.fork is None and session.findings.has("seed"):
        session.findings.skip(
            ["mask-lies"], "no copy of a situation: neither can it be copied, nor is it repeatable"
        )
        return
    tries: list[Try] = []
    for stream, seed in enumerate(session.seeds):
        tries += _tried(session, seed, stream)
    judge = _Judge(session, tries)
    judge.allowed()
    judge.forbidden()


def _tried(session: Session, seed: int, stream: int) -> Iterator[Try]:
    """Return what comes of some actions at some moments of the episode."""
    trace = session.traces[stream]
    last = trace[-1].step if trace else 0
    game = session.game()
    game.begin(seed, stream)
    masks = [mask for mask in game.asked.values() if mask is not None]
    at_once = sum(min(4, mask.sum()) + min(4, (~mask).sum()) for mask in masks)
    count = int(np.clip(TRIES // max(1, at_once), 2, 12))
    moments = sorted({int(step) for step in np.linspace(0, max(0, last - 1), count)})
    for number, moment in enumerate(moments):
        if number and session.left() < RESERVE * (session.seconds or 0.0):
            session.findings.notes.append(
                f"time was over: masks of seed {seed} were tried at {number} of {count} moments"
            )
            break
        play_on(game, moment)
        if game.over:
            break
        for agent, mask in list(game.asked.items()):
            if mask is None or not mask.any():
                continue  # nothing that the game asks for
            legal, illegal = game.alternatives(agent, mask)
            for action in (*legal, *illegal):
                twin = _twin(session, game, seed, stream)
                allowed = any(action == each for each in legal)
                yield _outcome(twin, Try(seed, game.step, agent, action, allowed))
                session.count(twin)
    if trace and EXCEPTION in trace[-1].parts:  # a lie of the mask may have broken it
        play_on(game, last)
        yield from _at_the_break(session, game, seed, stream)
    session.count(game)


def _at_the_break(session: Session, game: Game, seed: int, stream: int) -> Iterator[Try]:
    """Other actions in place of those that raised."""
    broke = game.broke
    if broke is None or broke.call != "step" or session.findings.has("seed"):
        return
    for agent, action in broke.actions.items():
        situation = _replayed(session, game.played[:-1], seed, stream)
        mask = situation.asked.get(agent)
        if mask is None:
            continue
        legal, _ = situation.alternatives(agent, mask)
        for other in {int(action), *map(int, legal)}:
            twin = _replayed(session, game.played[:-1], seed, stream)
            found = Try(seed, situation.step, agent, np.int64(other), True)
            rest = {**broke.actions, agent: found.action}
            yield _outcome(twin, found, rest)
            session.count(twin)
        session.count(situation)


def _twin(session: Session, game: Game, seed: int, stream: int) -> Game:
    if session.fork is not None:
        return game.fork(session.fork)
    return _replayed(session, game.played, seed, stream)


def _replayed(
    session: Session, played: Iterable[Mapping[Any, Any]], seed: int, stream: int
) -> Game:
    game = session.game()
    game.begin(seed, stream)
    for _ in played:
        game.play(game.choose())  # the same, and its chooser ends in the same state
    return game


def _outcome(game: Game, tried: Try, actions: Mapping[Any, Any] | None = None) -> Try:
    """Play the action, and on until its agent's next turn: AEC environments may act then."""
    agent = tried.agent
    game.view = None
    game.play(actions or {**game.choose(), agent: tried.action})
    tried.note(game.view)
    tried.at_once = tried.ended is not None
    rounds = 2 * len(game.view.agents) if game.view else 0
    while game.turns and not game.over and rounds and agent not in game.asked:
        game.play(game.choose())
        tried.note(game.view)
        rounds -= 1
    tried.broke = game.broke
    return tried


class _Judge:
    """The findings that follow from all tries together."""

    def __init__(self, session: Session, tries: list[Try]) -> None:
        self.session = session
        self.legal = [each for each in tries if each.legal]
        self.illegal = [each for each in tries if not each.legal]
        self.raising = {type(each.broke.error) for each in self.illegal if each.broke}
        self.counting = any(each.counted is not None for each in tries)
        # The one way in which every forbidden action ends the game, if there is one.
        ends = {each.ended for each in self.illegal if each.broke is None}
        punished = all(each.penalty for each in self.illegal if each.broke is None)
        self.penalty = ends.pop() if len(ends) == 1 and punished else None

    def _add(
        self, cause: str, tried: Try, what: str, severity: Severity = "error", advice: str = LOOK
    ) -> None:
        self.session.findings.add(
            f"mask-lies: {cause}",
            severity,
            at=(tried.agent, tried.seed, tried.step),
            seen=f"action {tried.action} is {'' if tried.legal else 'il'}legal by the mask, {what}",
            expected="whatever the mask allows is legal, whatever it forbids is not",
            advice=advice,
        )

    def allowed(self) -> None:
        """Judge the actions that the mask allows."""
        played = {each.moment for each in self.legal if each.broke is None}
        harmless = {each.moment for each in self.legal if each.ended != self.penalty}
        for each in self.legal:
            if each.broke is not None:
                if each.moment in played:
                    # This is why play broke, too: it is reported once.
                    kind = f"step {type(each.broke.error).__name__}"
                    self.session.findings.found.pop(("crash", kind), None)
                    what = f"and raised {each.broke}; another legal one was played"
                    self._add("allowed, raises", each, what)
            elif each.counted:
                self._add("allowed, counted", each, "and info counted it as illegal")
            elif self.penalty == each.ended and each.at_once and each.moment in harmless:
                what = "and ended the game with the penalty that every forbidden action is given"
                self._add("allowed, punished", each, what, "warning", LOSING)

    def forbidden(self) -> None:
        """Judge the actions that the mask forbids."""
        some_end = any(each.ended and each.penalty for each in self.illegal)
        for each in self.illegal:
            if each.broke is not None:
                continue
            if self.counting:
                if each.counted is False:
                    what = "and info did not count it as illegal"
                    self._add("forbidden, not counted", each, what)
            elif self.raising:
                names = ", ".join(sorted(kind.__name__ for kind in self.raising))
                what = f"and was played, while others raise {names}"
                self._add("forbidden, played", each, what, "warning")
            elif some_end and not each.ended:
                what = "and the game went on, while others end it with a penalty"
                self._add("forbidden, unpunished", each, what, "warning")
        if not self.illegal and not self.session.findings.has("mask-lies"):
            note = "at the moments that were tried masks forbade nothing: there was nothing to try"
        elif self.illegal and not (self.counting or self.raising or some_end):
            note = (
                "what the environment makes of illegal actions cannot be seen: it raises nothing, "
                "counts none in info and does not end; masks were checked for legal ones only"
            )
        else:
            return
        self.session.findings.notes.append(note)
