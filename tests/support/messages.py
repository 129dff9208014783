"""Messages and screens: tests assert classes, fields and values; a reader reads the texts.

``make messages`` runs the tests and writes every text that ``refused`` and ``shown`` met to
build/messages.txt, for a reader. A sentence can be mended without touching a test.
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


_lines: list[str] = []


def write_record() -> None:
    """Append what this process recorded to the file that RECORD names: at the end of the tests,
    some of which limit what a process may write."""
    if _lines:
        with open(os.environ[RECORD], "a", encoding="utf-8") as out:
            out.write("".join(_lines))
        _lines.clear()


def _record(kind: str, text: str) -> None:
    if RECORD not in os.environ:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "?").rpartition(" ")[0]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    plain = re.sub(r"/[^\s'\"]*/pytest-\d+/(popen-gw\d+/)?[^/\s'\"]+", "FOLDER", plain)
    _lines.append(json.dumps([test.partition("[")[0], kind, plain]) + "\n")


def golden(lines: list[str]) -> str:
    """Return the recorded texts as one page, ordered by test. Equal texts come once; of pages in
    HTML and of pictures there is the title alone."""
    found: dict[str, set[tuple[str, str]]] = {}
    known = set()
    for line in sorted(lines):
        test, kind, text = json.loads(line)
        if text.lstrip().lower().startswith(("<!doctype", "<svg", "<html")):
            title = re.search(r"<title>(.*?)</title>", text)
            text = f"a page: {title[1]}" if title else "a picture"
        if text not in known:
            known.add(text)
            found.setdefault(test, set()).add((kind, text))
    page = []
    for test in sorted(found):
        page.append(f"== {test}\n")
        page += [f"{kind}: {text}\n" for kind, text in sorted(found[test])]
    return "\n".join(page)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(golden(source.read_text(encoding="utf-8").splitlines()), encoding="utf-8")
