"""Find the planted bugs with failures most similar to those of a learner: ``suspects``.

patterns.json lists the failures of each bug, measured by benchmarks/lab/planted_bugs.py. A learner
is compared with each bug on the checks that were judged for both. The similarity is the weight of
the common symptoms divided by the weight of all symptoms of either (Jaccard). Bugs with equal
judged failures are named together.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.lab.doctor.examination.judging import Examination

__all__ = ["EXACT", "NEAR", "PATTERNS", "Pattern", "Suspect", "patterns", "suspects", "unseen"]

PATTERNS = Path(__file__).with_name("patterns.json")

NEAR = 0.5
"""Similarity above which a bug is listed as near."""

EXACT = 0.9
"""Similarity from which failures count as those of a known bug.

If a bug itself is unknown, the others are less similar, except the ones with the same failures.
"""

SIMILAR = 0.9
"""Similarity of two bugs above which they are named together."""

HOW = 0.5
"""Weight of the kind of a failure ("low", "opposite"), compared with 1 for the failure itself."""


@dataclass(frozen=True)
class Pattern:
    """Judged checks of a learner, and the failures among them: see ``Examination``."""

    judged: frozenset[str]
    symptoms: frozenset[str]

    @property
    def probes(self) -> set[str]:
        return {kind.split()[0] for kind in self.judged}


@dataclass(frozen=True)
class Suspect:
    """Planted bugs with similar failures that the judged checks do not distinguish."""

    bugs: tuple[str, ...]  # most similar first
    likeness: float  # similarity, 0 .. 1
    labels: tuple[str, ...]  # "P4", ...: probes that both fail

    @property
    def exact(self) -> bool:
        """True if the failures are those of these bugs; else they are only the nearest."""
        return self.likeness >= EXACT


@functools.cache
def patterns() -> Mapping[str, tuple[Pattern, ...]]:
    """Return the patterns of each planted bug, one per trainer with that bug."""
    kept = json.loads(PATTERNS.read_text(encoding="utf-8"))
    return {
        bug: tuple(Pattern(frozenset(e["judged"]), frozenset(e["symptoms"])) for e in examples)
        for bug, examples in kept.items()
    }


def suspects(
    examined: Examination | Pattern, known: Mapping[str, Sequence[Pattern]] | None = None
) -> list[Suspect]:
    """Return the planted bugs with failures similar to ``examined``, most similar first.

    The failures are those of a known bug only if the first is ``exact``.

    ``known`` are the patterns of bugs; default: ``patterns()``.
    """
    examined_pattern = _pattern(examined)
    if not examined_pattern.symptoms:
        return []
    ranked = []
    for bug, examples in (patterns() if known is None else known).items():
        nearest = max(examples, key=lambda each: _likeness(examined_pattern, each), default=None)
        if nearest is not None and (like := _likeness(examined_pattern, nearest)) > NEAR:
            ranked.append((like, bug, nearest))
    ranked.sort(key=lambda each: -each[0])  # stable: ties keep the order of patterns.json
    groups: list[list[tuple[float, str, Pattern]]] = []
    for candidate in ranked:
        for group in groups:
            if _likeness(_only(group[0][2], examined_pattern), candidate[2]) >= SIMILAR:
                group.append(candidate)
                break
        else:
            groups.append([candidate])
    return [
        Suspect(
            tuple(bug for _, bug, _ in group),
            group[0][0],
            _labels(examined_pattern.symptoms & group[0][2].symptoms),
        )
        for group in groups
    ]


def unseen(
    examined: Examination | Pattern, known: Mapping[str, Sequence[Pattern]] | None = None
) -> list[str]:
    """Return the planted bugs that fail only checks that were not judged here."""
    examined_pattern = _pattern(examined)
    return [
        bug
        for bug, examples in (patterns() if known is None else known).items()
        if any(example.symptoms for example in examples)
        and not any(_shared(example, examined_pattern) for example in examples)
    ]


def _pattern(examined: Examination | Pattern) -> Pattern:
    if isinstance(examined, Pattern):
        return examined
    return Pattern(examined.judged, examined.symptoms)


def _shared(pattern: Pattern, other: Pattern) -> frozenset[str]:
    """Return the symptoms of ``pattern`` in checks that were also judged for ``other``."""
    probes = other.probes

    def is_judged(symptom: str) -> bool:
        label, kind = symptom.split()[:2]
        # After an error nothing else is judged; without an error there is no "error" check.
        return f"{label} {kind}" in other.judged or (kind == "error" and label in probes)

    return frozenset(symptom for symptom in pattern.symptoms if is_judged(symptom))


def _only(pattern: Pattern, other: Pattern) -> Pattern:
    """Return ``pattern`` restricted to checks that were also judged for ``other``."""
    return Pattern(pattern.judged & other.judged, _shared(pattern, other))


def _likeness(one: Pattern, other: Pattern) -> float:
    """Return the weight of common symptoms divided by that of all: 0 .. 1."""
    first_shared, second_shared = _shared(one, other), _shared(other, one)
    return _weight(first_shared & second_shared) / max(_weight(first_shared | second_shared), 1e-9)


def _weight(symptoms: Iterable[str]) -> float:
    return sum(1.0 if len(symptom.split()) == 2 else HOW for symptom in symptoms)


def _labels(symptoms: Iterable[str]) -> tuple[str, ...]:
    labels = {symptom.split()[0] for symptom in symptoms}
    return tuple(sorted(labels, key=lambda label: int(label[1:])))
