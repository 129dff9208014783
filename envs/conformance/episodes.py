"""Checks that compare whole episodes: the same seed, other seeds, resets, neighbours, copies.

``EPISODES`` holds them in order. One that would say nothing new, because what it stands on has
failed, is entered as not run, with the reason.
"""

from __future__ import annotations

import math
from typing import Literal

from gymnasium.utils import EzPickle

from corral.envs.conformance.play import BadAnswer, Game, play_on
from corral.envs.conformance.report import Severity, brief
from corral.envs.conformance.session import FORM, Difference, Session, middle_of
from corral.envs.conformance.steps import StepChecks
from corral.errors import EnvironmentFault

__all__ = ["EPISODES", "watched"]

COMPARISONS = ("other-seeds", "reset", "shared-state", "copies", "processes", "hashing")
"""The checks that stand on equal episodes under equal seeds."""

WATCHING = 0.4
"""Share of the time in which episodes are watched to their end."""

STREAMS = 3
"""Lines of play in which other seeds are tried."""

UNSEEDED = (
    "draw all chance from one generator of the environment's own, made in reset: "
    "if seed is not None: self.rng = np.random.default_rng(seed)"
)

REBUILT = (
    "EzPickle makes a new environment, without the state of the game: save that too in "
    "__getstate__, or copy before the first reset only"
)
LEFT_OUT = "see what __getstate__, __setstate__, __reduce__ or __deepcopy__ leave out or share"


def watched(session: Session) -> None:
    """Play episodes of every seed to their end, with the checks of every step."""
    for stream, seed in enumerate(session.seeds):
        checks = StepChecks(session.findings, seed)
        ends = math.inf
        if session.seconds is not None and not stream:
            ends = session.began + WATCHING * session.seconds
        game = session.episode(seed, stream, session.game(checks), ends)
        session.masked |= checks.masked
        session.games.append(game)
        if session.left() < (1 - WATCHING) * (session.seconds or 0):
            session.plan()  # that was long: the others are cut
        if game.broke is not None:
            add_exception(session, game, seed)


def add_exception(session: Session, game: Game, seed: int | None, check: str = "crash") -> None:
    """Enter the exception of a game as a finding."""
    broke = game.broke
    if broke is None:
        return
    error, step = broke.error, game.step
    if isinstance(error, BadAnswer):
        if "agent_selection" in str(error):
            return  # looked at already
        session.findings.add(
            f"api: {broke.call} answers",
            at=(None, seed, step),
            seen=str(error),
            expected="what PettingZoo's documentation of the call says",
            advice="see https://pettingzoo.farama.org/api/",
        )
        return
    if isinstance(error, EnvironmentFault) and error.advice:
        session.findings.add(
            f"api: {error.advice}",
            at=(None, seed, step),
            seen=error.seen,
            expected=FORM,
            advice=error.advice,
        )
        return
    agent, action = next(iter(broke.actions.items())) if len(broke.actions) == 1 else (None, None)
    if broke.actions and action is None and game.turns:
        session.findings.add(
            "dead-step: raises",
            at=(agent, seed, step),
            seen=f"step(None) of an agent that has ended raised {broke}",
            expected="step(None) removes it from agents",
            advice="begin step() with: if terminations[agent_selection] or "
            "truncations[agent_selection]: return self._was_dead_step(action)",
        )
        return
    played = brief({str(agent): action for agent, action in broke.actions.items()}, 100)
    session.findings.add(
        f"{check}: {broke.call} {type(error).__name__}",
        at=(agent, seed, step),
        seen=f"{broke.call}() raised {broke}" + (f", after {played}" if broke.actions else ""),
        expected="reset(seed) and steps with actions of the action space, legal by the mask where "
        "there is one, raise nothing",
        advice="replay the seed and the action to see the traceback; if the action is illegal, "
        "say so with an action_mask",
    )


def same_seed(session: Session) -> None:
    """Compare episodes of two fresh environments under the same seed and actions."""
    for stream, (seed, watched) in enumerate(zip(session.seeds, session.games, strict=True)):
        game = session.episode(seed, stream)
        session.traces.append(game.trace)
        length = len(game.trace) if session.shortened else None
        difference = Difference.first(watched.trace[:length], game.trace, ignore=("info",))
        if difference is None:
            difference = Difference.first(watched.trace[:length], game.trace)
            if difference is not None:
                session.ignore = ("info",)
                _differs(session, "info differs", "warning", seed, difference)
        elif session.turns and not _observing_changes_nothing(session, seed, stream, difference):
            continue
        else:
            _differs(session, "differs", "error", seed, difference)
    if session.findings.has("seed"):
        session.findings.skip(COMPARISONS, "the same seed gives different episodes, see seed")
        return
    # Without a seed the next episode goes on with the same generator.
    seed = session.seeds[0]
    one, two = (session.episode(None, 1, session.episode(seed, 0)).trace for _ in ("one", "two"))
    session.same(
        one,
        two,
        "seed: later episodes",
        seed,
        "warning",
        seen="the same seed, one episode, then reset() without a seed, the same actions",
        expected="the same second episode: training seeds its first reset alone",
        advice="let reset(seed=None) go on with the generator that it has",
    )


def _differs(
    session: Session, cause: str, severity: Severity, seed: int, difference: Difference
) -> None:
    what = "infos" if severity == "warning" else "whole episode"
    session.findings.add(
        f"seed: {cause}",
        severity,
        at=(difference.agent, seed, difference.step),
        seen=f"two fresh environments, the same seed and actions: {difference}",
        expected=f"the same {what}",
        advice=UNSEEDED if what != "infos" else "keep times and memory addresses out of infos",
    )


def _observing_changes_nothing(
    session: Session, seed: int, stream: int, difference: Difference
) -> bool:
    """Enter a finding, and return False, where one more call of observe() made the difference."""
    if session.differs(session.traces[stream], session.episode(seed, stream).trace) is not None:
        return True
    session.findings.add(
        "last: observe changes the game",
        at=(difference.agent, seed, difference.step),
        seen=f"observe() was called twice a step instead of once, all else equal: {difference}",
        expected="looking changes nothing",
        advice="draw noise in step() and keep it; let observe() and last() only tell",
    )
    return False


def other_seeds(session: Session) -> None:
    """Check that episodes of other seeds differ under the same actions, where there is chance."""
    if session.findings.has("seed"):
        return
    if len(set(session.seeds)) < 2:
        session.findings.skip(["other-seeds"], "one seed was given; give two or more")
        return
    first, *others = (seed for seed in dict.fromkeys(session.seeds))
    alike = others
    # Chance may matter in some lines of play only: several are tried.
    for stream in range(STREAMS):
        one = session.traces[0] if stream == 0 else session.episode(first, stream).trace
        alike = [
            seed for seed in alike if not session.differs(one, session.episode(seed, stream).trace)
        ]
        if len(alike) < len(others):
            break
    seeds = ", ".join(map(str, [first, *others]))
    if len(alike) == len(others) and session.stochastic is None:
        session.findings.notes.append(
            f"seeds {seeds} gave the same episodes: right for a game without chance; state "
            "stochastic=True (--stochastic) where there should be some"
        )
    if len(alike) == len(others) and session.stochastic:
        session.findings.add(
            "other-seeds: alike",
            seen=f"seeds {seeds} give the same episodes under the same actions",
            expected="different episodes, of an environment that is stated to be stochastic",
            advice="make the generator from the seed that reset is given",
        )
    if len(alike) < len(others) and session.stochastic is False:
        seed = next(seed for seed in others if seed not in alike)
        session.findings.add(
            "other-seeds: differ",
            at=(None, seed, None),
            seen=f"seed {seed} gives another episode than seed {first}, the same actions",
            expected="one episode, of an environment that is stated to be deterministic",
            advice="find what draws from the seed, or do not state stochastic=False",
        )


def resets(session: Session) -> None:
    """Check that reset works without a seed, and forgets with one, also in mid-episode."""
    game = session.episode(None, 1)
    if not session.findings.has("crash", "api", "dead-step", "selection"):
        began = game.broke is None or game.broke.call == "step"
        add_exception(session, game, None, "crash" if began else "reset")
    if session.findings.has("seed", "reset"):
        return
    seed, alone = session.seeds[0], session.traces[0]
    for place in ("after an episode", "in mid-episode"):
        if place == "in mid-episode":
            game = session.game()
            game.begin(seed + 1, 1)  # another episode, other actions
            play_on(game, middle_of(alone))
        session.episode(seed, 0, game)
        session.same(
            alone,
            game.trace,
            f"reset: remembers {place}",
            seed,
            seen=f"reset(seed) {place}, against a fresh environment",
            expected="the same episode: reset with a seed forgets all that was",
            advice="set every attribute that an episode changes in reset()",
        )


# --- Environments beside each other --------------------------------------------------------------


def interleaved(session: Session) -> None:
    """Check that two environments stepped in turn play what each plays alone."""
    if session.findings.has("seed"):
        return
    streams = (0, len(session.seeds) - 1)
    games = [session.game() for _ in streams]
    for game, stream in zip(games, streams, strict=True):
        game.begin(session.seeds[stream], stream)
    while any(not game.over and game.step < session.limit_of(game) for game in games):
        for game in games:
            if not game.over:
                game.play(game.choose())
    for game, stream in zip(games, streams, strict=True):
        session.count(game)
        session.same(
            session.traces[stream][: len(game.trace)],
            game.trace,
            "shared-state: interleaved",
            session.seeds[stream],
            seen="another environment was stepped in turn with this one, against alone",
            expected="environments of one process know nothing of each other",
            advice="keep nothing in class attributes, module globals or global generators "
            "(np.random.seed, random.seed)",
        )


def copied(session: Session) -> None:
    """Check that pickled and deep copies go on as their original, stepped in turn with it."""
    if session.findings.has("seed"):
        _try_deepcopy(session)
        return
    if session.findings.has("shared-state"):
        session.findings.skip(["copies"], "environments share state, see shared-state")
        return
    alone = session.traces[0]
    ways: tuple[Literal["pickle", "deepcopy"], ...] = ("pickle", "deepcopy")
    for how in ways:
        sound = True
        middle = middle_of(alone)
        for cut in sorted({0, middle} if how == "pickle" else {middle}):
            game = session.game()
            game.begin(session.seeds[0], 0)
            play_on(game, cut)
            if game.over:
                session.count(game)
                continue
            sound &= _copied_at(session, game, how)
        if sound:
            session.fork = how  # deepcopy, the last, is preferred


def _copied_at(session: Session, game: Game, how: Literal["pickle", "deepcopy"]) -> bool:
    """Copy a game that is being played and end both; return if both play on as it would have."""
    add, seed, alone = session.findings.add, session.seeds[0], session.traces[0]
    call = "pickle.loads(pickle.dumps(env))" if how == "pickle" else "copy.deepcopy(env)"
    try:
        twin = game.fork(how)
    except Exception as error:  # whatever copying raises
        session.count(game)
        add(
            f"copies: {how} raises",
            "warning",
            at=(None, seed, game.step),
            seen=f"{call} raised {type(error).__name__}: {error}",
            expected="a copy: worker processes, tree search and snapshots rely on it",
            advice="keep windows, files, lambdas and generators (yield) out of attributes, or "
            "leave them out in __getstate__",
        )
        return False
    while not (game.over and twin.over):
        for each in (twin, game):
            if not each.over:
                each.play(each.choose())
                each.over |= each.step >= session.limit_of(each)
    for each, who in ((twin, "the copy"), (game, "the original, once copied")):
        session.count(each)
        difference = session.differs(alone[: len(each.trace)], each.trace)
        if difference is None:
            continue
        anew = each is twin and isinstance(game.env.unwrapped, EzPickle)
        add(
            "copies: EzPickle" if anew else f"copies: {how}: {who}",
            "warning" if anew else "error",
            at=(difference.agent, seed, difference.step),
            seen=f"{call}, then both stepped in turn: in {who} {difference}",
            expected="both go on as if there had been no copy",
            advice=REBUILT if anew else LEFT_OUT,
        )
        return False  # of the original there would be nothing new to say
    return True


def _try_deepcopy(session: Session) -> None:
    """Find a way to copy games for trying out masks, where nothing is repeatable."""
    game = session.game()
    game.begin(session.seeds[0], 0)
    try:
        game.fork("deepcopy")
    except Exception:  # whatever copying raises: then there is no fork
        return
    session.fork = "deepcopy"


EPISODES = {
    "the same seeds": same_seed,
    "other seeds": other_seeds,
    "resets": resets,
    "two in turn": interleaved,
    "copies": copied,
}
"""Checks of whole episodes after those that were ``watched``, by what they are about."""
