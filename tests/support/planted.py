"""Texts that a stranger plants in the files of a run, and a watch that sees them taken for code.

A child process plays every command over every key (``python planted.py PLAN``): an audit hook
cannot be taken off again, and modules that were imported stay. PLAN is a JSON file:

| key | |
|---|---|
| ``folder`` | where it works: a copy of what the commands read |
| ``file`` | the file that is changed, relative to it |
| ``commands`` | lists of words, as typed after ``corral`` |
| ``places`` | paths of keys in the file, as lists |
| ``warm`` | whether the commands are run once, unwatched, before; default: yes |
| ``texts`` | which of ``TEXTS``; default: all |
| ``sign`` | whether the checkpoints are made to agree with the changed config.json |

It prints one JSON line for each text that was taken for code or opened, and at last "done" and how
many were tried.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULE = "zqplant_module"
"""Lies beside the run, and can be imported."""
FILE = "zqplant_file.py"
SECRET = "zqplant_secret.csv"

TEXTS: dict[str, Any] = {
    "module": f"{MODULE}:boom",
    "whole module": MODULE,
    "dotted": f"{MODULE}.boom",
    "file": f"{FILE}:boom",
    "path": SECRET,
    "absolute path": str(Path.cwd() / SECRET),
    "function": {"type": "function", "name": f"{MODULE}:boom", "sha256": None},
    "trace": {"type": "trace", "name": SECRET, "digest": "0" * 64},
    "file of a trace": {"type": "trace", "name": "x", "digest": "0" * 64, "file": f"../{SECRET}"},
    "array": {"type": "array", "digest": "0" * 64, "file": f"../{SECRET}"},
    "source": {"text": f"{MODULE}:boom", "sha256": None},
    "model": {"name": f"{MODULE}:boom", "sha256": None},
    "command": "__import__('os').system('touch zqplant_ran')",
    "pickle": "cos\nsystem\n(S'touch zqplant_ran'\ntR.",
}

TOKEN = "zqplant"
CODE_OR_FILE = ("import", "open", "exec", "compile")
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")


class Watch:
    """Sees imports and opening of what was planted, and processes; only while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.taken: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        planted = event in CODE_OR_FILE and TOKEN in repr(arguments)
        if event in PROCESSES or (planted and not is_run_opened(event, arguments)):
            self.taken.append(f"{event} {arguments!r:.200}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[str]]:
        self.taken = []
        self.on = True
        try:
            yield self.taken
        finally:
            self.on = False


def is_run_opened(event: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether a text is looked at as the folder of a run. A run names others: those that it
    started from and its opponents, which are read by the same rules."""
    path, _, flags = arguments if event == "open" else ("", "", 0)
    return str(path).endswith("/config.json") or bool(flags & os.O_DIRECTORY)


def places_in(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value, those of dicts and lists themselves, too."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in items:
        yield (*before, key)
        if isinstance(below, dict | list):
            yield from places_in(below, (*before, key))


def planted(values: Any, place: tuple[Any, ...], text: Any) -> Any:
    """Return a copy with ``text`` at a place."""
    changed = copy.deepcopy(values)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = text
    return changed


def typed(words: list[str]) -> str:
    """Run a command as if it had been typed, and return what ended it, "" where it succeeded."""
    from support.command import command_line

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = command_line()(words, standalone_mode=False)
        except BaseException as error:  # a refusal of any kind is an answer
            return repr(error)
    return f"exit {code}: {said.getvalue()}" if code else ""


def main(plan: dict[str, Any]) -> None:
    os.chdir(plan["folder"])
    sys.path.insert(0, plan["folder"])
    file = Path(plan["file"])
    values = json.loads(file.read_text(encoding="utf-8"))
    watch = Watch()
    for words in plan["commands"] if plan.get("warm", True) else ():
        # What is imported anyway, is imported now; and a command that is refused for the sound
        # file never comes to what is planted.
        if refused := typed(words):
            raise SystemExit(f"{words} is refused for the sound file: {refused}")
    tried = 0
    for place in map(tuple, plan["places"]):
        for name in plan.get("texts", TEXTS):
            planted_text = TEXTS[name]
            changed = planted(values, place, planted_text)
            file.write_text(json.dumps(changed), encoding="utf-8")
            if plan.get("sign"):
                sign(file.parent, changed)
            for words in plan["commands"]:
                tried += 1
                with watch.watching() as taken:
                    typed(words)
                if taken:
                    row = {"place": place, "text": name, "command": words, "taken": taken[:9]}
                    print(json.dumps(row, default=str), flush=True)
    print(json.dumps({"done": tried}), flush=True)


def sign(folder: Path, values: dict[str, Any]) -> None:
    """Let the checkpoints of a run say that ``values`` made them."""
    from corral.files import sha256
    from corral.trainers.runs.run_config import canonical_values
    from support.hostile_checkpoints import forge

    if not isinstance(values["env_kwargs"], dict):
        return  # it has no such form
    document = json.dumps(canonical_values(values)).encode("ascii")
    for checkpoint in (folder / "checkpoints").glob("step_*"):
        step = json.loads((checkpoint / "manifest.json").read_text())["step"]
        forge(checkpoint, {"configuration.json": document}, at=step)
        digest = sha256((checkpoint / "manifest.json").read_bytes())
        for pointer in ("latest", "best"):
            path = folder / "checkpoints" / pointer
            if path.exists() and path.read_text().startswith(checkpoint.name + " "):
                path.write_text(f"{checkpoint.name} {digest}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
