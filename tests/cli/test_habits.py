"""What users expect of any command: -V, --quiet, shell completion, and progress in a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import corral
import corral.progress
from corral.progress import LogLines, is_quiet, progress_to, report_progress
from support.command import ENVIRONMENT, run, within
from support.messages import shown

TRAIN = (
    "train",
    "rps_v0",
    "--trainer",
    "pg",
    "--steps",
    "256",
    "--num-envs",
    "4",
    "--n-steps",
    "32",
)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(option: str) -> None:
    assert within(option).split() == ["corral", corral.__version__]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("corral tr", {"train", "trainers", "trace"}),
        ("corral train --st", {"--steps", "--stretch", "--stop"}),
        ("corral duel --epi", {"--episodes"}),  # an option of the library's function
        ("corral trace sh", {"show"}),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, offered: set[str]) -> None:
    code = "import sys\nfrom corral_command import main\nsys.argv = ['corral']\nmain()\n"
    env = ENVIRONMENT | {
        "_CORRAL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root
    )
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize("quiet", [["--quiet"], ["-q"], []])
def test_quiet_prints_results_only(quiet: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    out = tmp_path / "run"
    output = run(*TRAIN, "--out", out, *quiet)
    progress = [line for line in output.splitlines() if line[0].isdigit() and "/s, " in line]
    assert len(progress) == (0 if quiet else 2), output
    notes = [line for line in output.splitlines() if line.startswith("corral: ")]
    assert len(notes) == (1 if quiet else 2), output  # a problem; the setup
    assert shown(output, str(out))


def test_quiet_ends_with_the_command() -> None:
    within("--quiet", "envs")
    assert not is_quiet()


def test_a_log_gets_a_line_with_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(corral.progress, "INTERVAL_S", 30.0)
    monkeypatch.setattr(corral.progress.time, "monotonic", lambda: clock[0])
    lines: list[str] = []
    with progress_to(LogLines(lines.append)):
        for second in range(100):
            clock[0] = float(second)
            report_progress("fit", second, 200)
    assert lines == [
        "fit: 30 of 200, about 170 s left",
        "fit: 60 of 200, about 140 s left",
        "fit: 90 of 200, about 110 s left",
    ]


def test_a_log_has_no_remaining_time_of_a_task_that_has_just_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(corral.progress, "INTERVAL_S", 30.0)
    monkeypatch.setattr(corral.progress.time, "monotonic", lambda: clock[0])
    lines: list[str] = []
    report = LogLines(lines.append)
    for done in (0, 200, 555):  # the same file was read before
        report("reading", done, 555)
    clock[0] = 100.0
    for done in (28, 500):
        report("reading", done, 555)
    assert lines == ["reading: 500 of 555"]
    clock[0] = 131.0
    report("reading", 510, 555)
    assert lines[1:] == ["reading: 510 of 555, about 3 s left"]  # 45 at the pace of 482 in 31 s


def test_a_log_gets_lines_during_many_short_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(corral.progress, "INTERVAL_S", 30.0)
    monkeypatch.setattr(corral.progress.time, "monotonic", lambda: clock[0])
    lines: list[str] = []
    report = LogLines(lines.append)
    for player in range(6):
        for done in range(0, 65, 8):  # 28 s
            report(f"player {player}", done, 64)
            clock[0] += 28 / 9
    assert [line.split(":")[0] for line in lines] == [f"player {player}" for player in range(1, 6)]


def test_a_log_of_training_gets_lines_between_the_tenths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from corral.trainers.runs import log

    clock = [0.0]
    monkeypatch.setattr(log, "INTERVAL_S", 30.0)
    monkeypatch.setattr(corral.progress.time, "monotonic", lambda: clock[0])
    bar = log.Bar(100_000, visible=True)
    for second in range(0, 100, 10):
        clock[0] = float(second)
        bar.show({"env_steps": 100 + second, "env_steps_per_s": 1.0}, "return 1")
    printed = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in printed] == ["130", "160", "190"]
    assert shown(printed[0], "99,870 s left")
