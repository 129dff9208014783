"""Further seeds: play more episodes until the time of the check is over.

Chance that ``reset`` does not seed may decide few episodes only, and a state that ``reset`` forgets
may matter in few episodes only. So every further seed is played three times: watched by the checks
of single steps, repeated in another fresh environment, and in one environment that plays all seeds.
"""

from __future__ import annotations

from corral.envs.conformance.episodes import add_exception, compare_repeated, require_forgotten
from corral.envs.conformance.play import Game, Trace
from corral.envs.conformance.report import CHECKS
from corral.envs.conformance.session import Session
from corral.envs.conformance.steps import StepChecks

__all__ = ["further_seeds"]

ROUND = 3
"""Episodes per seed."""


def further_seeds(session: Session) -> None:
    """Play seeds after the largest one passed until the time is over, or a check has an error.

    Nothing is played after an earlier error: the environment must be corrected first.
    """
    if session.seconds is None or session.findings.has(*CHECKS):
        return
    longest = max(len(game.trace) for game in session.games)
    if ROUND * longest * session.per_step() < session.remaining():
        session.limit = session.whole_limit
    else:
        longest = max(map(len, session.traces))
    seed, stream = max(session.seeds), len(session.seeds)
    needed = ROUND * longest * session.per_step()
    used = session.game()
    remembered: tuple[int, Trace, Trace] | None = None
    while session.remaining() > needed and not session.findings.has(*CHECKS):
        before = session.clock.seconds()
        seed, stream = seed + 1, stream + 1
        trace = _fresh(session, seed, stream)
        session.episode(seed, stream, used, leave_open=True)
        if remembered is None and session.difference(trace, used.trace) is not None:
            remembered = seed, trace, used.trace
        needed = max(needed, session.clock.seconds() - before)
    session.close(used)
    # A difference may also be unseeded chance, which more seeds show in fresh environments.
    if remembered is not None and not session.findings.has("seed"):
        require_forgotten(session, *remembered, "after other episodes")


def _fresh(session: Session, seed: int, stream: int) -> Trace:
    """Play a seed in two fresh environments, the first one watched, and compare the episodes."""
    checks = StepChecks(session.findings, seed, may_wait=session.alternates)
    watched: Game = session.episode(seed, stream, session.game(checks))
    if watched.failure is not None:
        add_exception(session, watched, seed)
    repeated = session.episode(seed, stream)
    compare_repeated(session, seed, stream, watched.trace, repeated.trace)
    return repeated.trace
