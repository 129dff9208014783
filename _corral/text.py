"""Text from outside, made fit to be shown: no raw control characters, no flood."""

from __future__ import annotations

import re
import shlex

__all__ = ["dotted_name", "one_line", "pasted", "shortened", "visible"]

LONGEST = 1_000
"""Characters of a line of a message; longer ones lose their middle: hints stand at the end."""

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # what terminals obey: C0 but tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff"  # hides or reorders text
    "\ud800-\udfff\U000e0000-\U000e007f]"  # bytes of a file's name that are no UTF-8; tags
)


UNDECODED = re.compile("[\udc80-\udcff]+|(?:\\\\udc[89a-f][0-9a-f])+")
"""Bytes of a name that Python did not decode, as in the locale C; the latter: as repr has them."""


def visible(text: str) -> str:
    """Return ``text`` with control characters as escapes, such as \\x1b; newlines stay."""
    return HIDDEN.sub(_escape, UNDECODED.sub(_decoded, text))


def one_line(text: object) -> str:
    """Return a name as ``visible`` does, on one line and of bounded length."""
    plain = visible(str(text).replace("\n", "\\n").replace("\t", "\\t"))
    return shortened(plain, 200)


def pasted(path: object) -> str:
    """Return a path or name as a shell takes it for one word that is no option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` with no line longer than about ``longest`` characters."""
    if len(text) <= longest:
        return text
    return "\n".join(_shortened(line, longest) for line in text.split("\n"))


def _shortened(line: str, longest: int) -> str:
    if len(line) <= longest:
        return line
    head, tail = 2 * longest // 3, longest // 3
    return f"{line[:head]} ... ({len(line) - head - tail:,} more) ... {line[-tail:]}"


def _decoded(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("\\"):
        text = text.encode("ascii").decode("unicode_escape")
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        return found[0]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def dotted_name(found: object) -> str:
    """Return module:name of a function or class, else the name of its type."""
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    return f"{module}:{name}" if module and name else type(found).__name__
