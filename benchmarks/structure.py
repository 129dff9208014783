"""Measure how the sources are built: files, folders, imports, walks through them, words.

    python benchmarks/structure.py                              # this checkout, printed
    python benchmarks/structure.py --record after               # kept in results/structure.*
    python benchmarks/structure.py --root DIR --python DIR/.venv/bin/python --record before

Needs nothing but Python; the traces (``structure_traces.py``) run in ``--python``, which must
import corral from ``--root``. Lists behind the numbers are in results/structure.json.

- **Lines** are those that ``wc -l`` counts; code lines hold something else than a comment or a
  docstring. A package's folder is what ``[tool.setuptools.package-dir]`` says.
- **Circles** are groups of modules, or rooms, that reach each other through imports. A package's
  own ``__init__`` is its face: that it imports what is below it makes no circle of rooms. A room is
  a folder of modules; where a folder has subfolders, each module beside them is a room of its own.
  Importing ``a.b`` runs ``a/__init__`` too; that is not counted. Neither are modules named in
  strings, which are imported on demand.
- **Forbidden imports** run against the order of LAYERS, or of ROOMS within trainers; those inside
  functions and for types alone count too, and say so.
- **One importer**: modules, without ``__init__``, that one other module imports, wherever.
- **Masks**: functions and classes, outside tests, by what their code does, see ``mask_role``
  in ``structure_sources.py``.
- **Loops**: functions with a loop that steps an environment and handles rewards or endings.
- **Words**: identifiers, without leading underscores unless the word has one; no comments.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structure_sources import (
    ALL_KINDS,
    array_functions,
    circles,
    count_code,
    count_lines,
    dfaas_mentions,
    forbidden,
    graph,
    mask_places,
    names_in,
    rooms,
    sources,
    steps_episodes,
    sums_rewards,
)

HERE = Path(__file__).parent
THIRD_PARTY = re.compile(
    r"adapters/(zoo|gymnasium|sb3|supersuit|rllib|torchrl|benchmarl|homogenize|mask_in_info|wrappers)"
)
WORDS = [
    "copies",
    "told",
    "given",
    "seen",
    "shown",
    "looked",
    "known",
    "settled",
    "kept",
    "remembered",
    "memory",
    "paid",
    "ahead",
    "beyond",
    "figures",
    "seat",
    "place",
    "places",
    "track",
    "frames",
    "Means",
    "Accounts",
    "Views",
    "_judge",
    "_improve",
    "_minibatch",
    "_see_last",
    "_would_play",
    "_forget",
    "normalised",
    "normalise",
    "centralised",
    "whole",
    "amount",
    "duels",
    "drawing",
    "clip",
    "judging",
    "finite",
    "task",
]


# --- Figures -------------------------------------------------------------------------------------


def static(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers for the table, and the lists behind them."""
    modules = sources(root)
    every = list(modules.values())
    lines = {m.file: count_lines(m.text) for m in every}
    folders = Counter(str(Path(file).parent) for file in lines)
    package = Counter[str]()
    for file, count in lines.items():
        package[Path(file).parts[0]] += count
    tests = [path.read_text() for path in sorted((root / "tests").rglob("*.py"))]
    at_import, called = graph(modules, {"module"}), graph(modules, {"module", "function"})
    importers = Counter(t for m in every for t in m.imports)
    single = [m.name for m in every if not m.is_package and importers[m.name] == 1]
    masks, mask_keys = mask_places(every), {m.file: m.strings.count("action_mask") for m in every}
    defined = [(f"{m.file}: {name}", node) for m in every for name, node in m.functions]
    arrays, shaped = array_functions(every)
    openings = Counter(d.value.split(maxsplit=1)[0] for m in every for d in m.docstrings if d.value)
    plain = Counter(name for m in every for name in names_in(m.tree))
    words = {w: plain[w] + (0 if w[0] == "_" else plain["_" + w]) for w in WORDS}
    lists = {
        "files per folder": dict(folders),
        "lines per package": dict(package),
        "files past 400 lines": {file: n for file, n in lines.items() if n > 400},
        "circles of modules": circles(at_import),
        "circles of modules, imports in functions too": circles(called),
        "circles of modules, imports for types too": circles(graph(modules, ALL_KINDS)),
        "circles of rooms": circles(rooms(modules, at_import)),
        "circles of rooms, imports in functions too": circles(rooms(modules, called)),
        "forbidden imports": forbidden(modules),
        "modules with one importer": single,
        "mask places": masks,
        '"action_mask"': {file: n for file, n in mask_keys.items() if n},
        "episode loops": [name for name, node in defined if steps_episodes(node)],
        "sums of rewards or infos": [name for name, node in defined if sums_rewards(node)],
        "mentions of dfaas_v0": dfaas_mentions(every),
        "array functions without a shape": sorted(set(arrays) - set(shaped)),
        "docstrings that begin with": {
            w: openings[w] for w in ("What", "Whether", "Of", "How") if openings[w]
        },
        "words": {word: count for word, count in words.items() if count},
    }
    in_trainers = [n for f, n in lists["mentions of dfaas_v0"].items() if f.startswith("trainers/")]
    numbers = {
        "source files": len(lines),
        "folders": len(folders),
        "most files in a folder": max(folders.values()),
        "longest file": max(lines.values()),
        "files past 400 lines": len(lists["files past 400 lines"]),
        "lines of source": sum(lines.values()),
        "code lines of source": sum(map(count_code, every)),
        "lines of tests": sum(map(count_lines, tests)),
        **{f"lines of {folder}": count for folder, count in package.items()},
        **{name: len(found) for name, found in lists.items() if name.startswith("circles")},
        "forbidden imports": len(lists["forbidden imports"]),
        "modules with one importer": len(single),
        **{f"masks, {role}": len(found) for role, found in masks.items()},
        '"action_mask" typed': sum(mask_keys.values()),
        'files that type "action_mask"': len(lists['"action_mask"']),
        "episode loops": len(lists["episode loops"]),
        "functions that sum rewards or infos": len(lists["sums of rewards or infos"]),
        "mentions of dfaas_v0 elsewhere": sum(lists["mentions of dfaas_v0"].values()),
        "files with such mentions": len(lists["mentions of dfaas_v0"]),
        "mentions of dfaas_v0 in trainers": sum(in_trainers),
        "files of trainers with such mentions": len(in_trainers),
        "public array functions": len(arrays),
        "of them with a shape, %": round(100 * len(shaped) / max(1, len(arrays))),
        "docstrings that begin with What, Whether, Of, How": sum(
            lists["docstrings that begin with"].values()
        ),
        "house words as identifiers": sum(words.values()),
    }
    return numbers, lists


def dynamic(root: Path, python: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for the traces."""
    lists = {}
    for name in ("gamma", "update", "decision", "imports"):
        command = [python, "-W", "ignore", HERE / "structure_traces.py", name, root]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"trace {name} failed:\n{done.stderr}")
        lists[name] = json.loads(done.stdout.splitlines()[-1])
    gamma, update, decision = lists["gamma"], lists["update"], lists["decision"]
    third = {file: n for file, n in lists["imports"].items() if THIRD_PARTY.match(file)}
    held = len(gamma["files"])
    numbers = {
        "files that hold gamma, from --gamma to its use": held,
        "the same, without those that record it": held - len(gamma["recording"]),
        "the same, with callers that only pass it": held + len(gamma["passed"]),
        "files that one PPO update enters": len(update["files"]),
        "their lines": sum(update["lines"].values()),
        "lines of the functions it enters": sum(update["lines_of_functions"].values()),
        "files from observation to masked logits, training": len(decision["trained"]["files"]),
        "returns to a file already left, training": decision["trained"]["returns"],
        "files from observation to masked logits, policy.act": len(decision["played"]["files"]),
        "returns to a file already left, policy.act": decision["played"]["returns"],
        "third-party adapters that mappo imports, lines": sum(third.values()),
        "of them zoo": sum(n for file, n in third.items() if "/zoo" in file),
    }
    return numbers, lists


AIMS = {
    "most files in a folder": "12",
    "longest file": "400",
    "circles of modules": "0",
    "circles of rooms": "0",
    "forbidden imports": "0",
    "files that hold gamma, from --gamma to its use": "7",
    "files from observation to masked logits, training": "6",
    "third-party adapters that mappo imports, lines": "0",
}
SHOWN = ("circles", "forbidden", "mask places", "episode loops", "sums of", "files past", "words")


def page(columns: Mapping[str, Any]) -> str:
    """All columns as Markdown, and for each what can be checked by eye."""
    rows = dict.fromkeys(name for column in columns.values() for name in column["numbers"])
    lines = ["# Structure of the sources", "", f"| | {' | '.join(columns)} | aim |"]
    lines += ["|---|" + "--:|" * (len(columns) + 1)]
    for row in rows:
        cells = [column["numbers"].get(row, 0) for column in columns.values()]
        shown = " | ".join(f"{cell:,}" for cell in cells)
        lines.append(f"| {row} | {shown} | {AIMS.get(row, '')} |")
    for name, column in columns.items():
        about = ", ".join(f"{key} {value}" for key, value in column["about"].items())
        lines += ["", f"## {name}", "", about, ""]
        for heading, found in column["lists"].items():
            if heading.startswith(SHOWN) and found:
                lines += [f"- {heading}: {_told(found)}"]
        traces = column["lists"].get("traces")
        if traces:
            lines += [
                f"- gamma: {', '.join(traces['gamma']['files'])}",
                f"- one PPO update: {_told(traces['update']['lines'])}",
                f"- training: {' > '.join(traces['decision']['trained']['order'])}",
                f"- policy.act: {' > '.join(traces['decision']['played']['order'])}",
                f"- adapters imported: {_told(traces['imports'])}",
            ]
    return "\n".join(lines) + "\n"


def _told(found: Any) -> str:
    if isinstance(found, Mapping):
        return "; ".join(f"{key} {_told(value)}" for key, value in found.items())
    if isinstance(found, list):
        return ", ".join(" <-> ".join(x) if isinstance(x, list) else str(x) for x in found)
    return str(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=HERE.parent, help="the checkout to measure")
    parser.add_argument("--python", default=sys.executable, help="a Python that imports its corral")
    parser.add_argument("--record", metavar="NAME", help="keep it as this column of the results")
    parser.add_argument("--static", action="store_true", help="leave out the traces")
    options = parser.parse_args()
    root = options.root.resolve()
    numbers, lists = static(root)
    if not options.static:
        more, lists["traces"] = dynamic(root, options.python)
        numbers |= more
    commit = ["git", "-C", root, "rev-parse", "--short", "HEAD"]
    done = subprocess.run(commit, capture_output=True, text=True)
    about = {"commit": done.stdout.strip() or "none", "python": platform.python_version()}
    column = {"about": about, "numbers": numbers, "lists": lists}
    if options.record is None:
        print(page({"now": column}))
        return
    kept = HERE / "results" / "structure.json"
    columns = json.loads(kept.read_text()) if kept.exists() else {}
    columns[options.record] = column
    kept.write_text(json.dumps(columns, indent=1) + "\n")
    kept.with_suffix(".md").write_text(page(columns))
    print(page(columns))


if __name__ == "__main__":
    main()
