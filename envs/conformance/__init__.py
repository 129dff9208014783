"""check_env: check an environment, corral's or third-party, for the requirements of learners.

    from corral.envs import check_env

    def test_my_environment():
        check_env(my_module.parallel_env).require()

The check plays whole episodes with several seeds. It tries legal and illegal actions, copies,
pickles and resets, and repeats the episodes in other processes. Each reported fault has a place,
the evidence, the expected behavior and a remedy. ``corral check`` runs the same check from the
command line. docs/conformance.md lists all checks.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from corral.envs.arguments import nonnegative_int
from corral.envs.conformance.alternation import check_alternation
from corral.envs.conformance.episodes import EPISODES, watch_episodes
from corral.envs.conformance.further import further_seeds
from corral.envs.conformance.makes import Copies, make_of
from corral.envs.conformance.masks import check_masks
from corral.envs.conformance.processes import Processes
from corral.envs.conformance.report import CHECKS, CheckResult, Finding, Findings
from corral.envs.conformance.session import Session
from corral.envs.conformance.turns import check_paid_again
from corral.progress import Progress, cell_progress

__all__ = ["CHECKS", "CheckResult", "Finding", "check_env"]


AT_EVERY_STEP = (
    *("crash", "endless", "agents", "observation", "mask", "reward", "ends", "info", "aliasing"),
)
"""The checks that run at every step of a single environment."""

TURNS_ONLY = ("selection", "last", "dead-step", "cumulative-rewards")


def check_env(
    env: Any,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    limit: int = 2_000,
    stochastic: bool | None = None,
    processes: bool = True,
    seconds: float | None = None,
    progress: Progress = cell_progress,
) -> CheckResult:
    """Check a PettingZoo environment, parallel or AEC.

    ``check_env(env).require()`` raises ConformanceError, with the report, if there are errors.
    ``.findings`` has all findings, and ``.text()`` returns the report.

    Args:
        env: preferably a function that returns a fresh environment at every call. The checks in
            other processes need a picklable function: a module-level function,
            ``functools.partial`` of one, or ``corral.envs.registry.NamedEnv``. Otherwise a module,
            a text that ``NamedEnv`` accepts, or an environment, which is deep-copied. An
            environment that cannot be copied is played directly; checks that need fresh copies are
            then not run.
        seeds: seeds of the episodes, each 0 or larger; preferably two or more.
        limit: maximum number of steps of an agent in an episode; a longer episode is a fault.
        stochastic: whether different seeds must give different episodes (True) or the same episode
            (False). None: equal episodes are reported as a note.
        processes: also play in other processes. False: the report lists these checks as not run.
        seconds: approximate time of the check, without waiting for a CPU; None: as long as
            ``seeds`` take. Remaining time is spent on further seeds. The first episode stops after
            40 % of the time. If time is short, episodes are compared over fewer steps, and masks
            are tried at fewer steps. A note reports each reduction.
        progress: called with the current stage, the number of finished stages and the total.

    Raises:
        ValueError: an argument is outside its range, or a module defines no environment.
        UnknownNameError: an unknown name. Faults of the environment are never raised; they are in
            the result.
    """
    nonnegative_int("limit", limit, least=1)
    numbers = tuple(nonnegative_int("seeds", seed) for seed in seeds)
    if not numbers:
        raise ValueError("seeds=(): pass at least one seed, preferably three")
    started = time.monotonic()
    make = make_of(env)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds={seconds}: pass a number above 0, or None")
    session = Session(make, Findings(), numbers, limit, stochastic, seconds, whole_limit=limit)
    with _quiet():
        if isinstance(make, Copies):
            _prepare(session, make)
        playable = session.begin()
        if playable:
            _play(session, processes, progress)
    findings = session.findings
    order = list(CHECKS)
    ranked = sorted(
        findings.entries.values(), key=lambda f: (f.severity != "error", order.index(f.check))
    )
    if playable:
        run = [name for name in order if _applies(name, session) and name not in findings.not_run]
    else:
        run = ["api", "spaces"]
        reason = "the environment cannot be played, see above"
        findings.skip([name for name in order if name not in run], reason)
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
        seconds=round(time.monotonic() - started, 2),
        cut=session.cut,
    )


def _play(session: Session, processes: bool, progress: Progress) -> None:
    total = len(EPISODES) + 4
    progress("episodes", 0, total)
    watch_episodes(session)
    if session.no_copies is not None:
        done = ("api", "spaces", *AT_EVERY_STEP, *TURNS_ONLY)
        session.findings.skip([name for name in CHECKS if name not in done], session.no_copies)
        return
    session.plan()
    limit = session.limit  # the processes use the same limit
    children = Processes(session.make, session.seeds, limit) if processes else None
    with children or nullcontext():
        for number, (stage, check) in enumerate(EPISODES.items(), 1):
            progress(stage, number, total)
            check(session)
        progress("masks", total - 3, total)
        check_masks(session)
        check_alternation(session)
        check_paid_again(session)
        progress("further seeds", total - 2, total)
        further_seeds(session)
        progress("other processes", total - 1, total)
        if children is None:
            session.findings.skip(["processes", "hashing"], "processes=False")
        else:
            children.judge(session)
    progress("other processes", total, total)


def _prepare(session: Session, make: Copies) -> None:
    """Test whether the passed environment can be copied; otherwise play it directly."""
    try:
        make()
    except Exception as error:  # copying may raise any exception
        session.make = lambda: make.env
        session.no_copies = (
            f"the passed environment cannot be copied ({type(error).__name__}: {error}). Pass a "
            "function that returns fresh environments"
        )
        session.findings.notes.append("the passed environment itself was played")
    else:
        session.findings.notes.append("deep copies of the passed environment were played")


def _applies(name: str, session: Session) -> bool:
    if name in ("mask", "mask-lies"):
        return session.masked or session.findings.has(name)
    return session.turns or name not in TURNS_ONLY


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of environments, mainly about illegal actions."""
    logger = logging.getLogger("pettingzoo.utils.env_logger")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled
