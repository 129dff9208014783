"""Messages and screens: tests assert classes, fields and values; a reader reads the texts.

``make messages`` runs the tests and writes every text that ``refused`` and ``shown`` met to
tests/messages.txt, for a reader. A sentence can be mended without touching a test.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

RECORD = "CORRAL_MESSAGES"
"""The environment variable that names the file to which texts are appended, a line of JSON each."""


@contextmanager
def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], *values: object, **fields: object
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Assert that the block raises ``kind``, names each value, and carries the fields.

    ``values`` are names and numbers, never sentences: the argument that is wrong, what it was, the
    limit, the command that helps. ``fields`` are attributes of the exception.
    """
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    require_values(text, values)
    for name, value in fields.items():
        assert getattr(caught.value, name) == value, f"{name}: {text}"
    _record(caught.type.__name__, text)


def shown(text: str, *values: object) -> str:
    """Assert that a screen, a report or a warning shows each value. Return the text."""
    require_values(text, values)
    _record("text", text)
    return text


def require_values(text: str, values: tuple[object, ...]) -> None:
    """Assert that each value stands in the text as a word or number of its own."""
    for value in values:
        word = str(value)
        start = r"(?<![\w.-])" if word[:1].isalnum() else ""
        end = r"(?![\w-])" if word[-1:].isalnum() else ""
        assert re.search(start + re.escape(word) + end, text), f"{word!r} is missing in:\n{text}"


def _record(kind: str, text: str) -> None:
    path = os.environ.get(RECORD)
    if path is None:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "?").rpartition(" ")[0]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    plain = re.sub(r"/[^\s'\"]*/pytest-\d+/(popen-gw\d+/)?[^/\s'\"]+", "FOLDER", plain)
    line = json.dumps([test.partition("[")[0], kind, plain]) + "\n"
    with open(path, "a", encoding="utf-8") as out:
        out.write(line)


def golden(lines: list[str]) -> str:
    """Return the recorded texts as one page, ordered by test; equal texts once per test."""
    found: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        test, kind, text = json.loads(line)
        found.setdefault(test, set()).add((kind, text))
    page = []
    for test in sorted(found):
        page.append(f"== {test}\n")
        page += [f"{kind}: {text}\n" for kind, text in sorted(found[test])]
    return "\n".join(page)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(golden(source.read_text(encoding="utf-8").splitlines()), encoding="utf-8")
