"""Format diagnoses as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from corral.lab.doctor.audit import Audit, Audited, sentence
from corral.lab.doctor.causes import ABLE
from corral.lab.doctor.diagnose import Diagnosis
from corral.lab.doctor.facts import FACTS
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.imitation import Imitation
from corral.lab.doctor.verdict.text import (
    change_lines,
    headline,
    learning_lines,
    step_lines,
)

__all__ = ["SURE", "diagnosis_lines", "diagnosis_text", "finding_lines", "truth_lines", "wrapped"]

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
    for line in wrapped(f"{diagnosis.run}: {headline(diagnosis)}", width):
        yield line, "bold"
    for line in wrapped(f"({diagnosis.about})", width):
        yield line, "dim"
    yield from ((line, "") for line in step_lines(diagnosis.next_steps))
    if diagnosis.learning is not None:
        yield "", ""
        yield from ((line, "") for line in learning_lines(diagnosis.learning, width))
    roots = [finding for finding in diagnosis.findings if not finding.follows]
    for number, finding in enumerate(roots, 1):
        yield "", ""
        yield from finding_lines(number, finding, diagnosis.findings, width)
    parts = [_facts(diagnosis, width)]
    if diagnosis.imitation is not None:
        parts.append(wrapped(_network(diagnosis.imitation), width))
    if diagnosis.audit is not None:
        parts.append(list(truth_lines(diagnosis.audit, width)))
    for part in filter(None, parts):
        yield "", ""
        yield from ((line, "") for line in part)
    yield "", ""
    for label, items in (
        ("examined: ", diagnosis.looked_at),
        ("not examined: ", diagnosis.not_looked_at),
    ):
        for item in items:
            for line in wrapped(item, width, label):
                yield line, "dim" if label == "examined: " else ""
    yield f"in {diagnosis.seconds:.0f} s", "dim"


def finding_lines(
    number: int, finding: Finding, findings: Sequence[Finding], width: int = 80
) -> Iterator[Line]:
    """Yield the lines of one finding; its certain consequences are among ``findings``."""
    for line in wrapped(finding.title, width, f"{number}. "):
        yield line, "bold" if finding.certainty >= 2 else ""
    policies = f", policy {finding.policy}" if finding.policy else ""
    labeled = [("", f"{SURE[finding.certainty]}{policies}"), ("measured", finding.measured)]
    labeled += [("place", finding.place)] * bool(finding.place)
    labeled += [("expected", finding.expected), ("to do", finding.todo)]
    labeled += [("effect", other.title) for other in findings if other.follows == finding.cause]
    for label, text in labeled:
        for line in wrapped(text, width, f"   {label:<9}" if label else "   "):
            yield line, ""


def wrapped(text: str, width: int, first: str = "") -> list[str]:
    """Return ``text`` in lines of at most ``width``; all but the first are indented like it."""
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
    lines += [line for text in change_lines(diagnosis.changes) for line in wrapped(text, width)]
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.3g}"


def _network(imitation: Imitation) -> str:
    """Describe the result of training the run's network to imitate a reference team."""
    details = (
        f"it learned {imitation.share:.0%} of the decisions in {imitation.seconds:.0f} s; the mask "
        "alone "
        f"gives {imitation.unseen:.0%}"
    )
    if imitation.learned:
        return (
            f"The network can imitate {imitation.teacher} ({details}): the network is not the "
            "cause."
        )
    if not imitation.blind:
        return (
            f"The network slowly learns to imitate {imitation.teacher} ({details}): it uses its "
            "input."
        )
    if imitation.default is not None and imitation.default >= imitation.unseen + ABLE:
        return (
            f"The network cannot imitate {imitation.teacher} ({details}; a default network learns "
            f"{imitation.default:.0%}): correct the network before you change the training."
        )
    return (
        f"Unknown whether the network can imitate {imitation.teacher}: neither it ({details}) "
        "nor a default network learned that in a few updates."
    )


# --- Comparison with true returns ----------------------------------------------------------------


def truth_lines(audit: Audit, width: int) -> Iterator[str]:
    """Yield the result of an audit as lines."""
    future = ", for the same future" if audit.given_this_future else ""
    yield from wrapped(
        f"Compared with true returns{future} (episodes forked and continued by the run's "
        "policies):",
        width,
    )
    for audited in audit.policies:
        yield from wrapped(_correlations(audited), width, f"  {audited.policy}: ")
    worst = sorted(
        (decision for audited in audit.policies for decision in audited.worst),
        key=lambda decision: -decision.loss,
    )
    # Show the same decision at the same place once, at its largest loss.
    different: dict[Any, Any] = {}
    for decision in worst:
        if decision.loss > 2 * decision.error:
            different.setdefault(
                (decision.agent, decision.where, decision.action, decision.best), decision
            )
    sure = list(different.values())[:SHOWN]
    if sure:
        yield from wrapped(
            f"The worst of these decisions, with sampled actions as in training{future}:", width
        )
    for decision in sure:
        for line in wrapped(sentence(decision, False), width - 2):
            yield f"  {line}"


def _correlations(audited: Audited) -> str:
    text = f"values {_correlates(audited.value_correlation)}"
    if len(audited.advantages.known.said):  # empty if the trainer only provides values
        correlates = _correlates(audited.advantage_correlation)
        text += f"; the training advantages {correlates}"
    if audited.sample is not None and audited.advantage_correlation is not None:
        mean, deviation = audited.sample
        text += f" (single forks reach {mean:.2f} ± {2 * deviation:.2f})"
    if audited.credit is not None and audited.credit.correlation is not None:
        text += f"; the mean over forks reaches {audited.credit.correlation:.2f}"
    return f"{text}; {audited.moments} decision points"


def _correlates(correlation: float | None) -> str:
    return (
        "do not vary" if correlation is None else f"correlate {correlation:.2f} with the true ones"
    )
