"""Every digit of a run's config.json changed once: of which key it is, and what refuses it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from corral.errors import CorralError
from corral.trainers.driver import resume
from corral.trainers.runs.run import load_run


class Change(NamedTuple):
    """What became of a config.json with one other digit."""

    key: str  # the key whose value it is, such as settings.gamma
    text: str  # the whole file
    read: str | None = None  # why its policies are refused; None: they are loaded
    resumed: str | None = None  # why it does not go on; None: it does


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return settings.gamma -> its JSON text."""
    found = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{key}.")
        else:
            found[before + key] = json.dumps(value)
    return found


def digits(text: str) -> Iterator[Change]:
    """Yield the text with one digit changed, for each of its digits: d becomes d + 1, 9 becomes 0.

    A number that would begin with 0, which is no JSON, gets a 1 there.
    """
    true = flat(json.loads(text))
    for found in re.finditer(r"\d", text):
        at = found.start()
        for new in (str((int(text[at]) + 1) % 10), "1"):
            changed = text[:at] + new + text[at + 1 :]
            try:
                other = flat(json.loads(changed))
            except ValueError:
                continue
            keys = [key for key in {**true, **other} if true.get(key) != other.get(key)]
            yield Change(min(keys), changed)
            break


def other_values(text: str) -> Iterator[Change]:
    """Yield the text with one true, false, null or text changed to another value."""
    values = json.loads(text)
    others = {"true": [False, 1], "false": [True, 0], "null": [0, "x"]}

    def of(below: Any, path: tuple[str, ...]) -> Iterator[Change]:
        for key, value in below.items():
            if isinstance(value, dict):
                yield from of(value, (*path, key))
            elif not isinstance(value, list | int | float) or isinstance(value, bool):
                for new in others.get(json.dumps(value), [f"{value}x", None]):
                    below[key] = new
                    yield Change(".".join((*path, key)), json.dumps(values))
                below[key] = value

    yield from of(values, ())


def judged(run: Path, change: Change, place: Path, **again: Any) -> Change:
    """Return what loading the policies of a changed copy of ``run`` says, and resuming it.

    ``again``: what both are given, of an environment of others.
    """
    said = []
    for use in (
        lambda: load_run(place, **again).policies,
        lambda: resume(place, progress=False, **again),
    ):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(run, place)
        (place / "config.json").write_text(change.text)
        try:
            use()
            said.append(None)
        except CorralError as error:
            said.append(str(error))
    shutil.rmtree(place)
    return change._replace(read=said[0], resumed=said[1])
