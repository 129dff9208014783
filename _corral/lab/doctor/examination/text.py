"""Format examinations as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from corral.envs.probes import PROBES
from corral.lab.doctor.examination.judging import Check, Examination, Result
from corral.lab.doctor.examination.patterns import patterns, suspects, unseen

__all__ = ["examination_text", "result_text"]

FAILED = 3
"""Maximum number of failed checks shown per kind; the rest are counted."""


def examination_text(examination: Examination, name: str = "The learner", width: int = 80) -> str:
    """Return an examination, verdict first, with found and expected numbers."""
    lines = textwrap.wrap(_verdict(examination, name), width)
    for sentence in (*_near_misses(examination), *_named(examination)):
        lines += textwrap.wrap(sentence, width)
    lines.append("")
    lines += _row(width, "probe", "", "expected", "found", "s")
    for result in examination.results:
        lines += _result(result, width)
    unjudged = sum(check.found is None for r in examination.results for check in r.checks)
    if unjudged:
        sentence = f"{unjudged} numbers are not judged: {NOT_JUDGED}"
        if (hidden := unseen(examination)) and not examination.failed:
            sentence += f" Bugs that the judged numbers cannot show: {', '.join(hidden)}."
        lines += ["", *textwrap.wrap(sentence, width)]
    return "\n".join(lines)


NOT_JUDGED = "values need Learned(policies, values); P14's memory needs policies with a state."

NAMED = 2
"""Maximum number of groups of planted bugs that are named."""


def _named(examination: Examination) -> Iterator[str]:
    """Yield the planted bugs with the same failures; else that there are none, and the nearest."""
    failed = [result.label for result in examination.results if result.passed is False]
    only_errors = all(symptom.endswith(" error") for symptom in examination.symptoms)
    if only_errors or len(_close(examination)) == len(failed):
        return  # nothing failed but by exceptions, or by too few steps
    groups = suspects(examination)[:NAMED]
    if not groups or not groups[0].exact:
        yield f"None of the {len(patterns()) - 1} known bugs fails like this."
    for suspect in groups:
        first, *similar = suspect.bugs
        sentence = f"{first} (similarity {suspect.likeness:.2f})"
        if similar:
            sentence += f"; the judged numbers cannot distinguish it from {', '.join(similar)}"
        yield (
            f"It fails {_ranges(suspect.labels)} like the known bug {sentence}."
            if suspect.exact
            else f"Nearest, with other failures: {sentence}."
        )


CLOSE = 0.75
"""Probability of the best action above which longer training may suffice."""


def _near_misses(examination: Examination) -> Iterator[str]:
    """Yield the probes that failed only because actions were almost learned."""
    if close := _close(examination):
        yield f"{_ranges(close)} came close: train longer, for example with --budget 3."


def _close(examination: Examination) -> list[str]:
    """Return the labels of probes that failed only because actions were almost learned."""
    close = []
    for result in examination.results:
        failed = [check for check in result.checks if check.passed is False]
        near = [c.kind == "actions" and c.found is not None and c.found >= CLOSE for c in failed]
        if failed and all(near) and not result.error:
            close.append(result.label)
    return close


def _ranges(labels: Sequence[str]) -> str:
    """Return "P4-P7 and P11" for P4, P5, P6, P7, P11."""
    runs: list[list[int]] = []
    for number in (int(label[1:]) for label in labels):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[str] = []
    for run in runs:
        parts += [f"P{run[0]}-P{run[-1]}"] if len(run) > 2 else [f"P{number}" for number in run]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _verdict(examination: Examination, name: str) -> str:
    results = examination.results
    wrong = [result.label for result in results if result.passed is False]
    judged = sum(result.passed is not None for result in results)
    if not judged:
        return f"{name}: no probe could be judged."
    if not wrong:
        return f"{name} fails none of {judged} probes that could be judged."
    return f"{name} fails {len(wrong)} of {judged} probes that could be judged: {', '.join(wrong)}."


def _result(result: Result, width: int) -> Iterator[str]:
    verdict = {True: "passed", False: "failed", None: "not judged"}[result.passed]
    if result.refused:
        verdict = "refused"
    elif result.passed:
        verdict += _note(result)
    yield from _row(width, result.label, verdict, "", "", f"{result.seconds:.1f}")
    if result.passed is False:
        yield from _indented(_about(result.probe), width)
    if result.error:
        yield from _indented(result.error, width)
    for kind in dict.fromkeys(check.kind for check in result.checks):
        failed = [c for c in result.checks if c.kind == kind and c.passed is False]
        for check in failed[:FAILED]:
            yield from _row(width, "", check.what, check.expected, _found(check), "")
        if failed[FAILED:]:
            yield from _row(width, "", f"and {len(failed) - FAILED} more {kind}", "", "", "")


def _about(probe: str) -> str:
    """Return the first sentence of a probe's docstring, without its number."""
    paragraph = " ".join((PROBES[probe].__doc__ or "").split()).partition(". ")[0]
    return paragraph.partition(":")[2].strip().rstrip(".") if ":" in paragraph else paragraph


def _note(result: Result) -> str:
    unjudged = sum(check.passed is None for check in result.checks)
    judged = len(result.checks) - unjudged
    return f", {judged} numbers" + (f", {unjudged} not judged" if unjudged and judged else "")


def result_text(result: Result, width: int = 80) -> str:
    """Return all numbers of a probe, expected and found."""
    verdict = {True: "passed", False: "failed", None: "not judged"}[result.passed]
    lines = textwrap.wrap(f"{result.label}, {_about(result.probe)}: {verdict}.", width)
    lines += _row(width, "", "", "expected", "found", "")
    for check in result.checks:
        mark = "no" if check.passed is False else ""
        lines += _row(width, mark, check.what, check.expected, _found(check), "")
    lines += _indented(result.error, width)
    return "\n".join(lines)


def _found(check: Check) -> str:
    return "not judged" if check.found is None else f"{check.found:.2f}"


def _row(width: int, label: str, title: str, expected: str, number: str, seconds: str) -> list[str]:
    wide = max(20, width - 39)
    text = f"{label:<6}{title:<{wide}.{wide}} {expected:<14}{number:>10}{seconds:>7}"
    return [text.rstrip()]


def _indented(text: str, width: int) -> list[str]:
    indent = " " * 6
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=4,
        placeholder=" ...",
        break_on_hyphens=False,
    )
