"""Rehearse policies on a load: every request is played, one after the other.

rehearsal = corral.rehearse("loads.csv", ["local", "backlog=0.75/least", "choices=2"], queue=16)
print(rehearsal)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from corral.data import RequestLog, Trace, load_trace, read_request_log
from corral.envs.arguments import nonnegative_int, one_of
from corral.envs.core import Array
from corral.envs.dfaas_v0.rows import section
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.errors import ActionError, ArgumentError, ScaleError
from corral.loads import replay as replays
from corral.loads.rehearsal.arrivals import (
    WORKS,
    DrawnRequests,
    LoggedRequests,
    Requests,
    stream,
)
from corral.loads.rehearsal.compiled import is_available
from corral.loads.rehearsal.engine import Engine
from corral.loads.rehearsal.jobs import in_processes
from corral.loads.rehearsal.played import Course, Sums, play_priority, play_rate, play_steps
from corral.loads.rehearsal.policies import Entry, Policy, labelled, policies_of
from corral.loads.rehearsal.result import PARTS, Promise, Rehearsal
from corral.loads.rehearsal.setting import Setting
from corral.loads.rehearsal.sizes import SizedLoad, sized_load
from corral.progress import Progress, cell_progress
from corral.trainers.evaluation.players import Player

__all__ = ["rehearse"]

SETTING = tuple(field.name for field in dataclasses.fields(Setting))

WORTH_COMPILING = 3_000_000
"""Requests of a policy from which compiling, about 20 s, is shorter than plain Python."""

MAX_REPORTS = 10_000
"""Most reports of a node in a step."""

HOURS = 24
"""Parts of a day with separate waits."""

POISSON, DAYS = 103, 104
"""Uses of random numbers, see ``arrivals``."""


def rehearse(
    trace: str | Path | Trace,
    policies: Sequence[Entry] | Mapping[str, Entry],
    *,
    rows: tuple[int, int] | None = None,
    days: int | None = None,
    window: int | None = None,
    seed: int = 0,
    times: Literal["uniform", "poisson"] = "uniform",
    requests: str | Path | RequestLog | None = None,
    parts: bool = True,
    compiled: bool | None = None,
    jobs: int = 1,
    progress: Progress = cell_progress,
    **settings: Any,
) -> Rehearsal:
    """Play every request of a load through each policy, with waiting times.

    Args:
        trace: a bundled name, the path of a CSV, or a Trace; with capacity.
        policies: names of balancers ("least-requests", ``corral.loads.rehearsal.balancers``) and of
            rules ("backlog=0.75/least"); folders of runs, exports and advices; objects with
            ``choose(request)`` or ``plan(view)``, or "file.py:make". Or label -> one of these. The
            first one is the baseline of all differences.
        rows: (low, high), the rows to play; default: all.
        days: number of windows to play, drawn by the seed; default: all whole windows.
        window: steps of a window; default: a day, or 288 if the trace's clock has no days.
        seed: seed of the times and the work of requests, and of policies that draw.
        times: uniform: counts of the trace, at uniform times within a step; poisson: the counts are
            drawn too, with those of the trace as their means.
        requests: log of the requests of this load, as written with ``keep_requests=`` by an
            importer, or the path of one: their times, and their sizes, if it has any. With sizes,
            ``capacity`` is the work per second of a node, or a multiple such as "1.25x".
        parts: whether plans are also played in the game of the replay, and step by step from it to
            the rehearsal.
        compiled: whether to compile with numba, the extra rehearse; default: if it is installed and
            there are many requests.
        jobs: number of processes, each of which plays other policies; all policies by name. In a
            script, call this below ``if __name__ == "__main__"``.
        progress: called with a policy, the number of its windows played, and the total.
        settings: fields of ``Setting``, such as servers=2 or latency=0.05, and arguments of
            dfaas_v0, such as queue=16; ``beyond`` is for all runs, in place of the value in their
            training.

    Raises the errors of ``DfaasRules``, ``Setting`` and ``policies_of``; ActionError, with the
    policy, for an error of a custom policy; ValueError for other arguments out of range.
    """
    one_of("times", times, ("uniform", "poisson"))
    nonnegative_int("jobs", jobs, least=1)
    passed = dict(settings)
    setting = Setting(**{key: settings.pop(key) for key in SETTING if key in settings})
    arrivals = one_of("arrivals", settings.pop("arrivals", "unknown"), ("known", "unknown"))
    beyond = settings.pop("beyond", None)
    if beyond is not None:
        one_of("beyond", beyond, ("rule", "clip"))
    if arrivals == "known" and setting.service == "rate":
        raise ArgumentError(
            "arrivals='known': nodes of a rehearsal decide before the requests of a step exist; "
            "pass arrivals='unknown', or service='step'"
        )
    load = original = load_trace(trace)
    low, high = (0, len(load)) if rows is None else section(rows, len(load))
    if window is not None and window < 1:
        raise ValueError(f"window={window}: pass 1 step or more")
    length = min(window or load.steps_per_day or replays.DEFAULT_WINDOW, high - low)
    log = read_request_log(requests) if isinstance(requests, str | Path) else requests
    sized = None
    if log is not None and times == "poisson":
        raise ArgumentError(
            "times='poisson' draws other requests than those of the log; leave out one"
        )
    if log is not None and log.work is not None:
        for name, value, usual in (
            ("service", setting.service, "rate"),
            ("work", setting.work, "deterministic"),
        ):
            if value != usual:
                raise ArgumentError(
                    f"{name}={value!r}: the requests of the log have sizes of their own; leave it "
                    "out"
                )
        sized = sized_load(load, log, settings.pop("capacity", None))
        load = sized.trace
    if times == "poisson":
        load = _poisson(load, seed)
    settings = replays.fitting_scales(settings, load)
    rules = DfaasRules(load, rows=(low, high), max_cycles=length, arrivals=arrivals, **settings)
    _require_playable(rules, setting)
    ready = policies_of(policies, rules, arrivals, beyond)
    course = _course(rules, setting, days, seed, log, sized)
    for policy in ready:
        _require_knowledge(policy, setting)
        _require_scales(policy, rules)
    total = sum(int(course.arrivals(w).sum()) for w in range(len(course.first)))
    if compiled is None:
        compiled = is_available() and total > WORTH_COMPILING

    def engine(policy: Policy, changed: Setting = setting) -> Engine:
        return Engine(
            rules,
            changed,
            parts=HOURS if length == load.steps_per_day else 1,
            by_work=sized is not None,
            peaks=policy.balancer is not None and policy.balancer.peaks,
            compile_it=compiled and policy.custom is None,
        )

    sums: dict[str, Sums] = {}
    promises: dict[str, Promise] = {}
    if jobs > 1:
        tasks = [
            functools.partial(
                rehearse,
                original,
                {label: entry} if label else [entry],
                rows=rows,
                days=days,
                window=window,
                seed=seed,
                times=times,
                requests=log,
                parts=parts,
                compiled=compiled,
                **passed,
            )
            for label, entry in _by_name(policies)
        ]
        for part in in_processes(tasks, jobs, _of_all(progress, len(ready), len(course.first))):
            sums |= part.sums
            promises |= part.promises
    for policy in ready if jobs == 1 else ():
        play = play_rate if setting.service == "rate" else play_steps

        def tick(done: int, whole: int, label: str = policy.label) -> None:
            progress(label, done, whole)

        try:
            sums[policy.label] = play(policy, course, engine(policy), tick)
            if parts and setting.service == "rate" and policy.decider is not None:
                promises[policy.label] = _promise(policy, course, engine, setting, sums, beyond)
        except ActionError as error:
            raise type(error)(f"policy {policy.label}: {error}") from error
    return Rehearsal(
        trace=rules.trace,
        settings={**settings, "arrivals": arrivals},
        setting=setting,
        rows=(low, high),
        window=length,
        windows=course.number,
        requests=np.array([course.arrivals(w).sum() for w in range(len(course.first))]),
        needs={policy.label: policy.needs for policy in ready},
        beyond={policy.label: policy.beyond for policy in ready if policy.beyond is not None},
        sums=sums,
        promises=promises,
        costs={label: _cost(rules, policy_sums) for label, policy_sums in sums.items()},
        seed=seed,
        times=times,
        has_log=log is not None,
        has_sizes=sized is not None,
    )


def _by_name(policies: Sequence[Entry] | Mapping[str, Entry]) -> list[tuple[str, Entry]]:
    """Return (label, entry) of all policies. Raises ArgumentError for one without a name."""
    for label, entry in (pairs := labelled(policies)):
        if not isinstance(entry, str | Path):
            raise ArgumentError(
                f"policy {label or type(entry).__name__}: with jobs= above 1, pass policies by "
                "name, such as 'my_file.py:make'"
            )
    return pairs


def _of_all(progress: Progress, policies: int, windows: int) -> Progress:
    """Return a function that adds up the progress of all policies."""
    done_of: dict[str, int] = {}

    def tick(label: str, done: int, total: int) -> None:
        done_of[label] = done
        progress(f"{policies} policies", sum(done_of.values()), policies * windows)

    return tick


def _require_knowledge(policy: Policy, setting: Setting) -> None:
    """Raise ArgumentError for a policy that must know the requests of a step in advance."""
    by_counts = policy.decider is not None and policy.decider.arrivals == "known"
    if by_counts and setting.service == "rate":
        raise ArgumentError(
            f"policy {policy.label} decides with known arrivals, but in a rehearsal a step's "
            "requests do not exist when it begins; train a team with arrivals='unknown', or pass "
            "service='step'"
        )


def _require_scales(policy: Policy, rules: DfaasRules) -> None:
    """Raise ScaleError for a team without ``beyond`` if the load exceeds its scales."""
    if policy.decider is None:
        return
    limits, played = policy.decider.limits, rules.trace.section(*rules.rows)
    for name, numbers in (("arrivals", played.arrivals), ("capacity", played.capacity)):
        assert numbers is not None  # checked by the rules
        if (largest := int(numbers.max())) > limits[name]:
            remedy = "give beyond='clip': it then observes larger numbers as its scale. Or train it"
            if not isinstance(policy.replayed, Player):
                remedy = "train and export it"
            raise ScaleError(
                f"policy {policy.label} was trained with at most {limits[name]:,} {name} in a "
                f"step, but the load has {largest:,}: {remedy} with the argument beyond of dfaas_v0"
            )


def _require_playable(rules: DfaasRules, setting: Setting) -> None:
    """Raise ArgumentError for a load without capacity, and for too many reports."""
    capacity = rules.trace.section(*rules.rows).capacity
    assert capacity is not None  # checked by the rules
    if not capacity.any():
        raise ArgumentError("capacity is 0 in all rows, so no policy can serve a request")
    period = setting.in_steps(setting.report_period, rules.trace)
    if period and 1 / period > MAX_REPORTS:
        raise ArgumentError(
            f"report_period={setting.report_period:g}: {1 / period:,.0f} reports in a step; give "
            f"at most {MAX_REPORTS:,}, or 0 for backlogs of the moment"
        )


def _poisson(load: Trace, seed: int) -> Trace:
    """Return a load with counts drawn from Poisson distributions with the means of ``load``."""
    counts = stream(seed, POISSON, 0).poisson(load.arrivals)
    return dataclasses.replace(load, arrivals=counts)


def _course(
    rules: DfaasRules,
    setting: Setting,
    days: int | None,
    seed: int,
    log: RequestLog | None,
    sized: SizedLoad | None,
) -> Course:
    """Return the windows to play: all whole ones, or a random sample of them in their order."""
    low, high = rules.rows
    whole = (high - low) // rules.max_cycles
    number = np.arange(whole)
    if days is not None:
        if not 1 <= days <= whole:
            raise ValueError(f"days={days}: the load has {whole} whole windows; pass 1 to {whole}")
        number = np.sort(stream(seed, DAYS, 0).choice(whole, size=days, replace=False))
    first = tuple((low + number * rules.max_cycles).tolist())

    def requests(w: int) -> Requests:
        low_row, high_row = first[w], first[w] + rules.max_cycles
        if log is None:
            arrivals = rules.trace.arrivals[low_row:high_row]
            return DrawnRequests(arrivals, setting.work, seed, int(number[w]))
        window = log.window(rules.trace, low_row, high_row)
        mean_work = 1.0 if sized is None else sized.mean_work
        rng = stream(seed, WORKS, int(number[w]))
        return LoggedRequests(window, low_row, mean_work, setting.work, rng)

    speed = None if sized is None else sized.capacity
    return Course(rules, first, seed, requests, tuple(number.tolist()), speed)


def _cost(rules: DfaasRules, sums: Sums) -> Array:
    """Return the cost in each window, float64 [W]."""
    counts = sums.counts
    cost = counts["lost"] + rules.forward_cost * counts["forwarded"]
    return np.asarray(cost + rules.wait_cost * counts["waiting"], dtype=np.float64)


def _promise(
    policy: Policy,
    course: Course,
    engine: Callable[..., Engine],
    setting: Setting,
    sums: Mapping[str, Sums],
    beyond: str | None,
) -> Promise:
    """Return the cost of a plan in the game of the replay, and the parts of the difference."""
    rules = course.rules

    def tick(done: int, whole: int) -> None:
        pass

    promised = _replayed(policy, course, beyond)
    if promised is None:
        promised = _cost(rules, play_steps(policy, course, engine(policy), tick))
    at_once = dataclasses.replace(setting, latency=0.0)
    by_priority = _cost(rules, play_priority(policy, course, engine(policy, at_once), tick))
    final = _cost(rules, sums[policy.label])
    ordered = final
    if setting.latency:
        ordered = _cost(rules, play_rate(policy, course, engine(policy, at_once), tick))
    steps = (by_priority - promised, ordered - by_priority, final - ordered)
    return Promise(promised, dict(zip(PARTS, steps, strict=True)))


def _replayed(policy: Policy, course: Course, beyond: str | None) -> Array | None:
    """Return the cost of a policy in a replay, [W]; None if it cannot be replayed."""
    if policy.replayed is None:
        return None
    rules = course.rules
    names = ("queue", "forward_cost", "wait_cost", "link_limit", "second_offer", "report_delay")
    result = replays.replay(
        rules.trace,
        {policy.label: policy.replayed},
        rows=rules.rows,
        window=rules.max_cycles,
        seed=course.seed,
        optimum_windows=0,
        beyond=beyond,
        neighbours=rules.neighbours,
        arrivals=rules.arrivals,
        **{name: getattr(rules, name) for name in names},
    )
    return result.sums[policy.label].cost[list(course.number)]
