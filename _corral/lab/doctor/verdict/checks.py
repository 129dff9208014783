"""Test the environment of a run that does not learn: its faults, and whether choices matter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from corral.envs.conformance import check_env
from corral.envs.conformance.report import CheckResult
from corral.envs.core import third_party
from corral.lab.doctor.choices import Learnable, learnable
from corral.lab.doctor.findings.finding import Finding

__all__ = ["Examined", "examined"]

CHECK_SECONDS, CHOICE_SECONDS = 24.0, 8.0
"""Time budgets in seconds. A check in less time compares only the begin of long episodes."""


@dataclass
class Examined:
    """The results of ``corral check`` and ``corral check --learnable``; None if not run."""

    check: CheckResult | None = None
    choices: Learnable | None = None
    findings: list[Finding] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def examined(rules: Any, seed: int = 0) -> Examined:
    """Run both tests. Environments of corral are only tested for choices that matter.

    The check stays in this process. An error of the environment is a finding of the check; the test
    of choices is then skipped if it raises.
    """
    result = Examined()
    if third_party(rules):
        check = check_env(
            rules.make_env, seeds=(0, 1), processes=False, seconds=CHECK_SECONDS * slowdown()
        )
        result.check = check
        result.descriptions.append(f"the environment, {check.episodes} episodes of corral check")
        result.findings += check_findings(check)
    try:
        result.choices = choices = learnable(rules, seed=seed, seconds=CHOICE_SECONDS)
    except Exception as error:  # a third-party environment may raise anything
        result.skipped.append(f"if choices matter: {type(error).__name__}: {error}")
    else:
        result.descriptions.append(
            f"whether choices matter (corral check --learnable): {choices.verdict}"
        )
        result.findings += choice_findings(choices)
    return result


def slowdown() -> float:
    """Return the factor by which other processes slow this one at the moment, 1 to 10."""
    wall, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < BUSY:
        pass
    return min(10.0, max(1.0, (time.perf_counter() - wall) / BUSY))


BUSY = 0.05
"""Seconds of work to measure the slowdown."""


HARMLESS = ("spaces",)
"""Checks that explain no failure to learn: training reads the spaces once."""


def check_findings(result: CheckResult) -> Iterator[Finding]:
    """Yield the errors of a check as findings."""
    for error in result.errors:
        place = f", {error.place}" if error.place else ""
        yield Finding(
            f"check-{error.check}",
            f"The environment is faulty: check {error.check} fails.",
            f"{error.seen}{place}",
            error.expected,
            error.advice,
            1 if error.check in HARMLESS else 2,
        )


def choice_findings(result: Learnable) -> Iterator[Finding]:
    """Yield the reasons why there is nothing to learn as findings."""
    for fault in result.faults:
        yield Finding(
            f"choices-{fault.cause}",
            result.verdict,
            fault.text,
            "actions with different returns, and an observation that shows which is better",
            REMEDIES.get(fault.cause, "change rewards or observations of the environment")
            + ", then repeat corral check --learnable",
            2,
        )


UNUSED = "check that step() uses actions, and that masks are 1 for legal actions and 0 for illegal"
REMEDIES = {"no-choice": UNUSED, "idle": UNUSED}
"""Cause -> remedy, if another part than rewards and observations is more likely at fault."""
