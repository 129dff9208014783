"""Examinations as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from corral.envs.probes import PROBES
from corral.lab.doctor.examination.judging import Check, Examination, Result
from corral.lab.doctor.examination.patterns import suspects, unseen

__all__ = ["examination_text", "result_text"]

FAILED = 3
"""Failed checks of a kind that are shown; the others are counted."""


def examination_text(examination: Examination, name: str = "The learner", width: int = 80) -> str:
    """Return an examination, verdict first: what was found beside what is expected."""
    lines = textwrap.wrap(_verdict(examination, name), width)
    for told in (*_near_misses(examination), *_named(examination)):
        lines += textwrap.wrap(told, width)
    lines.append("")
    lines += _row(width, "probe", "", "expected", "found", "s")
    for result in examination.results:
        lines += _result(result, width)
    left = sum(check.found is None for r in examination.results for check in r.checks)
    if left:
        told = f"{left} numbers are not judged: {NOT_JUDGED}"
        if (hidden := unseen(examination)) and not examination.failed:
            told += f" Bugs that none of the other numbers tells: {', '.join(hidden)}."
        lines += ["", *textwrap.wrap(told, width)]
    return "\n".join(lines)


NOT_JUDGED = "values need Learned(policies, values), the memory of P14 policies that keep a state."

NAMED = 2
"""Groups of planted bugs that are named."""


def _named(examination: Examination) -> Iterator[str]:
    """Yield what planted bugs fail alike, the nearest first."""
    if all(symptom.endswith(" error") for symptom in examination.symptoms):
        return  # or nothing failed
    found = suspects(examination)[:NAMED]
    if not found:
        yield "None of the planted bugs fails like this."
    for number, one in enumerate(found):
        first, *others = one.bugs
        told = f"fails {_ranges(one.labels)} as {first} does"
        if others:
            told += f", and, in nothing that was judged apart from it, {', '.join(others)}"
        yield f"{'Next nearest: it' if number else 'It'} {told} (likeness {one.likeness:.2f})."


CLOSE = 0.75
"""Probability of the best action from which on more training may do."""


def _near_misses(examination: Examination) -> Iterator[str]:
    """Yield which probes failed only by actions that were nearly learned."""
    close = []
    for result in examination.results:
        failed = [check for check in result.checks if check.passed is False]
        near = [c.kind == "actions" and c.found is not None and c.found >= CLOSE for c in failed]
        if failed and all(near) and not result.error:
            close.append(result.label)
    if close:
        yield f"{_ranges(close)} came close: longer training may do, --budget 3."


def _ranges(labels: Sequence[str]) -> str:
    """Return "P4-P7 and P11" of P4, P5, P6, P7, P11."""
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
    left = sum(check.passed is None for check in result.checks)
    judged = len(result.checks) - left
    return f", {judged} numbers" + (f", {left} not judged" if left and judged else "")


def result_text(result: Result, width: int = 80) -> str:
    """Return all that a probe fixes beside what was found of it."""
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


def _row(width: int, label: str, what: str, expected: str, found: str, seconds: str) -> list[str]:
    wide = max(20, width - 39)
    text = f"{label:<6}{what:<{wide}.{wide}} {expected:<14}{found:>10}{seconds:>7}"
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
