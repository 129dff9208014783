"""Words of the command line as values."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["arguments_of", "value_of"]


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
