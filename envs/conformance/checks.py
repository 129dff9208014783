"""The checks that take whole episodes: each a function of a ``Session``, in the order of ``ALL``.

What a single view shows is looked at by ``corral.envs.conformance.looks``, masks are tried out by
``corral.envs.conformance.masks``. A check that would say nothing new, because what it stands on has
failed, is entered as not run, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium import spaces

from corral.envs.conformance.copies import copied, interleaved
from corral.envs.conformance.play import BadAnswer, Game, NotOurs, game_of, play_on
from corral.envs.conformance.report import Severity
from corral.envs.conformance.session import Session, middle_of
from corral.envs.conformance.spaces import look_at_spaces
from corral.envs.conformance.trace import Difference, brief, first_difference

__all__ = ["ALL", "begin"]

COMPARISONS = ("other-seeds", "reset", "shared-state", "num_envs", "processes", "hashing")
"""What stands on it that the same seed gives the same episode."""

STREAMS = 3
"""Lines of play in which other seeds are tried."""

UNSEEDED = (
    "draw all chance from one generator of the environment's own, made in reset: "
    "if seed is not None: self.rng = np.random.default_rng(seed)"
)


# --- Before anything is played -------------------------------------------------------------------


def begin(session: Session) -> bool:
    """Make the environment, look at its agents and spaces; whether it can be played at all."""
    add = session.findings.add
    try:
        made = session.make()
        game = game_of(made)
    except NotOurs as error:
        add(
            "api",
            "no environment",
            seen=str(error),
            expected="a function that returns a pettingzoo ParallelEnv or AECEnv",
            advice="derive the class from pettingzoo.ParallelEnv or pettingzoo.AECEnv",
        )
        return False
    except Exception as error:  # whatever make raises
        add(
            "api",
            "make raises",
            seen=f"make() raised {type(error).__name__}: {error}",
            expected="a fresh environment, made without arguments",
            advice="wrap it: functools.partial(function, argument=value)",
        )
        return False
    session.turns = game.turns
    metadata = getattr(made, "metadata", None) or {}
    session.name = str(metadata.get("name", type(made.unwrapped).__name__))
    if session.make() is made:
        add(
            "api",
            "one environment",
            seen="make() returned the same object twice",
            expected="a fresh environment at every call",
            advice="give a function that constructs the environment",
        )
        return False
    agents = list(getattr(made, "possible_agents", None) or ())
    if not agents:
        add(
            "api",
            "possible_agents",
            "warning",
            seen="no possible_agents",
            expected="the names of all agents that may come",
            advice="set self.possible_agents in the constructor: learners need it for their "
            "networks",
        )
    sound = [look_at_spaces(game, agent, session.findings, "before reset") for agent in agents]
    if any(
        not isinstance(game.space("action", agent), spaces.Discrete)
        and isinstance(game.space("observation", agent), spaces.Dict)
        and "action_mask" in game.space("observation", agent).spaces
        for agent in (agents if all(sound) else [])
    ):
        session.findings.notes.append("masks of actions that are not Discrete were not checked")
    session.count(game)
    session.episodes -= 1  # it was not played
    return all(sound)


# --- Episodes of their own -----------------------------------------------------------------------


def whole_episodes(session: Session) -> None:
    """Watched episodes of every seed, to their end; and who breaks them."""
    for stream, seed in enumerate(session.seeds):
        game = session.episode(seed, stream, watch=True)
        session.games.append(game)
        if game.broke is not None:
            told_broken(session, game, seed)


def told_broken(session: Session, game: Game, seed: int | None, check: str = "crash") -> None:
    """Enter what the environment raised under its own name."""
    broke = game.broke
    if broke is None:
        return
    error, step = broke.error, game.step
    if isinstance(error, BadAnswer):
        if "agent_selection" in str(error):
            return  # looked at already
        session.findings.add(
            "api",
            f"{broke.call} answers",
            seed=seed,
            step=step,
            seen=str(error),
            expected="what PettingZoo's documentation of the call says",
            advice="see https://pettingzoo.farama.org/api/",
        )
        return
    agent, action = next(iter(broke.actions.items())) if len(broke.actions) == 1 else (None, None)
    if broke.actions and action is None and game.turns:
        session.findings.add(
            "dead-step",
            "raises",
            agent=agent,
            seed=seed,
            step=step,
            seen=f"step(None) of an agent that has ended raised {broke}",
            expected="step(None) removes it from agents",
            advice="begin step() with: if terminations[agent_selection] or "
            "truncations[agent_selection]: return self._was_dead_step(action)",
        )
        return
    played = brief({str(agent): action for agent, action in broke.actions.items()}, 100)
    session.findings.add(
        check,
        f"{broke.call} {type(error).__name__}",
        agent=agent,
        seed=seed,
        step=step,
        seen=f"{broke.call}() raised {broke}" + (f", after {played}" if broke.actions else ""),
        expected="reset(seed) and steps with actions of the action space, legal by the mask where "
        "there is one, raise nothing",
        advice="replay the seed and the action to see the traceback; if the action is illegal, "
        "say so with an action_mask",
    )


def same_seed(session: Session) -> None:
    """Two fresh environments, the same seed and the same actions: the same whole episode."""
    for stream, (seed, watched) in enumerate(zip(session.seeds, session.games, strict=True)):
        game = session.episode(seed, stream)
        session.traces.append(game.trace)
        length = len(game.trace) if session.findings.has("endless") else None
        difference = first_difference(watched.trace[:length], game.trace, ignore=("info",))
        if difference is None:
            difference = first_difference(watched.trace[:length], game.trace)
            if difference is not None:
                session.ignore = ("info",)
                _differs(session, "info differs", "warning", seed, difference)
        elif session.turns and not _looking_matters_not(session, seed, stream, difference):
            continue
        else:
            _differs(session, "differs", "error", seed, difference)
    if session.findings.has("seed"):
        session.findings.skip(COMPARISONS, "the same seed gives different episodes, see seed")
        return
    # Without a seed the next episode goes on with the same generator.
    seed = session.seeds[0]
    one, two = (
        session.episode(None, 1, game=session.episode(seed, 0)).trace for _ in ("one", "two")
    )
    difference = session.differs(one, two)
    if difference is not None:
        session.findings.add(
            "seed",
            "later episodes",
            "warning",
            seed=seed,
            step=difference.step,
            agent=difference.agent,
            seen="the same seed, one episode, then reset() without a seed, the same actions: "
            f"{difference}",
            expected="the same second episode: training seeds its first reset alone",
            advice="let reset(seed=None) go on with the generator that it has",
        )


def _differs(
    session: Session, cause: str, severity: Severity, seed: int, difference: Difference
) -> None:
    what = "infos" if severity == "warning" else "whole episode"
    session.findings.add(
        "seed",
        cause,
        severity,
        seed=seed,
        step=difference.step,
        agent=difference.agent,
        seen=f"two fresh environments, the same seed and actions: {difference}",
        expected=f"the same {what}",
        advice=UNSEEDED if what != "infos" else "keep times and memory addresses out of infos",
    )


def _looking_matters_not(session: Session, seed: int, stream: int, difference: Difference) -> bool:
    """False, and a finding, where the episode differed because observe() was called once more."""
    if session.differs(session.traces[stream], session.episode(seed, stream).trace) is not None:
        return True
    session.findings.add(
        "last",
        "observe changes the game",
        seed=seed,
        step=difference.step,
        agent=difference.agent,
        seen=f"observe() was called twice a step instead of once, all else equal: {difference}",
        expected="looking changes nothing",
        advice="draw noise in step() and keep it; let observe() and last() only tell",
    )
    return False


def other_seeds(session: Session) -> None:
    """Different seeds, the same actions: the episodes differ, where there is chance."""
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
            "other-seeds",
            "alike",
            seen=f"seeds {seeds} give the same episodes under the same actions",
            expected="different episodes, of an environment that is stated to be stochastic",
            advice="make the generator from the seed that reset is given",
        )
    if len(alike) < len(others) and session.stochastic is False:
        seed = next(seed for seed in others if seed not in alike)
        session.findings.add(
            "other-seeds",
            "differ",
            seed=seed,
            seen=f"seed {seed} gives another episode than seed {first}, the same actions",
            expected="one episode, of an environment that is stated to be deterministic",
            advice="find what draws from the seed, or do not state stochastic=False",
        )


def resets(session: Session) -> None:
    """Reset without a seed works; reset with one forgets what was, also in mid-episode."""
    game = session.episode(None, 1)
    if not session.findings.has("crash", "api", "dead-step", "selection"):
        began = game.broke is None or game.broke.call == "step"
        told_broken(session, game, None, "crash" if began else "reset")
    if session.findings.has("seed", "reset"):
        return
    seed, alone = session.seeds[0], session.traces[0]
    for place in ("after an episode", "in mid-episode"):
        if place == "in mid-episode":
            game = session.game()
            game.begin(seed + 1, 1)  # another episode, other actions
            play_on(game, middle_of(alone))
        session.episode(seed, 0, game=game)
        difference = session.differs(alone, game.trace)
        if difference is None:
            continue
        session.findings.add(
            "reset",
            f"remembers {place}",
            seed=seed,
            step=difference.step,
            agent=difference.agent,
            seen=f"reset(seed) {place}, against a fresh environment: {difference}",
            expected="the same episode: reset with a seed forgets all that was",
            advice="set every attribute that an episode changes in reset()",
        )


ALL: Sequence[Callable[[Session], Any]] = (
    whole_episodes,
    same_seed,
    other_seeds,
    resets,
    interleaved,
    copied,
)
