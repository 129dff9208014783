"""The checks that take whole episodes: each a function of a ``Session``, in the order of ``ALL``.

What a single view shows is looked at by ``corral.envs.conformance_looks``, masks are tried out by
``corral.envs.conformance_masks``. A check that would say nothing new, because what it stands on has
failed, is entered as not run, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gymnasium import spaces
from gymnasium.utils import EzPickle

from corral.envs.conformance_looks import Looks, look_at_spaces
from corral.envs.conformance_play import (
    SHORT,
    BadAnswer,
    Difference,
    Game,
    Make,
    NotOurs,
    Trace,
    Watcher,
    brief,
    first_difference,
    game_of,
    play_on,
    steps_of,
)
from corral.envs.conformance_report import Findings, Severity

__all__ = ["ALL", "COMPARISONS", "Session", "begin"]

COMPARISONS = ("other-seeds", "reset", "shared-state", "copies", "processes", "hashing")
"""What stands on it that the same seed gives the same episode."""

STREAMS = 3
"""Lines of play in which other seeds are tried."""

UNSEEDED = (
    "draw all chance from one generator of the environment's own, made in reset: "
    "if seed is not None: self.rng = np.random.default_rng(seed)"
)


@dataclass
class Session:
    """One check of one environment: what to play, what was played, what was found."""

    make: Make
    findings: Findings
    seeds: tuple[int, ...]
    limit: int
    stochastic: bool | None
    name: str = ""
    turns: bool = False
    masked: bool = False
    games: list[Game] = field(default_factory=list)  # those of the watched episodes, by seed
    traces: list[Trace] = field(default_factory=list)  # of ``seeds``
    ignore: tuple[str, ...] = ()  # kinds of parts that are known not to be repeatable
    fork: Literal["deepcopy", "pickle"] | None = None  # how a game can be copied
    episodes: int = 0
    steps: int = 0

    def game(self, watcher: Watcher | None = None) -> Game:
        return game_of(self.make(), watcher)

    def limit_of(self, game: Game) -> int:
        return steps_of(game, self.limit)

    def episode(
        self, seed: int | None, stream: int, *, game: Game | None = None, watch: bool = False
    ) -> Game:
        """A game, fresh unless given, after an episode."""
        watcher = Looks(self.findings, seed) if watch else None
        played = game or self.game(watcher)
        played.begin(seed, stream)
        ended = play_on(played, self.limit_of(played))
        if not ended and self.limit > SHORT:
            self.findings.add(
                "endless",
                "limit",
                seed=seed,
                step=played.step,
                seen=f"an episode did not end within {played.step:,} steps",
                expected="a termination or a truncation of every agent",
                advice="give the environment a time limit; or, if its episodes are that long, "
                f"raise the check's limit, {self.limit:,}",
            )
            self.limit = SHORT
        if watcher is not None:
            self.masked |= watcher.masked
        self.count(played)
        return played

    def count(self, game: Game) -> None:
        """Add a game that was played to the totals, and close it."""
        self.episodes += 1
        self.steps += game.total_steps
        game.total_steps = 0
        try:
            game.close()
        except Exception as error:  # whatever it raises
            self.findings.add(
                "api",
                "close",
                "warning",
                seen=f"close() raised {type(error).__name__}: {error}",
                expected="close() may be called at any time",
                advice="release only what is there",
            )

    def differs(self, one: Trace, two: Trace) -> Difference | None:
        return first_difference(one, two, self.ignore)


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
            play_on(game, _middle(alone))
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


def interleaved(session: Session) -> None:
    """Two environments stepped in turn play what each plays alone."""
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
        difference = session.differs(session.traces[stream][: len(game.trace)], game.trace)
        if difference is None:
            continue
        session.findings.add(
            "shared-state",
            "interleaved",
            seed=session.seeds[stream],
            step=difference.step,
            agent=difference.agent,
            seen="another environment was stepped in turn with this one, against alone: "
            f"{difference}",
            expected="environments of one process know nothing of each other",
            advice="keep nothing in class attributes, module globals or global generators "
            "(np.random.seed, random.seed)",
        )


def copied(session: Session) -> None:
    """Pickled and deep copies, in turn with their original, go on as it does."""
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
        middle = _middle(alone)
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
    """Copy a game that is being played and end both; whether the copy is as good as it."""
    add, seed, alone = session.findings.add, session.seeds[0], session.traces[0]
    call = "pickle.loads(pickle.dumps(env))" if how == "pickle" else "copy.deepcopy(env)"
    try:
        twin = game.fork(how)
    except Exception as error:  # whatever copying raises
        session.count(game)
        add(
            "copies",
            f"{how} raises",
            "warning",
            seed=seed,
            step=game.step,
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
    sound = True
    for each, who in ((twin, "the copy"), (game, "the original, once copied")):
        session.count(each)
        difference = session.differs(alone[: len(each.trace)], each.trace)
        if difference is not None:
            sound = False
            anew = who == "the copy" and isinstance(game.env.unwrapped, EzPickle)
            add(
                "copies",
                "EzPickle" if anew else f"{how}: {who}",
                "warning" if anew else "error",
                seed=seed,
                step=difference.step,
                agent=difference.agent,
                seen=f"{call}, then both stepped in turn: in {who} {difference}",
                expected="both go on as if there had been no copy",
                advice="EzPickle makes a new environment, without the state of the game: save "
                "that too in __getstate__, or copy before the first reset only"
                if anew
                else "see what __getstate__, __setstate__, __reduce__ or __deepcopy__ leave out "
                "or share",
            )
            break  # of the original there would be nothing new to say
    return sound


def _try_deepcopy(session: Session) -> None:
    """Where nothing is repeatable copies cannot be compared; they serve to try out masks."""
    game = session.game()
    game.begin(session.seeds[0], 0)
    try:
        game.fork("deepcopy")
    except Exception:  # whatever copying raises: then there is no fork
        return
    session.fork = "deepcopy"


def _middle(trace: Trace) -> int:
    return trace[-1].step // 2 if trace else 0


ALL: Sequence[Callable[[Session], Any]] = (
    whole_episodes,
    same_seed,
    other_seeds,
    resets,
    interleaved,
    copied,
)
