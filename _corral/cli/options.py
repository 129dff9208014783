"""Words of the command line as values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

__all__ = ["arguments_of", "names", "row_range", "value_of"]


def arguments_of(pairs: list[str]) -> dict[str, Any]:
    """From key=value; see ``value_of``."""
    arguments = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--arg {pair}: give key=value")
        arguments[key] = value_of(text)
    return arguments


def value_of(text: str) -> Any:
    """A number, true, false, none, LOW:HIGH, numbers with commas, JSON; else the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if re.fullmatch(r"\d+:\d+", text):
        return tuple(int(part) for part in text.split(":"))
    if re.fullmatch(r"\d+(,\d+)*,?", text) and "," in text:
        return tuple(int(part) for part in text.split(",") if part)
    try:
        return json.loads(text)
    except ValueError:
        return text


def row_range(rows: str | None, split: float | None, length: int) -> tuple[int, int] | None:
    """Return what --rows and --split say of a trace of that length; None: nothing."""
    if rows is not None and split is not None:
        raise ValueError("give --rows or --split, not both")
    if split is not None:
        if not 0 <= split < 1:
            raise ValueError(f"--split {split}: give a share of 0 or more, below 1")
        return int(split * length), length
    if rows is None:
        return None
    low, colon, high = rows.partition(":")
    if not colon or not all(part.isdigit() for part in (low or "0", high or "0")):
        raise ValueError(f"--rows {rows}: give LOW:HIGH, for example 0:288")
    return int(low or 0), int(high or length)


def names(text: str, is_run: Callable[[str], bool]) -> list[str]:
    """Return the policies and runs named, each once; "overflow" is the same as "overflow/equal"."""
    listed: dict[str, str] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        listed.setdefault(name if "/" in name or is_run(name) else f"{name}/equal", name)
    if not listed:
        raise ValueError("--policies names none; leave it out to play all")
    return list(listed.values())
