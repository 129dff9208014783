"""Diagnoses as plain text and as JSON values."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from corral.trainers.doctor.audit import Audit, Audited, sentence
from corral.trainers.doctor.diagnose import Diagnosis

__all__ = ["as_json", "diagnosis_text"]

SHOWN = 5
"""Worst decisions that are shown."""


def diagnosis_text(diagnosis: Diagnosis, width: int = 80) -> str:
    """Return a diagnosis, verdict first."""
    lines: list[str] = []
    causes = [one for one in diagnosis.findings if one.certainty >= 2]
    if causes:
        lines.append(f"{diagnosis.run}: {len(causes)} found that keep it from learning.")
    elif diagnosis.looked_at:
        lines.append(f"{diagnosis.run}: nothing found that keeps it from learning.")
    else:
        lines.append(f"{diagnosis.run}: not looked at.")
    for number, one in enumerate(diagnosis.findings, 1):
        policy = f" (policy {one.policy})" if one.policy else ""
        sure = {3: "it is so", 2: "most likely", 1: "worth a look"}[one.certainty]
        lines += ["", *_wrapped(f"{number}. {one.title}{policy}", width, ""), f"   {sure}"]
        for name in ("measured", "expected", "todo"):
            label = {"todo": "to do"}.get(name, name)
            lines += _wrapped(getattr(one, name), width, f"   {label:<9} ")
    if diagnosis.audit is not None:
        lines += ["", *_audit(diagnosis.audit, width)]
    lines.append("")
    for what in diagnosis.looked_at:
        lines += _wrapped(what, width, "looked at: ")
    for what in diagnosis.not_looked_at:
        lines += _wrapped(what, width, "not looked at: ")
    lines.append(f"{diagnosis.seconds:.0f} s")
    return "\n".join(lines)


def _wrapped(text: str, width: int, first: str) -> list[str]:
    return textwrap.wrap(
        text, max(40, width), initial_indent=first, subsequent_indent=" " * len(first)
    )


def _audit(audit: Audit, width: int) -> Iterator[str]:
    future = ", given the future that was drawn" if audit.given_this_future else ""
    yield f"Against the truth{future} (moments forked and played on by the run's policies):"
    for each in audit.policies:
        yield from _wrapped(_correlations(each), width, f"  {each.policy}: ")
    worst = sorted(
        (one for each in audit.policies for one in each.worst), key=lambda one: -one.loss
    )
    sure = [one for one in worst if one.loss > 2 * one.error][:SHOWN]
    if sure:
        yield "Its worst decisions of those (sampled play):"
    for one in sure:
        yield from _wrapped(sentence(one, audit.given_this_future), width, "  ")


def _correlations(each: Audited) -> str:
    parts = []
    for name, correlation in (
        ("values", each.value_correlation),
        ("advantages", each.advantage_correlation),
    ):
        said = (
            "do not vary" if correlation is None else f"correlate {correlation:.2f} with the true"
        )
        parts.append(f"{name} {said}")
    if each.sample is not None and each.advantage_correlation is not None:
        mean, deviation = each.sample
        parts.append(f"as one sample of each can: {mean:.2f} ± {2 * deviation:.2f}")
    if each.credit is not None and each.credit.correlation is not None:
        parts.append(f"averaged over forks {each.credit.correlation:.2f}")
    return f"{', '.join(parts)} ({each.moments} moments)"


# --- JSON ----------------------------------------------------------------------------------------


def as_json(found: Any) -> Any:
    """Return a dataclass as JSON values: arrays as lists, NaN as null."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {each.name: as_json(getattr(found, each.name)) for each in dataclasses.fields(found)}
    if isinstance(found, dict):
        return {str(key): as_json(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [as_json(each) for each in found]
    if hasattr(found, "tolist"):
        return as_json(found.tolist())
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found
