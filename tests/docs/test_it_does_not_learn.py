"""The example of docs/it_does_not_learn.md is what ``corral doctor`` prints, but for numbers."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from support import forked

PAGE = (Path(__file__).parents[2] / "docs" / "it_does_not_learn.md").read_text(encoding="utf-8")


def corral(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return forked.run(["-m", *words], folder=folder, timeout=300)


def first_finding(text: str) -> str:
    """The verdict and what was found first, in one line and without numbers."""
    part = re.split(r"\n2\. |\nMeasurements", text)[0].partition("   effect")[0]
    return " ".join(re.sub(r"\d[\d.,]*(e-\d+)?", "#", part).split())


def measured(text: str) -> list[str]:
    """The rows of the table of numbers, by their names."""
    table = text.partition("\nMeasurements")[2].partition("\nReturn of")[0]
    return [re.split(r"\s{2,}", line.strip())[0] for line in table.splitlines()[1:]]


@pytest.mark.slow
def test_the_example_is_what_is_printed(tmp_path: Path) -> None:
    shown = re.search(r"<!-- doctor -->\n```\n\$ (.*?)\n(.*?)```", PAGE, flags=re.DOTALL)
    code = re.search(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL)
    train = re.search(r"^\$ (corral train .* runs/faulty)$", PAGE, flags=re.MULTILINE)
    assert shown is not None
    assert code is not None
    assert train is not None
    (tmp_path / code[1]).write_text(code[2])
    done = corral(shlex.split(train[1]), tmp_path)
    assert done.returncode == 0, done.stderr
    done = corral([*shlex.split(shown[1]), "--no-clone"], tmp_path)
    assert done.returncode == 1, done.stderr
    assert first_finding(done.stdout) == first_finding(shown[2])
    assert "certain" in first_finding(shown[2])
    assert measured(done.stdout) == measured(shown[2])
    assert len(measured(shown[2])) == 7
    assert "true returns" in done.stdout
    assert "true returns" in shown[2]


def test_every_command_of_the_page_has_the_options_that_it_names() -> None:
    named = set(re.findall(r"`corral doctor [^`]*?(--[a-z-]+)", PAGE))
    named |= set(re.findall(r"`(--[a-z-]+)`", PAGE))
    told = corral(["corral", "doctor", "--help"], Path.cwd()).stdout
    assert len(named) >= 6
    assert [option for option in sorted(named) if option not in told] == []
