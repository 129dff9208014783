"""Edits of JSON files, for tests that read each of them: whatever a key holds, a reader ends in
success or in one of corral's own errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corral.errors import CorralError

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 3.5, 10**30, 1e300, "", "other", "../" * 20 + "etc/passwd"),
    *([], [[1]], {}, {"type": "function"}, ["a", None]),
)
"""Values that stand in the place of what a key holds."""

DEEP = 100_000
"""Brackets that no parser goes down without a limit."""


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every key of a JSON value; of lists the first and the last entry."""
    if isinstance(value, dict):
        items: list[Any] = [*value.items()]
    elif isinstance(value, list) and value:
        items = [*{0: value[0], len(value) - 1: value[-1]}.items()]
    else:
        return
    for key, each in items:
        yield (*before, key)
        yield from places(each, (*before, key))


def edits(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield texts of an edited JSON file, with words on what was edited."""
    for place in places(json.loads(text)):
        for wrong in WRONG:
            value = json.loads(text)
            _parent(value, place)[place[-1]] = wrong
            yield f"{place} = {wrong!r}", json.dumps(value).encode()
        value = json.loads(text)
        parent = _parent(value, place)
        if isinstance(parent, dict):
            del parent[place[-1]]
            yield f"{place} missing", json.dumps(value).encode()
    begin, brace, rest = text.partition("{")
    yield "another key", f'{begin}{brace}"another": 1, {rest}'.encode()
    name = next(iter(json.loads(text)))
    yield "a key twice", f"{begin}{brace}{json.dumps(name)}: 1, {rest}".encode()
    yield "NaN", f'{begin}{brace}"another": NaN, {rest}'.encode()
    yield "nested objects", (b'{"a":' * DEEP) + b"1" + b"}" * DEEP
    yield "nested lists", f'{begin}{brace}"another": {"[" * DEEP}{"]" * DEEP}, {rest}'.encode()
    yield "a long number", f'{begin}{brace}"another": {"9" * 10_000}, {rest}'.encode()
    yield "empty", b""
    yield "no text", b"\xff\xfe"
    yield "half of it", text[: len(text) // 2].encode()
    for word in ("[]", "1", '"text"', "null", "[[1]]"):
        yield word, word.encode()


def require_plain_errors(path: Path, read: Callable[[], Any]) -> int:
    """Read a file in all its edited forms; return how many there were.

    Raises AssertionError that names the edit whose error is none of corral's own.
    """
    before, count = path.read_bytes(), 0
    raw: list[str] = []
    for words, data in edits(before.decode()):
        path.write_bytes(data)
        count += 1
        try:
            read()
        except CorralError as error:
            if str(path) not in str(error):
                raw.append(f"{words}: does not name the file: {error}")
        except Exception as error:
            raw.append(f"{words}: {type(error).__name__}: {str(error)[:200]}")
    path.write_bytes(before)
    assert not raw, f"{len(raw)} of {count} end raw:\n" + "\n".join(raw[:20])
    return count


def odd_files(path: Path) -> Iterator[str]:
    """Put things in the place of a file that are none; yield what each of them is."""
    before = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    yield "a pipe"
    path.unlink()
    path.mkdir()
    yield "a folder"
    path.rmdir()
    other = path.with_name("outside.json")
    other.write_bytes(before)
    path.symlink_to(other)
    yield "a link"
    path.unlink()
    other.unlink()
    with path.open("wb") as file:
        file.truncate(2**36)  # sparse
    yield "64 GiB"
    path.unlink()
    path.write_bytes(before)


def _parent(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        value = value[key]
    return value
