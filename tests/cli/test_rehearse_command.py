"""The command ``corral rehearse``: its screen, its files, its defaults, and mistakes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import corral
from corral.data import Trace, write_trace
from corral.loads.rehearsal.balancers import DEFAULT
from corral.loads.rehearsal.from_advice import defaults_of
from support.command import ENVIRONMENT, run, within
from support.loads import days
from support.messages import shown

FILES = {"report.html", "rehearsal.json", "rehearsal.csv"}
POLICIES = "local,backlog=0.75/least,choices=3"


def written(load: Trace, path: Path) -> Path:
    write_trace(load, path)
    return path


@pytest.fixture
def load(tmp_path: Path) -> Path:
    return written(days(8), tmp_path / "loads.csv")


def kept(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "rehearsal.json").read_text())
    return values


def test_the_screen_has_the_figures_of_the_library(load: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = ("--queue", "8", "--forward-cost", "0.2", "--no-second-offer", "--latency", "60")
    printed = within("rehearse", load, "--policies", POLICIES, *settings, "--out", out)
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert {path.name for path in out.iterdir()} == FILES
    result = corral.rehearse(
        load,
        POLICIES.split(","),
        queue=8,
        forward_cost=0.2,
        second_offer=False,
        latency=60.0,
    )
    assert kept(out)["policies"] == result.to_json()["policies"]
    shown(printed, *POLICIES.split(","), "--queue 8", "--no-second-offer", "8 days")
    for summary in result.summaries:
        shown(printed, f"{100 * summary.lost_share:.2f}")


def test_options_become_settings(load: Path, tmp_path: Path) -> None:
    options = {
        "servers": 2,
        "places": 5,
        "latency": 30.0,
        "deadline": 120.0,
        "report-period": 60.0,
        "report-age": 20.0,
        "work": "exponential",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    more = ("--rows", ":96", "--days", "2", "--times", "poisson", "--seed", "3", "--capacity", "9")
    within("rehearse", load, "--policies", "room,local", *words, *more, "--out", tmp_path / "a")
    values = kept(tmp_path / "a")
    for name, value in options.items():
        assert values["setting"][name.replace("-", "_")] == value
    assert values["trace"]["rows"] == [0, 96]
    assert (len(values["windows"]), values["times"], values["seed"]) == (2, "poisson", 3)
    assert values["settings"]["capacity"] == 9
    assert values["baseline"] == "room"


def test_local_play_a_plan_and_the_balancers_are_the_default(load: Path, tmp_path: Path) -> None:
    short = ("rehearse", load, "--rows", ":24")
    within(*short, "--queue", "4", "--out", tmp_path / "a")
    with_plan = [row["policy"] for row in kept(tmp_path / "a")["policies"]]
    within(*short, "--no-parts", "--out", tmp_path / "b")
    without = [row["policy"] for row in kept(tmp_path / "b")["policies"]]
    assert len(without) == 1 + len(DEFAULT)
    assert set(with_plan) == {*without, "backlog=0.75/least"}
    assert kept(tmp_path / "b")["baseline"] == "local"
    within(*short, "--queue", "4", "--service", "step", "--out", tmp_path / "c")
    by_step = [row["policy"] for row in kept(tmp_path / "c")["policies"]]
    assert set(by_step) == {"local/equal", "backlog=0.75/least"}


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a load and the advice for it."""
    folder = tmp_path_factory.mktemp("advised")
    path = written(days(8), folder / "loads.csv")
    settings: dict[str, Any] = {"queue": 8, "forward_cost": 0.25, "link_limit": 5}
    corral.advise(path, train=False, rehearse=False, out=folder / "advice", **settings)
    return folder


def test_an_advice_has_the_defaults(advised: Path, tmp_path: Path) -> None:
    load, advice, out = advised / "loads.csv", advised / "advice", tmp_path / "out"
    chosen = json.loads((advice / "advice.json").read_text())
    within("rehearse", load, advice, "--no-parts", "--days", "1", "--out", out)
    values = kept(out)
    rule, (_, cut) = chosen["rule"]["rule"], chosen["fitted"]["rows"]
    assert values["baseline"] == "local"  # the rule of today
    assert {row["policy"] for row in values["policies"]} == {"local", rule, *default_labels()}
    assert values["trace"]["rows"] == [cut, len(days(8))]
    assert values["settings"]["queue"] == 8
    assert values["settings"]["forward_cost"] == 0.25
    words = ("--policies", f"local,{advice}", "--queue", "2", "--rows", ":24", "--no-parts")
    within("rehearse", load, *words, "--out", tmp_path / "more")
    values = kept(tmp_path / "more")
    assert [values["settings"][key] for key in ("queue", "link_limit")] == [2, 5]
    assert values["trace"]["rows"] == [0, 24]
    assert len(values["policies"]) == 2


def test_a_recommended_balancer_is_a_default(advised: Path, tmp_path: Path) -> None:
    values = json.loads((advised / "advice" / "advice.json").read_text())
    values |= {"run": "balancer", "balancer": {"name": "room"}}
    (tmp_path / "advice.json").write_text(json.dumps(values))
    assert defaults_of(tmp_path).policies() == ["local", str(tmp_path), "room"]
    assert defaults_of(advised / "advice").policies() == ["local", str(advised / "advice")]


def default_labels() -> set[str]:
    from corral.loads.rehearsal.balancers import balancer_of

    return {str(balancer_of(name)) for name in DEFAULT}


def test_an_advice_for_another_load_selects_no_rows(advised: Path, tmp_path: Path) -> None:
    other = written(days(3, seed=5), tmp_path / "other.csv")
    words = ("--policies", "local", "--out", tmp_path / "out")
    printed = within("rehearse", other, advised / "advice", *words)
    assert kept(tmp_path / "out")["trace"]["rows"] == [0, 72]
    shown(printed, advised / "advice")


def test_a_damaged_advice_is_named(advised: Path, tmp_path: Path, load: Path) -> None:
    damaged = tmp_path / "advice"
    damaged.mkdir()
    values = json.loads((advised / "advice" / "advice.json").read_text())
    for key, value in (("rows", [0, "x"]), ("rows", 3)):
        (damaged / "advice.json").write_text(json.dumps({**values, "fitted": {key: value}}))
        shown(
            within("rehearse", load, damaged, "--out", tmp_path / "out", code=2),
            damaged / "advice.json",
            "fitted",
        )
    shown(within("rehearse", load, tmp_path / "nowhere", code=2), tmp_path / "nowhere")


@pytest.mark.slow
def test_the_settings_of_a_run_are_the_defaults(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    path = written(days(4), tmp_path / "loads.csv")
    team = corral.train(
        "dfaas_v0",
        steps=256,
        num_envs=4,
        n_steps=16,
        env_kwargs={"trace": str(path), "queue": 6, "arrivals": "unknown", "forward_cost": 0.5},
        out=tmp_path / "team",
    )
    words = ("rehearse", path, "--policies", f"local,{team.folder}", "--no-parts")
    printed = within(*words, "--forward-cost", "0.25", "--out", tmp_path / "out")
    settings = kept(tmp_path / "out")["settings"]
    assert (settings["queue"], settings["forward_cost"]) == (6, 0.25)
    shown(printed, "mappo", "held out")  # it trained on some of these rows


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--policies", "lokal"], ["'lokal'", "'local'"]),
        (["--policies", ","], ["--policies"]),
        (["--policies", "choices=1"], ["choices=1", 2]),
        (["--policies", "nowhere.py:make"], ["nowhere.py"]),
        (["--policies", "local,room,local/equal,local/equal"], []),
        (["--days", "9"], ["--days 9", 8]),
        (["--days", "0"], ["--days 0"]),
        (["--rows", "0:999"], [999]),
        (["--rows", "0:9", "--split", "0.5"], ["--rows", "--split"]),
        (["--service", "fast"], ["--service", "'fast'", "rate"]),
        (["--service", "step", "--policies", "room"], ["room", "--service"]),
        (["--servers", "0"], ["--servers", 0]),
        (["--latency", "-1"], ["--latency", "-1"]),
        (["--report-age", "5"], ["--report-age 5", "--report-period"]),
        (["--arrivals", "known", "--policies", "local"], ["--arrivals", "--service"]),
        (["--jobs", "0", "--policies", "local"], ["--jobs", 0]),
        (["--model", "a.py:make", "--policies", "local"], ["--model"]),
        (["--times", "sometimes"], ["--times"]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_mistakes_end_in_one_message(
    words: list[str], values: list[object], load: Path, tmp_path: Path
) -> None:
    if not values:
        within("rehearse", load, *words, "--rows", ":24", "--out", tmp_path / "out")
        assert len(kept(tmp_path / "out")["policies"]) == 3  # each policy once
        return
    printed = within("rehearse", load, *words, "--out", tmp_path / "out", code=2)
    shown(printed, *values)
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    printed = within("rehearse", tmp_path / "nowhere.csv", "--out", tmp_path / "out", code=2)
    shown(printed, "nowhere.csv")


def test_a_custom_policy_that_fails_is_named(load: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Lost:\n    def choose(self, request):\n        return 'nowhere'\n"
    )
    words = ("--policies", f"local,{tmp_path}/own.py:Lost", "--out", tmp_path / "out")
    printed = within("rehearse", load, *words, code=2)
    shown(printed, "own.py:Lost", "'nowhere'", "site-0")
    assert not (tmp_path / "out").exists()


def test_an_existing_report_is_kept(load: Path, tmp_path: Path) -> None:
    words = ("rehearse", load, "--policies", "local", "--rows", ":24", "--out", tmp_path / "out")
    within(*words)
    before = (tmp_path / "out" / "rehearsal.json").read_bytes()
    shown(within(*words, "--seed", "4", code=2), "report.html", "--overwrite")
    assert (tmp_path / "out" / "rehearsal.json").read_bytes() == before
    within(*words, "--seed", "4", "--overwrite")
    assert kept(tmp_path / "out")["seed"] == 4
    shown(within("rehearse", load, "--out", load, code=2), "--out", load)


@pytest.mark.parametrize("left", range(3))
def test_a_full_disk_leaves_nothing_half_written(
    left: int, load: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("rehearse", load, "--policies", "local", "--rows", ":24", "--out", tmp_path / "out")
    fsync, files = os.fsync, [None] * left

    def limited(handle: int) -> None:
        if not files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        files.pop()
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", limited)
        shown(within(*words, code=2), os.strerror(errno.ENOSPC), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} <= FILES  # no partial file
    for path in (tmp_path / "out").iterdir():
        assert path.read_text().rstrip()[-1] in "}0123456789>"
    within(*words, "--overwrite")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupt_ends_a_rehearsal_cleanly(jobs: int, tmp_path: Path) -> None:
    program = (
        "import functools\n"
        "import corral.cli\n"
        "from corral.loads.rehearsal import driver\n"
        "rehearse = driver.rehearse\n"
        "@functools.wraps(rehearse)\n"
        "def begun(*values, **named):\n"
        "    print('ready', flush=True)\n"  # the command has begun, however slow the machine is
        "    return rehearse(*values, **named)\n"
        "if __name__ == '__main__':\n"
        "    driver.rehearse = begun\n"
        "    corral.cli.main()\n"
    )
    (tmp_path / "program.py").write_text(program)
    words = ["edge8", "--policies", "prequal,room,choices", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "program.py", "rehearse", *words, "--out", "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0 + 4.0 * (jobs > 1))  # of a rehearsal that takes many times as long
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal, to all processes
    output = "".join(process.communicate(timeout=300))
    assert process.returncode == 130
    assert "Traceback" not in output
    shown(output, "corral:")
    assert len(output.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert has_ended(process.pid)


def has_ended(group: int) -> bool:
    """Return whether all processes of a group end within a minute."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_the_command_is_listed_and_explains_itself() -> None:
    assert "rehearse" in within("--help")
    shown(within("rehearse", code=2), "corral rehearse edge3")
    shown(within("rehearse", "dfaas_v0", code=2), "dfaas_v0", "corral rehearse edge3")


@pytest.mark.slow
def test_processes_print_the_same(load: Path, tmp_path: Path) -> None:
    words = ("rehearse", load, "--policies", POLICIES, "--queue", "4")
    one = run(*words, "--out", "out", folder=tmp_path)
    two = run(*words, "--jobs", "2", "--out", "out", "--overwrite", folder=tmp_path)
    assert one == two
