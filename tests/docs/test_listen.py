"""The blocks of docs/it_does_not_learn.md that listen to a training run, and hear what it shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from support import forked
from support.listening import PAGE, block
from support.messages import shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["listen_sb3.py", "listen_corral.py"])
def test_a_sound_training_has_no_fault(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stderr
    shown(done.stdout, "Measurements")
    assert findings(done.stdout) == []


@pytest.mark.slow
def test_the_loop_hears_its_fault(tmp_path: Path) -> None:
    done = run("listen_loop.py", tmp_path)
    assert done.returncode == 0, done.stderr
    screen = re.search(r"<!-- heard -->\n```\n(.*?)```", PAGE, flags=re.DOTALL)
    assert screen is not None
    assert findings(done.stdout) == findings(screen[1])
    assert len(findings(screen[1])) == 2


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block from a file, as a user does."""
    (folder / name).write_text(block(name))
    return forked.run(["-c", f"import runpy; runpy.run_path({name!r})"], folder=folder, timeout=600)


def findings(text: str) -> list[str]:
    """The parts of the findings, without numbers that depend on the machine."""
    parts = re.split(r"\n(?=\d\. )", text.partition("\nMeasurements")[0])[1:]
    return [" ".join(re.sub(r"\d[\d.]*", "#", part).split()) for part in parts]
