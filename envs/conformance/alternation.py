"""Recognize a turn-based game that is written as a parallel environment.

At several moments of an episode, the check changes the action of one agent on a copy of the game.
If only one agent's action has an effect at each moment, and the agents take turns, then it is a
turn-based game: no fault, but learners should know the mover.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.masks import RESERVE, twin_of
from corral.envs.conformance.play import Game, Trace, play_on
from corral.envs.conformance.session import Session

__all__ = ["check_alternation"]

MOMENTS, FEWEST = 12, 4
"""Number of tested moments, and minimum number of them with a mover."""
TRIES = 2
"""Other actions of an agent at a moment."""
HORIZON = 4
"""Maximum number of steps after an action in which its effect is looked for."""


def check_alternation(session: Session) -> None:
    """Add a note if agents take turns, and remove the finding that waiting agents cannot act."""
    if session.turns or session.fork is None or session.findings.has("seed", "crash", "api"):
        return
    movers: list[Any] = []
    ignored = False  # a waiting agent could choose
    tested = 0
    for game in _moments(session):
        tested += 1
        choosing = [agent for agent in game.to_act if _alternatives(game, agent)]
        effective = _effective(session, game, choosing)
        if len(effective) > 1:
            return
        movers += effective
        ignored |= bool(effective) and len(choosing) > 1
    if len(movers) < max(FEWEST, tested / 2) or len(set(movers)) < 2:
        return
    session.alternates = True
    session.findings.entries.pop(("mask", "all zero"), None)
    if ignored:
        names = ", ".join(map(str, dict.fromkeys(movers)))
        session.findings.notes.append(
            f"agents take turns ({names}): at {len(movers)} of {tested} tested steps, only one "
            "agent's action had an effect. Learners would also train the ignored actions. Use the "
            "AEC API (pettingzoo.AECEnv), or give waiting agents an action_mask of zeros and set "
            "metadata['is_parallelizable'] = False"
        )


def _moments(session: Session) -> Iterator[Game]:
    """Play the first episode again and yield its game at several steps."""
    trace = session.traces[0]
    last = trace[-1].step if trace else 0
    game = session.game()
    game.begin(session.seeds[0], 0)
    for moment in sorted({int(step) for step in np.linspace(0, max(0, last - 1), MOMENTS)}):
        play_on(game, moment)
        if game.over or session.remaining() < RESERVE * (session.seconds or 0.0):
            break
        yield game
    session.count(game)


def _effective(session: Session, game: Game, agents: Sequence[Any]) -> list[Any]:
    """Return the agents with an effective action at this moment; at most two of them."""
    unchanged = _after(session, game, {})
    effective = []
    for agent in agents:
        traces = (_after(session, game, {agent: other}) for other in _alternatives(game, agent))
        if any(session.difference(unchanged, trace) is not None for trace in traces):
            effective.append(agent)
        if len(effective) > 1:
            break
    return effective


def _after(session: Session, game: Game, changed: dict[Any, Any]) -> Trace:
    """Return the trace of a copy that plays on, with ``changed`` actions in its next step."""
    twin = twin_of(session, game, session.seeds[0], 0)
    ends = twin.step + 1 + min(HORIZON, len(twin.to_act))
    twin.play({**twin.choose(), **changed})
    play_on(twin, ends)
    session.count(twin)
    return twin.trace


def _alternatives(game: Game, agent: Any) -> list[Any]:
    """Return up to ``TRIES`` legal actions; none if an agent has no choice."""
    mask, space = game.to_act[agent], game.space("action", agent)
    if isinstance(space, spaces.Discrete):
        legal = np.ones(int(space.n), bool) if mask is None else mask
        if legal.sum() < 2:
            return []
        actions, _ = game.alternatives(agent, legal)
        return [actions[0], actions[-1]][:TRIES]
    sampled = copy.deepcopy(space)  # seeding the original would change the game
    sampled.seed(game.step)
    return [sampled.sample() for _ in range(TRIES)]
