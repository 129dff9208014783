"""The command line: what it prints at 80 columns, what it writes, how it fails."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import corral
from corral.envs.dfaas_v0 import DfaasRules
from support.command import ENVIRONMENT, run
from support.messages import shown


def test_version_and_help() -> None:
    assert run("--version").strip() == f"corral {corral.__version__}"
    help_text = run("--help")
    for command in ("envs", "trace", "replay"):
        assert command in help_text


def test_envs_lists_and_explains() -> None:
    assert "dfaas_v0" in run("envs")
    manual = run("envs", "dfaas_v0")
    assert max(map(len, manual.splitlines())) <= 80
    for name, parameter in inspect.signature(DfaasRules).parameters.items():
        rows = manual.partition("argument  ")[2].splitlines()
        row = next(line for line in rows if line.startswith(f"  {name} "))
        assert repr(parameter.default) in row
        assert len(row.split()) > 3  # its meaning is not left out
    shown(run("envs", "dfaas_v1", code=2), "'dfaas_v1'", "'dfaas_v0'")


def test_replay_prints_a_table_of_80_columns_and_writes_its_files(tmp_path: Path) -> None:
    policies = "local,overflow/equal,patient-margin/spare"
    printed = run(
        "replay", "edge3", "--policies", policies, "--split", "0.9", "--out", tmp_path / "out"
    )
    table = [line for line in printed.splitlines() if "Report:" not in line]
    assert max(len(line) for line in table) <= 80
    for policy in ("local", "overflow/equal", "patient-margin/spare", "optimum"):
        assert policy in printed
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["trace_rows"] == [3628, 4032]
    assert (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "results.csv").exists()


def test_replay_says_why_the_costliest_steps_of_a_day_cost_what_they_did(tmp_path: Path) -> None:
    replay = ("replay", "edge3", "--policies", "local,overflow", "--rows", "0:576")
    told = run(*replay, "--optimum-windows", "0", "--post-mortem", "worst", "--out", tmp_path / "a")
    after = told.partition("Report: ")[2].splitlines()[1:]
    assert max(map(len, after)) <= 80
    assert any("mortem" in line and "overflow" in line for line in after)  # the best of the two
    assert any("unavoidable" in line for line in after)
    said = run(*replay, "--post-mortem", "2026-02-01", "--out", tmp_path / "b", code=2)
    shown(" ".join(said.split()), "2026-02-01", 0, 1, "2026-01-05", "2026-01-06")
    assert (tmp_path / "b" / "report.html").exists()  # nothing is lost


def test_replay_takes_the_settings_of_the_environment(tmp_path: Path) -> None:
    settings = ["--no-second-offer", "--forward-cost", "0.2", "--queue", "5", "--link-limit", "9"]
    printed = run(
        *("replay", "edge3", "--policies", "overflow/shortest", "--rows", "0:300"),
        *(*settings, "--capacity", "1.25x", "--optimum-windows", "0", "--out", tmp_path),
    )
    assert "…" not in printed  # nothing is cut
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["settings"] == {
        "capacity": "1.25x",
        "queue": 5,
        "forward_cost": 0.2,
        "link_limit": 9,
        "second_offer": False,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "edge4"], "edge3"),
        (["replay", "nowhere.csv"], "nowhere.csv"),
        (["replay", "edge3", "--policies", "overflaw"], "did you mean 'overflow'"),
        (["replay", "edge3", "--policies", ","], "--policies"),
        (["replay", "edge3", "--window", "0"], "--window 0: pass 1 step or more"),
        (["replay", "edge3", "--queue", "-1"], "--queue -1: give a whole number, 0 or more"),
        (["replay", "edge3", "--rows", "5"], "LOW:HIGH"),
        (["replay", "edge3", "--rows", "5:9000"], "--rows (5, 9000): give (low, high)"),
        (["replay", "edge3", "--capacity", "12.5"], "12.5"),
        (["replay", "edge3", "--rows", "0:9", "--split", "0.5"], "not both"),
        (["replay", "edge3", "--split", "1.5"], "below 1"),
        (["replay", "edge3", "--capacity", "lots"], "1.25x"),
    ],
)
def test_mistakes_end_in_one_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in run(*arguments, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_a_capacity_of_nought_is_not_left_out(tmp_path: Path) -> None:
    """It was: 0 counted as "not given", and the file's own capacity was played."""
    run("replay", "edge3", "--policies", "local", "--rows", ":300", "--capacity", "0",
        "--out", tmp_path)  # fmt: skip
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["settings"] == {"capacity": 0}
    assert kept["trace_rows"] == [0, 300]
    assert kept["rows"][0]["served"] == 0.0


def test_policies_are_played_once_each(tmp_path: Path) -> None:
    names = "local, overflow,overflow/equal,local/equal,"
    run("replay", "edge3", "--policies", names, "--rows", "0:300", "--out", tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert [row["policy"] for row in kept["rows"]] == ["overflow", "local", "optimum"]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_no_number_is_cut_however_narrow_the_terminal(tmp_path: Path, columns: str) -> None:
    printed = run(
        *("replay", "edge3", "--policies", "local", "--queue", "100000", "--wait-cost", "0.5"),
        *("--capacity", "1", "--optimum-windows", "0", "--out", tmp_path),
        columns=columns,
    )
    assert "…" not in printed
    kept = json.loads((tmp_path / "results.json").read_text())["rows"][0]
    assert f"{100 * kept['cost']:.2f}" in printed


def test_out_is_checked_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("")
    printed = run("replay", "edge8", "--out", file, code=2)
    assert printed.startswith(f"corral: --out {file} is a file")


def test_a_report_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("time,node,arrivals,capacity\n0,a,3,9\n0,b,1,4\n")
    words = ("replay", "loads.csv", "--policies", "overflow")
    for name in ("results.json", "report.html", "results.csv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("mine")
        printed = run(*words, "--out", name, folder=tmp_path, code=2)
        shown(printed, f"{name}/{name}", "--overwrite")
        assert [path.read_text() for path in (tmp_path / name).iterdir()] == ["mine"]
    run(*words, "--out", "report.html", "--overwrite", folder=tmp_path)
    assert (tmp_path / "report.html" / "report.html").read_text() != "mine"
    for place in ("runs/replay", "runs/replay-2", "runs/replay-3"):  # each has one of its own
        assert f"Report: {place}/report.html" in run(*words, folder=tmp_path)


def test_references_forward_to_the_request_whatever_the_load(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("time,node,arrivals,capacity\n0,a,334,9\n0,b,1,400\n")
    words = ("replay", "loads.csv", "--policies", "overflow", "--out", "o")
    printed = " ".join(run(*words, folder=tmp_path).split())
    assert "units" not in printed
    shown(printed, "overflow 100.00 0.00")  # 325 of 334, which no unit of 4 makes
    assert "bound" not in printed  # it is reached
    shown(run(*words, "--max-level", "400", folder=tmp_path, code=2), "'--max-level'")


def test_a_bound_on_links_makes_the_optimum_a_bound(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("time,node,arrivals,capacity\n0,a,334,9\n0,b,1,400\n")
    words = ("replay", "loads.csv", "--policies", "overflow", "--out", "o", "--no-second-offer")
    printed = " ".join(run(*words, folder=tmp_path).split())
    shown(printed, "bound")


def test_an_interrupt_ends_a_replay_cleanly(tmp_path: Path) -> None:
    program = (
        "import corral.cli, corral.loads.report\n"
        "print('ready', flush=True)\n"  # what comes now is the command itself, not its imports
        "corral.cli.main()\n"
    )
    hard = ["--queue", "9", "--link-limit", "9", "--optimum-windows", "14"]
    arguments = ["replay", "edge8", *hard, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # of a replay that takes many times as long
    process.send_signal(signal.SIGINT)
    output = "".join(process.communicate(timeout=300))
    assert process.returncode == 130
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()  # nothing half written
