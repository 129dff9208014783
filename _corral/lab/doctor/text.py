"""Format diagnoses as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from corral.lab.doctor.audit import Audit, Audited, sentence
from corral.lab.doctor.causes import ABLE
from corral.lab.doctor.diagnose import Diagnosis
from corral.lab.doctor.facts import FACTS
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation

__all__ = ["diagnosis_lines", "diagnosis_text", "truth_lines"]

SHOWN = 10
"""Maximum number of worst decisions shown."""

POLICIES = 4
"""Maximum number of policies with facts shown."""

SURE = {3: "certain", 2: "most likely", 1: "worth a look"}

Line = tuple[str, str]
"""A line and its style: "bold", "dim" or ""."""


def diagnosis_text(diagnosis: Diagnosis, width: int = 80) -> str:
    """Return a diagnosis as text, verdict first."""
    return "\n".join(line for line, _ in diagnosis_lines(diagnosis, width))


def diagnosis_lines(diagnosis: Diagnosis, width: int = 80) -> Iterator[Line]:
    """Yield the lines of a diagnosis, verdict first."""
    for line in _wrapped(_verdict(diagnosis), width):
        yield line, "bold"
    for line in _wrapped(f"({diagnosis.about})", width):
        yield line, "dim"
    roots = [one for one in diagnosis.findings if not one.follows]
    for number, one in enumerate(roots, 1):
        yield "", ""
        yield from _finding(number, one, diagnosis, width)
    parts = [_facts(diagnosis, width)]
    if diagnosis.imitation is not None:
        parts.append(_wrapped(_network(diagnosis.imitation), width))
    if diagnosis.audit is not None:
        parts.append(list(truth_lines(diagnosis.audit, width)))
    for part in filter(None, parts):
        yield "", ""
        yield from ((line, "") for line in part)
    yield "", ""
    for label, said in (
        ("examined: ", diagnosis.looked_at),
        ("not examined: ", diagnosis.not_looked_at),
    ):
        for what in said:
            for line in _wrapped(what, width, label):
                yield line, "dim" if label == "examined: " else ""
    yield f"in {diagnosis.seconds:.0f} s", "dim"


def _verdict(diagnosis: Diagnosis) -> str:
    wrong = [one for one in diagnosis.findings if one.certainty >= 2 and not one.follows]
    if len(wrong) > 1:
        return f"{diagnosis.run}: {len(wrong)} faults keep it from learning, most certain first."
    if wrong:
        return f"{diagnosis.run}: one fault keeps it from learning."
    if not diagnosis.looked_at:
        return f"{diagnosis.run}: no part could be examined."
    in_part = " in the examined parts" if diagnosis.not_looked_at else ""
    return f"{diagnosis.run}: no fault found{in_part} that keeps it from learning."


def _finding(number: int, one: Finding, diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    for line in _wrapped(one.title, width, f"{number}. "):
        yield line, "bold" if one.certainty >= 2 else ""
    policies = f", policy {one.policy}" if one.policy else ""
    told = [("", f"{SURE[one.certainty]}{policies}"), ("measured", one.measured)]
    told += [("expected", one.expected), ("to do", one.todo)]
    told += [("effect", other.title) for other in diagnosis.findings if other.follows == one.cause]
    for label, text in told:
        for line in _wrapped(text, width, f"   {label:<9}" if label else "   "):
            yield line, ""


def _wrapped(text: str, width: int, first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,  # paths and options can be copied
        break_on_hyphens=False,
    )


# --- Facts ---------------------------------------------------------------------------------------


def _facts(diagnosis: Diagnosis, width: int) -> list[str]:
    """Return the measured facts, independent of the findings."""
    lines: list[str] = []
    policies = list(dict.fromkeys(fact.policy for fact in diagnosis.facts))
    for policy in policies[:POLICIES]:
        title = f"Policy {policy}" if len(policies) > 1 else "Measurements"
        lines.append(f"{title:<36}{'at first':>12}{'checkpoint':>14}")
        lines += [
            f"  {FACTS[fact.name]:<34}{_number(fact.beginning):>12}{_number(fact.latest):>14}"
            for fact in diagnosis.facts
            if fact.policy == policy
        ]
    if len(policies) > POLICIES:
        lines.append(f"and {len(policies) - POLICIES} more policies: --json shows all")
    if (play := diagnosis.played) is not None:
        greedy, sampled = (
            f"{value:.4g} ± {2 * error:.2g}"
            for value, error in (
                (play.greedy, play.greedy_error),
                (play.sampled, play.sampled_error),
            )
        )
        lines += _wrapped(
            f"Return of the learning agents: greedy {greedy}, sampled {sampled} ({play.episodes} "
            "episodes).",
            width,
        )
    if (trend := diagnosis.trend) is not None:
        change = {True: "it rose", False: "it fell", None: "no change beyond noise"}[trend.rose]
        lines += _wrapped(
            f"Reward per env step: {trend.first:.4g} in the first fifth of {trend.updates:,} "
            f"updates, {trend.last:.4g} in the last: {change} (± {2 * trend.error:.2g}).",
            width,
        )
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.3g}"


def _network(found: Imitation) -> str:
    """Describe the result of training the run's network to imitate a reference team."""
    told = (
        f"it learned {found.share:.0%} of the decisions in {found.seconds:.0f} s; the mask alone "
        f"gives {found.unseen:.0%}"
    )
    if found.learned:
        return f"The network can imitate {found.teacher} ({told}): the network is not the cause."
    if not found.blind:
        return f"The network slowly learns to imitate {found.teacher} ({told}): it uses its input."
    if found.default is not None and found.default >= found.unseen + ABLE:
        return (
            f"The network cannot imitate {found.teacher} ({told}; a default network learns "
            f"{found.default:.0%}): correct the network before you change the training."
        )
    return (
        f"Unknown whether the network can imitate {found.teacher}: neither it ({told}) "
        "nor a default network learned that in time."
    )


# --- Comparison with true returns ----------------------------------------------------------------


def truth_lines(audit: Audit, width: int) -> Iterator[str]:
    """Yield the result of an audit as lines."""
    future = ", for the same future" if audit.given_this_future else ""
    yield from _wrapped(
        f"Compared with true returns{future} (episodes forked and continued by the run's "
        "policies):",
        width,
    )
    for each in audit.policies:
        yield from _wrapped(_correlations(each), width, f"  {each.policy}: ")
    worst = sorted(
        (one for each in audit.policies for one in each.worst), key=lambda one: -one.loss
    )
    # Show the same decision at the same place once, at its largest loss.
    different: dict[Any, Any] = {}
    for one in worst:
        if one.loss > 2 * one.error:
            different.setdefault((one.agent, one.where, one.action, one.best), one)
    sure = list(different.values())[:SHOWN]
    if sure:
        yield from _wrapped(
            f"The worst of these decisions, with sampled actions as in training{future}:", width
        )
    for one in sure:
        for line in _wrapped(sentence(one, False), width - 2):
            yield f"  {line}"


def _correlations(each: Audited) -> str:
    said = f"values {_correlates(each.value_correlation)}"
    if len(each.advantages.known.said):  # empty if the trainer only provides values
        told = _correlates(each.advantage_correlation)
        said += f"; the training advantages {told}"
    if each.sample is not None and each.advantage_correlation is not None:
        mean, deviation = each.sample
        said += f" (single forks reach {mean:.2f} ± {2 * deviation:.2f})"
    if each.credit is not None and each.credit.correlation is not None:
        said += f"; the mean over forks reaches {each.credit.correlation:.2f}"
    return f"{said}; {each.moments} decision points"


def _correlates(correlation: float | None) -> str:
    return (
        "do not vary" if correlation is None else f"correlate {correlation:.2f} with the true ones"
    )
