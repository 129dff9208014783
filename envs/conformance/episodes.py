"""Checks that compare whole episodes: same seed, other seeds, resets, interleaving, copies.

``EPISODES`` lists them in order. A check is recorded as not run, with the reason, if a failed check
makes its result meaningless.
"""

from __future__ import annotations

import math
from typing import Literal

from gymnasium.utils import EzPickle

from corral.envs.conformance.generators import fixed_generators
from corral.envs.conformance.play import BadAnswer, Game, Trace, game_of, play_on
from corral.envs.conformance.report import Severity, brief
from corral.envs.conformance.session import FORM, Difference, Session, middle_of
from corral.envs.conformance.steps import StepChecks
from corral.errors import EnvironmentFault

__all__ = [
    "EPISODES",
    "add_exception",
    "compare_repeated",
    "require_forgotten",
    "watch_episodes",
]

COMPARISONS = ("other-seeds", "reset", "shared-state", "copies", "processes", "hashing")
"""The checks that need equal episodes for equal seeds."""

WATCHING = 0.4
"""Share of the time for watched episodes, which are played to their end."""

STREAMS = 3
"""Number of action streams with which other seeds are compared."""

UNSEEDED = (
    "draw all random numbers from one generator of the environment, created in reset: "
    "if seed is not None: self.rng = np.random.default_rng(seed)"
)

REBUILT = (
    "EzPickle constructs a new environment without the state of the game. Save the state in "
    "__getstate__, or copy the environment only before its first reset"
)
LEFT_OUT = "look for what __getstate__, __setstate__, __reduce__ or __deepcopy__ omit or share"


def watch_episodes(session: Session) -> None:
    """Play one episode per seed, with all checks of single steps."""
    for stream, seed in enumerate(session.seeds):
        checks = StepChecks(session.findings, seed)
        ends = math.inf
        if session.seconds is not None and not stream:
            ends = WATCHING * session.seconds
        game = session.episode(seed, stream, session.game(checks), ends=ends, leave_open=not stream)
        session.masked |= checks.masked
        session.games.append(game)
        if session.remaining() < (1 - WATCHING) * (session.seconds or 0):
            session.plan()  # the episode took long: limit the following ones
        if not stream:
            _play_again(session, game)
        if game.failure is not None:
            add_exception(session, game, seed)


def _play_again(session: Session, watched: Game) -> None:
    """Play the first seed again in the environment that has played the watched episode.

    Only this episode is certain to be whole, and a reset may keep values that an end sets.
    """
    if session.no_copies is not None or watched.failure is not None:
        session.close(watched)
        return
    session.after_whole = session.episode(session.seeds[0], 0, game_of(watched.env)).trace


def add_exception(session: Session, game: Game, seed: int | None, check: str = "crash") -> None:
    """Add the exception of a game as a finding."""
    failure = game.failure
    if failure is None:
        return
    error, step = failure.error, game.step
    if isinstance(error, BadAnswer):
        if "agent_selection" in str(error):
            return  # checked elsewhere
        session.findings.add(
            f"api: {failure.call} answers",
            at=(None, seed, step),
            seen=str(error),
            expected="the return values in PettingZoo's documentation",
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
    agent, action = (
        next(iter(failure.actions.items())) if len(failure.actions) == 1 else (None, None)
    )
    if failure.actions and action is None and game.turns:
        session.findings.add(
            "dead-step: raises",
            at=(agent, seed, step),
            seen=f"step(None) of an ended agent raised {failure}",
            expected="step(None) removes it from agents",
            advice="start step() with: if terminations[agent_selection] or "
            "truncations[agent_selection]: return self._was_dead_step(action)",
        )
        return
    played = brief({str(agent): action for agent, action in failure.actions.items()}, 100)
    session.findings.add(
        f"{check}: {failure.call} {type(error).__name__}",
        at=(agent, seed, step),
        seen=f"{failure.call}() raised {failure}"
        + (f", after {played}" if failure.actions else ""),
        expected="reset(seed) and step() raise no exception for actions of the action space that "
        "the mask, if any, allows",
        advice="replay the seed and the action to see the traceback; if the action is illegal, "
        "exclude it with an action_mask",
    )


def same_seed(session: Session) -> None:
    """Compare episodes of two fresh environments under the same seed and actions."""
    for stream, (seed, watched) in enumerate(zip(session.seeds, session.games, strict=True)):
        game = session.episode(seed, stream)
        session.traces.append(game.trace)
        compare_repeated(session, seed, stream, watched.trace, game.trace)
    if session.findings.has("seed"):
        return
    # Without a seed the next episode continues with the same generator.
    seed = session.seeds[0]
    one, two = (session.episode(None, 1, session.episode(seed, 0)).trace for _ in ("one", "two"))
    session.require_equal(
        one,
        two,
        "seed: later episodes",
        seed,
        "warning",
        seen="same seed, one episode, then reset() without a seed and the same actions",
        expected="the same second episode: training seeds only its first reset",
        advice="let reset(seed=None) continue with the existing generator",
    )


def compare_repeated(
    session: Session, seed: int, stream: int, watched: Trace, repeated: Trace
) -> None:
    """Compare the watched and the repeated episode of one seed, in two fresh environments."""
    length = len(repeated) if session.shortened else None
    difference = Difference.first(watched[:length], repeated, ignore=("info",))
    if difference is None:
        difference = Difference.first(watched[:length], repeated)
        if difference is not None:
            session.ignore = ("info",)
            _differs(session, "info differs", "warning", seed, difference)
    elif not session.turns or _observing_is_harmless(session, seed, stream, repeated, difference):
        _differs(session, "differs", "error", seed, difference)
        session.findings.drop(COMPARISONS, "the same seed gives different episodes, see check seed")


def _differs(
    session: Session, cause: str, severity: Severity, seed: int, difference: Difference
) -> None:
    part = "infos" if severity == "warning" else "whole episode"
    session.findings.add(
        f"seed: {cause}",
        severity,
        at=(difference.agent, seed, difference.step),
        seen=f"two fresh environments with the same seed and actions: {difference}",
        expected=f"the same {part}",
        advice=UNSEEDED if part != "infos" else "keep times and memory addresses out of infos",
    )


def _observing_is_harmless(
    session: Session, seed: int, stream: int, repeated: Trace, difference: Difference
) -> bool:
    """Return False and add a finding if an additional observe() call causes the difference."""
    if session.difference(repeated, session.episode(seed, stream).trace) is not None:
        return True
    session.findings.add(
        "last: observe changes the game",
        at=(difference.agent, seed, difference.step),
        seen=f"observe() was called twice per step instead of once, all else equal: {difference}",
        expected="observe() does not change the game",
        advice="draw noise in step() and store it; observe() and last() must not change state",
    )
    return False


def other_seeds(session: Session) -> None:
    """Check that different seeds give different episodes, if the game is stochastic."""
    if session.findings.has("seed"):
        return
    if len(set(session.seeds)) < 2:
        session.findings.skip(["other-seeds"], "only one seed was passed; pass two or more")
        return
    first, *further = (seed for seed in dict.fromkeys(session.seeds))
    equal = further
    # Randomness may affect only some action sequences: try several.
    for stream in range(STREAMS):
        one = session.traces[0] if stream == 0 else session.episode(first, stream).trace
        equal = [
            seed
            for seed in equal
            if not session.difference(one, session.episode(seed, stream).trace)
        ]
        if len(equal) < len(further):
            break
    seeds = ", ".join(map(str, [first, *further]))
    fixed = _fixed_generators(session) if len(equal) == len(further) else ()
    if fixed and session.stochastic is not False:
        session.findings.add(
            "other-seeds: fixed generator",
            "error" if session.stochastic else "warning",
            seen=f"seeds {seeds} give the same episodes, and reset puts {' and '.join(fixed)} into "
            "the same state for every seed",
            expected="a generator that follows the seed argument of reset",
            advice=UNSEEDED,
        )
    elif len(equal) == len(further) and session.stochastic is None:
        session.findings.notes.append(
            f"seeds {seeds} gave the same episodes: correct for a deterministic game. If the game "
            "should be stochastic, declare it with stochastic=True (--stochastic)"
        )
    elif len(equal) == len(further) and session.stochastic:
        session.findings.add(
            "other-seeds: alike",
            seen=f"seeds {seeds} give the same episodes with the same actions",
            expected="different episodes, because the environment was declared stochastic",
            advice="create the generator from the seed argument of reset",
        )
    if len(equal) < len(further) and session.stochastic is False:
        seed = next(seed for seed in further if seed not in equal)
        session.findings.add(
            "other-seeds: differ",
            at=(None, seed, None),
            seen=f"declared deterministic, but seeds {seed} and {first} give different episodes "
            "with the same actions",
            expected="the same episode for every seed",
            advice="find the code that draws from the seed, or do not declare stochastic=False",
        )


def _fixed_generators(session: Session) -> tuple[str, ...]:
    """Return the generators that reset puts into one state; none if they cannot be read."""
    env = session.make()
    try:
        return fixed_generators(env)
    except Exception:  # wrappers may refuse an early reset, or have no attributes
        return ()
    finally:
        env.close()


def resets(session: Session) -> None:
    """Check reset without a seed, and that reset with a seed forgets the previous episode."""
    game = session.episode(None, 1, leave_open=True)
    if not session.findings.has("crash", "api", "dead-step", "selection"):
        was_reset = game.failure is None or game.failure.call == "step"
        add_exception(session, game, None, "crash" if was_reset else "reset")
    if session.findings.has("seed", "reset"):
        session.close(game)
        return
    seed, reference = session.seeds[0], session.traces[0]
    if session.after_whole:
        length = len(reference) if session.shortened else None
        require_forgotten(
            session, seed, reference, session.after_whole[:length], "after a whole episode"
        )
    for place in ("after an episode", "in mid-episode"):
        if place == "in mid-episode":
            game = session.game()
            game.begin(seed + 1, 1)  # another episode, other actions
            play_on(game, middle_of(reference))
        session.episode(seed, 0, game)
        require_forgotten(session, seed, reference, game.trace, place)


def require_forgotten(
    session: Session, seed: int, reference: Trace, played: Trace, place: str
) -> None:
    """Compare an episode after ``reset(seed)`` with the episode of a fresh environment."""
    session.require_equal(
        reference,
        played,
        "reset: remembers",
        seed,
        seen=f"reset(seed) {place}, compared with a fresh environment",
        expected="the same episode: reset with a seed forgets the previous episode",
        advice="in reset(), set every attribute that an episode changes, and create every "
        "generator from the seed",
    )


# --- Several environments ------------------------------------------------------------------------


def interleaved(session: Session) -> None:
    """Check that two interleaved environments play the same as each one separately."""
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
        session.require_equal(
            session.traces[stream][: len(game.trace)],
            game.trace,
            "shared-state: interleaved",
            session.seeds[stream],
            seen="interleaved with another environment, compared with playing separately",
            expected="environments in one process do not affect each other",
            advice="keep no state in class attributes, module globals or global generators "
            "(np.random.seed, random.seed)",
        )


def copied(session: Session) -> None:
    """Check that pickled and deep copies, interleaved with the original, play the same as it."""
    if session.findings.has("seed"):
        _try_deepcopy(session)
        return
    if session.findings.has("shared-state"):
        session.findings.skip(["copies"], "environments share state, see check shared-state")
        return
    reference = session.traces[0]
    ways: tuple[Literal["pickle", "deepcopy"], ...] = ("pickle", "deepcopy")
    for how in ways:
        sound = True
        middle = middle_of(reference)
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
    """Copy a running game and finish both. Return True if both play like an uncopied game."""
    add, seed, reference = session.findings.add, session.seeds[0], session.traces[0]
    call = "pickle.loads(pickle.dumps(env))" if how == "pickle" else "copy.deepcopy(env)"
    try:
        twin = game.fork(how)
    except Exception as error:  # copying may raise any exception
        session.count(game)
        add(
            f"copies: {how} raises",
            "warning",
            at=(None, seed, game.step),
            seen=f"{call} raised {type(error).__name__}: {error}",
            expected="a copy: worker processes, tree search and snapshots need it",
            advice="do not store windows, files, lambdas and generators (yield) in attributes, or "
            "omit them in __getstate__",
        )
        return False
    while not (game.over and twin.over):
        for one in (twin, game):
            if not one.over:
                one.play(one.choose())
                one.over |= one.step >= session.limit_of(one)
    for one, label in ((twin, "the copy"), (game, "the original, once copied")):
        session.count(one)
        difference = session.difference(reference[: len(one.trace)], one.trace)
        if difference is None:
            continue
        rebuilt = one is twin and isinstance(game.env.unwrapped, EzPickle)
        add(
            "copies: EzPickle" if rebuilt else f"copies: {how}: {label}",
            "warning" if rebuilt else "error",
            at=(difference.agent, seed, difference.step),
            seen=f"{call}, then both were stepped in turn; {label} has a {difference}",
            expected="both continue as if no copy had been made",
            advice=REBUILT if rebuilt else LEFT_OUT,
        )
        return False  # the original would give no further information
    return True


def _try_deepcopy(session: Session) -> None:
    """Find a way to copy games for the mask checks of an environment that is not repeatable."""
    game = session.game()
    game.begin(session.seeds[0], 0)
    try:
        game.fork("deepcopy")
    except Exception:  # any exception means that copying is not possible
        return
    session.fork = "deepcopy"


EPISODES = {
    "the same seeds": same_seed,
    "other seeds": other_seeds,
    "resets": resets,
    "two interleaved": interleaved,
    "copies": copied,
}
"""Checks of whole episodes after ``watch_episodes``, by subject."""
