"""check_env: the check of an environment, ours or anybody's, for what learners rely on.

    from corral.envs import check_env

    def test_my_environment():
        check_env(my_module.parallel_env).require()

Plays whole episodes of many seeds, tries legal and illegal actions, copies, pickles and resets, and
plays the same in other processes. Reports every fault that it finds, each with where it was seen,
what was expected and what to do next. ``corral check`` is the same from the command line;
docs/conformance.md lists the checks.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from corral.envs.arguments import nonnegative_int
from corral.envs.conformance.episodes import EPISODES, watched
from corral.envs.conformance.makes import Copies, make_of
from corral.envs.conformance.masks import check_masks
from corral.envs.conformance.processes import Processes
from corral.envs.conformance.report import CHECKS, CheckResult, Finding, Findings
from corral.envs.conformance.session import Session

__all__ = ["CHECKS", "CheckResult", "Finding", "check_env"]


AT_EVERY_STEP = (
    *("crash", "endless", "agents", "observation", "mask", "reward", "ends", "info", "aliasing"),
)
"""The checks of what one environment shows while it is played."""

Progress = Callable[[str, int, int], None]

TURNS_ONLY = ("selection", "last", "dead-step", "cumulative-rewards")


def check_env(
    env: Any,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    limit: int = 2_000,
    stochastic: bool | None = None,
    processes: bool = True,
    seconds: float | None = None,
    progress: Progress = lambda what, done, total: None,
) -> CheckResult:
    """Check a PettingZoo environment, parallel or AEC.

    ``check_env(env).require()`` raises ConformanceError, with the report, where there are errors;
    ``.findings`` holds them all, ``.text()`` is the report.

    Args:
        env: best a function that makes a fresh environment at every call. To be checked in other
            processes too it must pickle: a function of a module, ``functools.partial`` of one, or
            ``corral.envs.registry.NamedEnv``. Else a module, or a text that ``NamedEnv`` knows; or
            an environment, of which deep copies are played. One that cannot be copied is played
            itself; what needs fresh ones is not run then.
        seeds: of the episodes; two or more, 0 or larger.
        limit: number of steps of an agent within which an episode must end.
        stochastic: whether seeds must give different episodes; default: a note says if not. False:
            they must all give the same.
        processes: play in other processes, too. False: the report says that it was not done.
        seconds: about how long it may take; None: as long as it takes. The first episode of every
            seed is played to its end; what compares episodes is then cut to so many steps, and so
            many moments at which masks are tried, as time allows. A note says what was left out.
        progress: is called with what is looked at, and how much of how much is done.

    Raises:
        ValueError: an argument is out of its range, or a module makes no environment.
        UnknownNameError: a name that is none of corral's. What is wrong with the environment is
            never raised; it is in the result.
    """
    nonnegative_int("limit", limit, least=1)
    numbers = tuple(nonnegative_int("seeds", seed) for seed in seeds)
    if not numbers:
        raise ValueError("seeds=(): give one or more, better three")
    began = time.monotonic()
    make = make_of(env)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds={seconds}: give a number above 0, or None")
    session = Session(make, Findings(), numbers, limit, stochastic, seconds)
    with _quiet():
        if isinstance(make, Copies):
            _prepare(session, make)
        can_be_played = session.begin()
        if can_be_played:
            _play(session, processes, progress)
    findings = session.findings
    order = list(CHECKS)
    ranked = sorted(
        findings.found.values(), key=lambda f: (f.severity != "error", order.index(f.check))
    )
    if can_be_played:
        run = [name for name in order if _applies(name, session) and name not in findings.not_run]
    else:
        run = ["api", "spaces"]
        why = "the environment cannot be played, see above"
        findings.skip([name for name in order if name not in run], why)
    form = "AEC" if session.turns else "parallel"
    if not session.name:
        form = "not made"
    return CheckResult(
        environment=session.name or getattr(make, "__name__", str(make)),
        form=form,
        findings=tuple(ranked),
        not_run=dict(findings.not_run),
        notes=tuple(dict.fromkeys(findings.notes)),
        checks=tuple(run),
        seeds=numbers,
        episodes=session.episodes,
        steps=session.steps,
        seconds=round(time.monotonic() - began, 2),
    )


def _play(session: Session, processes: bool, progress: Progress) -> None:
    total = len(EPISODES) + 3
    progress("episodes", 0, total)
    watched(session)
    if session.alone is not None:
        done = ("api", "spaces", *AT_EVERY_STEP, *TURNS_ONLY)
        session.findings.skip([name for name in CHECKS if name not in done], session.alone)
        return
    session.plan()
    limit = session.limit  # the processes play just as far
    elsewhere = Processes(session.make, session.seeds, limit) if processes else None
    with elsewhere or nullcontext():
        for number, (what, check) in enumerate(EPISODES.items(), 1):
            progress(what, number, total)
            check(session)
        progress("masks", total - 2, total)
        check_masks(session)
        progress("other processes", total - 1, total)
        if elsewhere is None:
            session.findings.skip(["processes", "hashing"], "processes=False")
        else:
            elsewhere.judge(session)
    progress("", total, total)


def _prepare(session: Session, make: Copies) -> None:
    """Find out whether an environment that was given can be copied."""
    try:
        make()
    except Exception as error:  # whatever copying raises
        session.make = lambda: make.env
        session.alone = (
            f"the environment that was given cannot be copied ({type(error).__name__}: {error}); "
            "give a function that makes fresh ones"
        )
        session.findings.notes.append("the environment that was given was played itself")
    else:
        session.findings.notes.append("deep copies of the environment that was given were played")


def _applies(name: str, session: Session) -> bool:
    if name in ("mask", "mask-lies"):
        return session.masked or session.findings.has(name)
    return session.turns or name not in TURNS_ONLY


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings of environments, most of all of illegal actions."""
    logger = logging.getLogger("pettingzoo.utils.env_logger")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled
