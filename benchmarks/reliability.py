"""What was tried against corral, what held and what did not: docs/reliability.md.

    OMP_NUM_THREADS=1 python benchmarks/reliability.py [--share 0.05] [--row TEXT] [--afresh]

A row is a promise, and the tests or the benchmark that try it. ``--share`` is of the tries of each:
parameters of tests are drawn, at least one of each test; benchmarks take the share themselves. Rows
are kept as they end: a repeated call at the same commit and share goes on. The exit code is 1 where
a row did not hold, or could not be tried.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import RESULTS, machine, script
from resume_kills import commit

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- rows: begin -->", "<!-- rows: end -->"
KEPT = RESULTS / "reliability.json"
TOLD = 5  # of what did not hold


@dataclass(frozen=True)
class Outcome:
    tries: int
    held: int
    not_held: tuple[str, ...] = ()


# --- What tries ----------------------------------------------------------------------------------


def tests(*selection: str) -> Callable[[float], Outcome]:
    """Try tests: a file, "file::test", or "file -k expression"."""

    @functools.cache
    def row(share: float) -> Outcome:
        found = [_run_tests(each, share) for each in selection]
        faults = tuple(fault for each in found for fault in each.not_held)
        return Outcome(sum(o.tries for o in found), sum(o.held for o in found), faults)

    return row


@functools.cache
def _run_tests(selection: str, share: float) -> Outcome:
    file, _, expression = selection.partition(" -k ")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "draw_tests", "--draw", f"{share:g}", f"--junitxml={report}"]
        command += [f"tests/{file}", "-k", expression]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command,
            cwd=HERE.parent,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        if not report.exists():
            return Outcome(0, 0, (f"{selection}: {done.stdout[-300:]}{done.stderr[-300:]}",))
        cases = list(ET.parse(report).iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    faults = tuple(
        str(case.get("name"))
        for case in ran
        if case.find("failure") is not None or case.find("error") is not None
    )
    if not ran:
        faults = (f"{selection}: no such test, or all were skipped",)
    return Outcome(len(ran), max(0, len(ran) - len(faults)), faults)


@functools.cache
def _script(name: str, *options: str) -> dict[str, Any] | str:
    """Run a benchmark; return its results, or why there are none."""
    place = script(name)
    if not place.exists():
        return f"{name}: there is no such benchmark"
    results, began = RESULTS / f"{name}.json", time.time()
    done = subprocess.run([sys.executable, str(place), *options], stdout=subprocess.DEVNULL)
    if not results.exists() or (done.returncode and results.stat().st_mtime < began):
        return f"{name} {' '.join(options)}: exit code {done.returncode}, no results"
    return dict(json.loads(results.read_text()))


def rows_of(name: str, *whats: str) -> Callable[[float], Outcome]:
    """Try by a benchmark whose results are ``rows``; ``whats`` are those that count, default: all.
    Each has "what", "tries", "held" and "not_held"."""

    def row(share: float) -> Outcome:
        found = _script(name, "--share", f"{share:g}")
        if isinstance(found, str):
            return Outcome(0, 0, (found,))
        rows = [each for each in found["rows"] if not whats or each["what"] in whats]
        faults = tuple(str(fault) for each in rows for fault in each["not_held"])
        if not rows:
            faults = (f"{name} has no row of {whats}",)
        return Outcome(sum(r["tries"] for r in rows), sum(r["held"] for r in rows), faults)

    return row


ATTACK_MINUTES = 10


def served(share: float) -> Outcome:
    """Attack a server: every attack is held, every right request answered rightly, memory stays
    within 50 MB."""
    found = _script("serving_attack", "--minutes", f"{ATTACK_MINUTES * share:g}")
    if isinstance(found, str):
        return Outcome(0, 0, (found,))
    counts = {f"attack, {kind}": outcomes for kind, outcomes in found["kinds"].items()}
    for when in ("before", "during", "after"):
        counts[f"right requests, {when}"] = found[when]["outcomes"]
    good = ("held", "closed", "right")
    wrong = {
        f"{count} x {what}: {outcome}": count
        for what, outcomes in counts.items()
        for outcome, count in outcomes.items()
        if not outcome.startswith(good)
    }
    if (grown := found["end_mb"] - found["start_mb"]) > 50:
        wrong[f"memory grew by {grown:.0f} MB"] = 1
    tries = 1 + sum(sum(outcomes.values()) for outcomes in counts.values())  # memory
    return Outcome(tries, tries - sum(wrong.values()), tuple(wrong))


def both(*parts: Callable[[float], Outcome]) -> Callable[[float], Outcome]:
    """Try several things for one row."""

    def row(share: float) -> Outcome:
        found = [part(share) for part in parts]
        faults = tuple(fault for each in found for fault in each.not_held)
        return Outcome(sum(o.tries for o in found), sum(o.held for o in found), faults)

    return row


SOAK_STEPS = 1_000_000
SOAK = """
import sys, psutil, corral
steps, process, seen = int(sys.argv[1]), psutil.Process(), []
with corral.session("dfaas_v0", steps=steps, num_envs=32, n_steps=64, out=sys.argv[2],
                    seed=1, progress=False) as session:
    for row in session:
        seen.append((row["env_steps"], process.memory_info().rss, process.num_fds()))
first = next(each for each in seen if each[0] >= 0.2 * steps)
print(seen[-1][1] / first[1] - 1, seen[-1][2] - first[2])
"""


def soak(share: float) -> Outcome:
    """Train for a million env steps: memory grows by 5 % at most from the first fifth on, and as
    many files are open."""
    with tempfile.TemporaryDirectory() as folder:
        given = [str(math.ceil(SOAK_STEPS * share)), f"{folder}/run"]
        done = subprocess.run([sys.executable, "-c", SOAK, *given], capture_output=True, text=True)
    if done.returncode:
        return Outcome(2, 0, (done.stderr[-300:],))
    growth, files = map(float, done.stdout.split())
    faults = [f"memory grew by {growth:.1%}"] * (growth > 0.05)
    faults += [f"{files:+g} open files"] * (files != 0)
    return Outcome(2, 2 - len(faults), tuple(faults))


# --- Rows ----------------------------------------------------------------------------------------

WORKERS = "adapters/zoo/test_workers.py"
FILES = "trainers/runs/test_nothing_runs.py"


@dataclass(frozen=True)
class Row:
    group: str
    what: str
    try_it: Callable[[float], Outcome]
    by: str  # which tests or benchmark, for the page


ELSEWHERE, FIGURES, ATTACKS = (
    "Faults seen in other libraries",
    "Figures to reach",
    "Attacks from outside",
)
RESUMES = rows_of("resume_kills")
KILLED = rows_of("checkpoint_trust", "SIGKILL while saving")
DAMAGED = rows_of("checkpoint_trust", "truncated files and flipped bits")
DISKS = rows_of("checkpoint_trust", "disk full, no permission, read-only, while saving")
HOSTILE = rows_of("checkpoint_trust", "hostile checkpoints")
WORKER_FAULTS = tests(f"{WORKERS}::test_a_worker_that_fails_is_named_in_time")
BAD_CSV = tests("data/test_read_faults.py::test_a_bad_file_is_refused_with_its_place")
TRACES = rows_of("hostile_traces")
ACTIONS = tests("envs/test_bad_actions.py")
RUNS = rows_of("hostile_runs")

ROWS = (
    Row(
        ELSEWHERE,
        "SIGKILL while saving: newest checkpoint or the one before",
        KILLED,
        "checkpoint_trust",
    ),
    Row(ELSEWHERE, "one flipped bit in a checkpoint is refused", DAMAGED, "checkpoint_trust"),
    Row(ELSEWHERE, "a resumed run equals one that never stopped", RESUMES, "resume_kills"),
    Row(
        ELSEWHERE,
        "a worker that is killed, raises or hangs is named in time; none is left",
        tests(
            f"{WORKERS}::test_a_worker_that_fails_is_named_in_time",
            f"{WORKERS}::test_no_worker_outlives_a_killed_parent",
            f"{WORKERS}::test_a_signal_to_the_group_ends_all",
            f"{WORKERS}::test_closing_does_not_wait_for_steps_without_end",
        ),
        f"tests/{WORKERS}",
    ),
    Row(
        ELSEWHERE,
        "copies have streams of their own, whatever the workers",
        tests(
            f"{WORKERS}::test_trajectories_do_not_depend_on_the_workers",
            f"{WORKERS}::test_64_copies_in_fresh_processes",
        ),
        f"tests/{WORKERS}",
    ),
    Row(
        ELSEWHERE,
        "a time limit is no end: V = 10 through every path",
        tests(
            "adapters/sb3/test_learning.py::test_values_go_on_after_the_time_limit",
            "adapters/sb3/test_features.py::test_values_go_on_after_the_time_limit_under_normalize",
            "trainers/on_policy/test_trainer.py"
            "::test_a_constant_reward_is_worth_the_same_whatever_the_time_limit",
        ),
        "tests of values",
    ),
    Row(
        ELSEWHERE,
        "a bad CSV is refused with line and column",
        BAD_CSV,
        "tests/data/test_read_faults.py",
    ),
    Row(ELSEWHERE, "gzip bombs and other hostile traces", TRACES, "hostile_traces"),
    Row(
        ELSEWHERE,
        "checks hold under python -O",
        tests("envs/test_bad_actions.py::test_the_same_without_asserts"),
        "tests/envs/test_bad_actions.py",
    ),
    Row(ELSEWHERE, "loading a hostile checkpoint runs nothing", HOSTILE, "checkpoint_trust"),
    Row(FIGURES, "resumes after kills at random and at file calls", RESUMES, "resume_kills"),
    Row(FIGURES, "SIGKILL while saving, 200", KILLED, "checkpoint_trust"),
    Row(
        FIGURES,
        "300 truncations and 300 bit flips of each kind of file",
        DAMAGED,
        "checkpoint_trust",
    ),
    Row(
        FIGURES,
        "disk full, no permission, read-only: loud, the one before intact",
        DISKS,
        "checkpoint_trust",
    ),
    Row(FIGURES, "hostile checkpoints", HOSTILE, "checkpoint_trust"),
    Row(
        FIGURES, "bad CSVs and bombs", both(BAD_CSV, TRACES), "test_read_faults.py, hostile_traces"
    ),
    Row(
        FIGURES,
        "bad actions in AEC, parallel and batch, also under -O",
        ACTIONS,
        "tests/envs/test_bad_actions.py",
    ),
    Row(
        FIGURES,
        "masks: two times 1,000,000 samples, none illegal",
        tests(
            "envs/test_masks.py::test_a_million_draws_and_none_illegal",
            "envs/test_batch_states.py -k million or illegal",
        ),
        "tests/envs/test_masks.py, test_batch_states.py",
    ),
    Row(
        FIGURES,
        "worker exception, kill, hang, exit at every position",
        WORKER_FAULTS,
        f"tests/{WORKERS}",
    ),
    Row(FIGURES, "SIGINT and SIGTERM under load, within 10 s", rows_of("interrupts"), "interrupts"),
    Row(
        FIGURES,
        "workers 0, 1, 2, 4 with 64 copies in fresh processes",
        tests(f"{WORKERS}::test_64_copies_in_fresh_processes"),
        f"tests/{WORKERS}",
    ),
    Row(
        FIGURES,
        "planted faults of environments are found by the checker",
        tests(
            "envs/conformance/test_conformance.py"
            "::test_a_planted_fault_is_found_under_its_name_and_nothing_else_is"
        ),
        "tests/envs/conformance",
    ),
    Row(
        FIGURES,
        "NaN in observation, reward, logit, gradient, weight stops before saving",
        tests(
            "trainers/on_policy/test_updates.py -k finite",
            "trainers/test_driver_mistakes.py -k finite",
            "trainers/sb3/test_dqn.py -k finite",
        ),
        "tests/trainers -k finite",
    ),
    Row(FIGURES, "1,000,000 env steps of training: memory and open files", soak, "soak"),
    Row(
        ATTACKS,
        "no text of a file is imported or run",
        both(tests(FILES), RUNS),
        f"tests/{FILES}, hostile_runs",
    ),
    Row(
        ATTACKS,
        "no link in a folder is followed",
        both(
            tests(
                "trainers/callbacks/test_sinks.py -k link",
                "_corral/lab/tuning/test_damage.py -k link",
            ),
            rows_of("hostile_runs", "links in the folder of a run"),
        ),
        "tests -k link, hostile_runs",
    ),
    Row(ATTACKS, "a server stays small and answers under attack", served, "serving_attack"),
    Row(
        ATTACKS,
        "exports: changed files are refused",
        tests("loads/export/test_damage.py"),
        "tests/loads/export/test_damage.py",
    ),
    Row(
        ATTACKS, "pipes, sparse files and bombs", both(RUNS, TRACES), "hostile_runs, hostile_traces"
    ),
    Row(
        ATTACKS,
        "absurd sizes end plain before memory is taken",
        tests("trainers/test_sizes.py"),
        "tests/trainers/test_sizes.py",
    ),
    Row(
        ATTACKS,
        "one order of columns wherever a run was resumed",
        both(tests("trainers/callbacks/test_sinks.py -k order or columns"), RESUMES),
        "tests/trainers/callbacks/test_sinks.py, resume_kills",
    ),
    Row(
        ATTACKS,
        "hosts, origins, bodies, connections and times of a server are limited",
        both(tests("loads/serve/test_connections.py", "loads/serve/test_app.py"), served),
        "tests/loads/serve, serving_attack",
    ),
    Row(
        ATTACKS,
        "a state carries its team's digest and is range-checked",
        tests("loads/export/test_states.py", "loads/serve/test_memory.py"),
        "tests/loads/export/test_states.py",
    ),
    Row(
        ATTACKS,
        "edited files, full disks and signals end plain",
        both(
            tests(
                "loads/from_rule/test_edited_files.py",
                "_corral/lab/tuning/test_damage.py",
                "loads/serve/test_advised.py -k damaged or edited",
                "trainers/test_interrupts.py",
            ),
            rows_of("interrupts"),
        ),
        "tests of edited files, interrupts",
    ),
)


# --- The page ------------------------------------------------------------------------------------


def page(kept: dict[str, dict[str, Any]]) -> str:
    """Return the tables of all rows; those that were not tried say so."""
    lines = []
    for group in dict.fromkeys(row.group for row in ROWS):
        lines += ["", f"### {group}", ""]
        lines += ["| | tries | held | not held | tried by | share, date, commit |"]
        lines += ["|---|--:|--:|---|---|---|"]
        for row in ROWS:
            if row.group != group:
                continue
            if (one := kept.get(row.what)) is None:
                lines.append(f"| {row.what} | 0 | 0 | not tried yet | {row.by} | |")
                continue
            faults = [fault.replace("|", "/").replace("\n", " ") for fault in one["not_held"]]
            more = f", and {len(faults) - TOLD} more" * (len(faults) > TOLD)
            wrong = "; ".join(faults[:TOLD]) + more or "-"
            stamp = f"{one['share']:g}, {one['date']}, {one['commit']}"
            cells = [row.what, one["tries"], one["held"], wrong, row.by, stamp]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines).strip()


def write(kept: dict[str, dict[str, Any]]) -> None:
    KEPT.write_text(json.dumps({"about": machine("torch"), "rows": kept}, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{page(kept)}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the tries of each row")
    parser.add_argument("--row", action="append", help="rows whose name holds this text")
    parser.add_argument("--afresh", action="store_true", help="try all rows again")
    given = parser.parse_args()
    kept = json.loads(KEPT.read_text())["rows"] if KEPT.exists() else {}
    kept = {row.what: kept[row.what] for row in ROWS if row.what in kept}
    stamp = {"share": given.share, "commit": commit()}
    chosen = [r for r in ROWS if not given.row or any(text in r.what for text in given.row)]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for row in chosen:
        if not given.afresh and stamp.items() <= kept.get(row.what, {}).items():
            continue
        began = time.monotonic()
        outcome = asdict(row.try_it(given.share))
        seconds = round(time.monotonic() - began, 1)
        kept[row.what] = {**outcome, **stamp, "date": machine()["date"], "seconds": seconds}
        print(f"{row.what}: {outcome['held']} of {outcome['tries']}, {seconds} s", flush=True)
        for fault in outcome["not_held"]:
            print(f"  NOT HELD: {fault}", flush=True)
        write(kept)
    return any(kept[row.what]["not_held"] or not kept[row.what]["tries"] for row in chosen)


if __name__ == "__main__":
    sys.exit(main())
