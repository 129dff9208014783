"""``corral.listen`` in scripts with a planted fault, and in sound ones.

    python benchmarks/lab/listening.py run plain sb3      the scripts of these frameworks; resumable
    python benchmarks/lab/listening.py run plain --after  again, in rows apart, with rules that were
                                                          written after the scripts were read
    python benchmarks/lab/listening.py run rllib --only NAME
    python benchmarks/lab/listening.py cost plain sb3     CPU seconds and weights, with and without
    python benchmarks/lab/listening.py report             writes results/listening.md

The scripts (``benchmarks/lab/listening/``) are by authors who had seen no rule. The rows of the
first run, ``results/listening_<framework>.jsonl``, are blind: keep them. Each framework needs its
own environment. ``listening/judged.json`` says for each faulty script which causes name
its fault; it was written by hand from the descriptions of the scripts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import corral

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
HARM = 1 / 3
"""Share of the return above random play that a harmful fault costs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "cost", "report"])
    parser.add_argument("frameworks", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(HERE / "listening"))
    if options.what == "report":
        report()
        return
    lost = harms()
    for framework in options.frameworks:
        planted = importlib.import_module(framework).RUNS
        for name, script in planted.items():
            if options.only and options.only not in name:
                continue
            if options.after and not script.sound and lost.get(name, 0.0) <= HARM:
                continue
            if options.what == "run":
                run(script, options.seed, again=bool(options.only), after=options.after)
            elif script.sound:
                cost(script, options.seed)


# --- Running -------------------------------------------------------------------------------------


FRAMEWORKS = ("plain", "sb3", "rllib", "torchrl")


def rows(framework: str, *, after: bool = False) -> list[dict[str, Any]]:
    """Return the stored rows of a framework: the blind ones, or those after reading."""
    path = RESULTS / f"listening_{framework}{'_after' * after}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(script: Any, seed: int, *, again: bool, after: bool) -> None:
    """Train with ``corral.listen`` and store what the ear reports."""
    stored = rows(script.framework, after=after)
    if not again and any(row["name"] == script.name for row in stored):
        return
    ears: list[Any] = []

    def listen(*args: Any, **kwargs: Any) -> Any:
        ears.append(corral.listen(*args, **kwargs))
        return ears[-1]

    said, error, score = io.StringIO(), "", None
    began = time.process_time()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            score = float(script.train(listen, seed))
    except Exception as exception:  # the fault may stop the training
        error = f"{type(exception).__name__}: {exception}"
    reports = [ear.report() for ear in ears]
    for ear in ears:
        ear.stop()
    row = {
        "name": script.name,
        "framework": script.framework,
        "sound": script.sound,
        "score": score,
        "error": error,
        "verdicts": [item.verdict for item in reports],
        "findings": [
            [finding.cause, finding.certainty, finding.measured, finding.place]
            for item in reports
            for finding in item.findings
            if not finding.follows
        ],
        "early": said.getvalue().count("corral hears"),
        "listening": [error for item in reports for error in item.errors],
        "cpu": round(time.process_time() - began, 1),
    }
    kept = [item for item in stored if item["name"] != script.name]
    path = RESULTS / f"listening_{script.framework}{'_after' * after}.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in [*kept, row]))
    causes = ", ".join(f"{cause} ({certainty})" for cause, certainty, *_ in row["findings"])
    print(f"{script.name}: {score} {row['verdicts']} {causes} {error}", flush=True)


def cost(script: Any, seed: int) -> None:
    """Print CPU seconds with and without listening, alternating, and if the scores are equal."""
    seconds: tuple[list[float], list[float]] = ([], [])
    scores: list[float] = []
    silent = importlib.import_module("planted").silent
    for _ in range(3):
        for spent, listen in zip(seconds, (silent, corral.listen), strict=True):
            began = time.process_time()
            with contextlib.redirect_stderr(io.StringIO()):
                scores.append(float(script.train(listen, seed)))
            spent.append(time.process_time() - began)
    without, listened = (min(spent) for spent in seconds)
    print(
        f"{script.name}: {without:.2f} s, {listened:.2f} s with listening "
        f"({listened / without - 1:+.1%}); scores {'equal' if len(set(scores)) == 1 else scores}",
        flush=True,
    )


# --- Report --------------------------------------------------------------------------------------


def harms() -> dict[str, float]:
    """Return name -> share of the return above random play that the fault costs.

    Listening changes no score, so scores of rows count as well as those of silent trainings.
    """
    known: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("listening_harm*.json")):
        known |= json.loads(path.read_text())
    scores = {row["name"]: row["score"] for name in FRAMEWORKS for row in rows(name)}
    shares: dict[str, float] = {}
    for name, script in known.items():
        base = known.get(script["base"], {}).get("seeds", {}).get("0", {})
        sound = scores.get(script["base"], base.get("score"))
        score = scores.get(name, script["seeds"].get("0", {}).get("score"))
        if None not in (sound, score, base.get("random")) and sound > base["random"]:
            shares[name] = (sound - score) / (sound - base["random"])
    return shares


def report() -> None:
    judged = json.loads((HERE / "listening" / "judged.json").read_text())
    lost = harms()
    lines = [
        "# corral.listen in scripts with a planted fault, and in sound ones",
        "",
        "Blind: with rules by authors who had not read the scripts. After: with rules that were "
        "written or mended after reading them.",
        "",
        "| framework | rules | harmful | first cause right | among the causes | "
        "symptom, third verdict | silent | certain and wrong | sound | alarms |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    results: dict[str, list[str]] = {}  # script -> its result with each group of rules
    latest: dict[str, str] = {}  # script -> its verdicts and causes with the latest rules
    for framework in FRAMEWORKS:
        for rules in ("blind", "after"):
            group = rows(framework, after=rules == "after")
            counts = dict.fromkeys((*KINDS, WRONG), 0)
            faulty = [row for row in group if lost.get(row["name"], 0.0) > HARM]
            for row in faulty:
                kind, wrong = kind_of(row, judged.get(row["name"], []))
                counts[kind] += 1
                counts[WRONG] += wrong
                result = f"{kind}, {WRONG}" if wrong else kind
                results.setdefault(row["name"], []).append(result)
                latest[row["name"]] = heard(row)
            sound = [row for row in group if row["sound"]]
            alarms = [row for row in sound if any(item[1] >= 2 for item in row["findings"])]
            for row in alarms:
                results.setdefault(row["name"], []).append(f"alarm ({rules})")
                latest[row["name"]] = heard(row)
            cells = [len(faulty), *counts.values(), len(sound), len(alarms)]
            if group:
                lines.append(f"| {framework} | {rules} | {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "| script | blind, after | verdict | first causes (certainty) |",
        "|---|---|---|---|",
        *(f"| {name} | {'; '.join(results[name])} | {latest[name]} |" for name in results),
        "",
    ]
    (RESULTS / "listening.md").write_text("\n".join(lines))
    print("\n".join(lines))


def heard(row: dict[str, Any]) -> str:
    """Return two cells: the verdicts of a row, and its first causes."""
    causes = ", ".join(f"{item[0]} ({item[1]})" for item in row["findings"][:3])
    return f"{', '.join(dict.fromkeys(row['verdicts']))} | {causes or '-'}"


WRONG = "certain and wrong"
KINDS = ("first", "among", "symptom", "silent")


def kind_of(row: dict[str, Any], right: list[str]) -> tuple[str, bool]:
    """Return how a fault was reported, and if a wrong cause was certain before a right one."""
    causes = [cause for cause, certainty, *_ in row["findings"] if certainty >= 1]
    certain = [cause for cause, certainty, *_ in row["findings"] if certainty >= 3]
    wrong = bool(certain) and not set(certain) & set(right)
    if causes[:1] and causes[0] in right:
        return "first", wrong
    if set(causes) & set(right):
        return "among", wrong
    alarmed = any(item[1] >= 2 for item in row["findings"]) or row["error"]
    if alarmed or "no fault" in row["verdicts"]:
        return "symptom", wrong
    return "silent", wrong


if __name__ == "__main__":
    main()
