"""Format the result of ``learnable`` as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from corral.lab.doctor.choices.gains import Forked, Gain
from corral.lab.doctor.choices.scripts import Script, Scripts
from corral.trainers.evaluation.intervals import largest_share

if TYPE_CHECKING:
    from corral.lab.doctor.choices import Learnable

__all__ = ["learnable_text"]


def learnable_text(result: Learnable, width: int = 80) -> str:
    """Return the whole result, verdict first, in lines of at most ``width``."""
    width = max(60, width)
    lines = _wrapped(f"{result.environment}: {result.verdict}", width)
    for fault in result.faults:
        lines += ["", *_wrapped(fault.text, width, "FAULT  ")]
    lines += ["", *_script_table(result.scripts, width)]
    if result.forked:
        lines += ["", *_forked_table(result.forked, width)]
    lines += [""] if result.notes or result.not_asked else []
    for note in result.notes:
        lines += _wrapped(note, width, "note: ")
    for test in result.not_asked:
        lines += _wrapped(test, width, "not tested: ")
    count = len(result.faults)
    return "\n".join([*lines, "", f"{count} fault{'s' * (count != 1)}; {result.seconds:.1f} s"])


def _script_table(scripts: Scripts, width: int) -> Iterator[str]:
    names = [_name(row) for row in scripts.rows]
    wide = min(max([*map(len, names), 12]), width - 46)
    yield f"{'script':<{wide}} {'mean return':>12} {'above random':>13} {'95 % interval':>19}"
    for name, row in zip(names, scripts.rows, strict=True):
        line = f"{textwrap.shorten(name, wide, placeholder='...'):<{wide}} {number(row.mean):>12}"
        if row.name != "random":
            low, high = row.interval
            between = "" if low is None or high is None else f"{number(low)} to {number(high)}"
            line += f" {number(row.difference, '+'):>13} {between:>19}"
        yield line
    players = (
        "One agent plays the script, the others play randomly; the agent's own return."
        if scripts.alone
        else "All agents play the script; return of the team, the sum over agents."
    )
    yield from _wrapped(
        f"{players} {scripts.episodes} shared episodes; differences are paired.", width
    )


def _name(row: Script) -> str:
    return row.name if row.agent is None else f"{row.agent}: {row.name}"


def _forked_table(forked: Sequence[Forked], width: int) -> Iterator[str]:
    names = [f"{fork.agent}, {fork.others}" for fork in forked]
    wide = min(max([*map(len, names), 17]), width - 60)
    yield (
        f"{'agent, other play':<{wide}} {'within':>7} {'best action':>16} {'constant':>16} "
        f"{'by observation':>16}"
    )
    for name, fork in zip(names, forked, strict=True):
        short = textwrap.shorten(name, wide, placeholder="...")
        cells = [_gain(gain) for gain in (fork.best, fork.constant, fork.shown)]
        far = "the end" if fork.to_the_end else f"{fork.decisions}"
        yield f"{short:<{wide}} {far:>7} {cells[0]:>16} {cells[1]:>16} {cells[2]:>16}"
    tried = ", ".join(dict.fromkeys(f"{fork.tried} of {fork.of}" for fork in forked))
    yield from _wrapped(
        "Gain of the agent's own return, within that number of its decisions, over the mean of "
        f"the tried actions ({tried}; "
        f"{sum(fork.moments for fork in forked):,} states); ± two standard errors.",
        width,
    )
    gains = ((fork, gain) for fork in forked for gain in (fork.best, fork.constant, fork.shown))
    if equal := [fork.moments for fork, gain in gains if _is_equal(gain)]:
        yield from _wrapped(
            f"= : the same gain in all states; with {min(equal):,} states, it differs in at most "
            f"{largest_share(min(equal)):.2g} of states like these (95 % bound).",
            width,
        )


def _gain(gain: Gain) -> str:
    if _is_equal(gain):
        return f"= {number(gain.mean, '+')}"
    return f"{number(gain.mean, '+')} ± {2 * gain.error:.1g}"


def _is_equal(gain: Gain) -> bool:
    """Return True if the gain is the same in all states, apart from rounding."""
    return 2 * gain.error <= 1e-9


def number(value: float, sign: str = "") -> str:
    """Format a number with about four digits."""
    if abs(value) < 5e-10:
        return "0"
    return f"{value:{sign},.0f}" if abs(value) >= 1_000 else f"{value:{sign}.3g}"


def _wrapped(text: str, width: int, first: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))
