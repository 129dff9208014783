"""Test the environment of a run: its faults and, if it does not learn, whether choices matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from corral.envs.conformance import check_env
from corral.envs.conformance.report import CheckResult
from corral.envs.core import third_party
from corral.lab.doctor.choices import Learnable, learnable
from corral.lab.doctor.findings.finding import Finding

__all__ = ["BESIDE_PLAY", "Examined", "examined"]


@dataclass
class Examined:
    """The results of ``corral check`` and ``corral check --learnable``; None if not run."""

    check: CheckResult | None = None
    choices: Learnable | None = None
    findings: list[Finding] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


BRIEF = 3.0
"""Maximum seconds of the check if the run learns."""


def examined(
    rules: Any, seconds: Callable[[str], float], seed: int = 0, *, learns: bool = False
) -> Examined:
    """Run both tests. Environments of corral are only tested for choices that matter.

    ``seconds`` returns the time of "check" and of "choices" when they begin. If the run learns, the
    check is brief, its findings are worth a look, and choices are not tested.

    The check stays in this process. An error of the environment is a finding of the check; the test
    of choices is then skipped if it raises.
    """
    result = Examined()
    if third_party(rules):
        time = min(seconds("check"), BRIEF) if learns else seconds("check")
        check = check_env(rules.make_env, seeds=(0, 1), processes=False, seconds=time)
        result.check = check
        result.descriptions.append(f"the environment, {check.episodes} episodes of corral check")
        if check.cut and not learns:
            result.skipped.append("corral check: later steps of long episodes, for lack of time")
        result.findings += check_findings(check, learns=learns)
    if learns:
        return result
    try:
        result.choices = choices = learnable(rules, seed=seed, seconds=seconds("choices"))
    except Exception as error:  # a third-party environment may raise anything
        result.skipped.append(f"if choices matter: {type(error).__name__}: {error}")
    else:
        result.descriptions.append(
            f"whether choices matter (corral check --learnable): {choices.verdict}"
        )
        result.skipped += [f"corral check --learnable: {text}" for text in choices.not_asked]
        result.findings += choice_findings(choices)
    return result


BESIDE_PLAY = ("api", "spaces", "info", "seed", "copies", "processes", "hashing")
"""Checks of faults that do not keep a run from learning: play in one process works with them."""


def check_findings(result: CheckResult, *, learns: bool = False) -> Iterator[Finding]:
    """Yield the errors of a check as findings, and seeds without an effect; first those of play."""
    for error in sorted(result.findings, key=lambda error: error.check in BESIDE_PLAY):
        if error.severity != "error" and error.check != "other-seeds":
            continue
        place = f", {error.place}" if error.place else ""
        yield Finding(
            f"check-{error.check}",
            f"The environment is faulty: check {error.check} fails.",
            f"{error.seen}{place}",
            error.expected,
            error.advice,
            1 if learns or error.check in BESIDE_PLAY else 2,
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
REMEDIES = {
    "no-choice": UNUSED,
    "idle": UNUSED,
    "others-only": "assign actions and rewards by agent name, not by the order of a list or dict",
}
"""Cause -> remedy, if another part than rewards and observations is more likely at fault."""
