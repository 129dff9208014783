"""Make untrusted text safe to print: no raw control characters, limited length."""

from __future__ import annotations

import re
import shlex

__all__ = ["dotted_name", "one_line", "pasted", "shortened", "visible"]

LONGEST = 1_000
"""Maximum characters of a message line. A longer line loses its middle, as hints are at its end."""

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters: C0 except tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff"  # hides or reorders text
    "\ud800-\udfff\U000e0000-\U000e007f]"  # undecodable bytes of file names; tags
)


UNDECODED = re.compile("[\udc80-\udcff]+|(?:\\\\udc[89a-f][0-9a-f])+")
"""Bytes of a name that Python did not decode, as in the locale C; also in their form in repr."""


def visible(text: str) -> str:
    """Return ``text`` with control characters as escapes, such as \\x1b; newlines are kept."""
    return HIDDEN.sub(_escape, UNDECODED.sub(_decoded, text))


def one_line(text: object) -> str:
    """Return a name as ``visible`` does, on one line and of limited length."""
    plain = visible(str(text).replace("\n", "\\n").replace("\t", "\\t"))
    return shortened(plain, 200)


def pasted(path: object) -> str:
    """Return a path or name quoted as a single shell word that is not an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` with each line cut to about ``longest`` characters."""
    if len(text) <= longest:
        return text
    return "\n".join(_shortened(line, longest) for line in text.split("\n"))


def _shortened(line: str, longest: int) -> str:
    if len(line) <= longest:
        return line
    head, tail = 2 * longest // 3, longest // 3
    return f"{line[:head]} ... ({len(line) - head - tail:,} more) ... {line[-tail:]}"


def _decoded(match: re.Match[str]) -> str:
    text = match[0]
    if text.startswith("\\"):
        text = text.encode("ascii").decode("unicode_escape")
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        return match[0]


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def dotted_name(value: object) -> str:
    """Return module:name of a function or class; for another object, the name of its type."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}:{name}" if module and name else type(value).__name__
