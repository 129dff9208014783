"""Environments beside each other: two that are stepped in turn, a copy and its original."""

from __future__ import annotations

from typing import Literal

from gymnasium.utils import EzPickle

from corral.envs.conformance.play import Game, play_on
from corral.envs.conformance.session import Session, middle_of

__all__ = ["copied", "interleaved"]


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
        session.findings.skip(["num_envs"], "environments share state, see shared-state")
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
    """Copy a game that is being played and end both; whether the copy is as good as it."""
    add, seed, alone = session.findings.add, session.seeds[0], session.traces[0]
    call = "pickle.loads(pickle.dumps(env))" if how == "pickle" else "copy.deepcopy(env)"
    try:
        twin = game.fork(how)
    except Exception as error:  # whatever copying raises
        session.count(game)
        add(
            "num_envs",
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
                "num_envs",
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
