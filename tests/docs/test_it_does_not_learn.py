"""The example of docs/it_does_not_learn.md is what ``corral doctor`` prints, but for numbers."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from support import forked

PAGE = (Path(__file__).parents[2] / "docs" / "it_does_not_learn.md").read_text(encoding="utf-8")


def corral(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return forked.run(["-m", *words], folder=folder, timeout=1500)


def first_finding(text: str) -> str:
    """The verdict and what was found first, in one line and without numbers."""
    first = text.partition("\n1. ")[2]
    part = text.partition("\n\n")[0]
    part += re.split(r"\n2\. |\nMeasurements", first)[0].partition("   effect")[0]
    return " ".join(re.sub(r"\d[\d.,]*(e-\d+)?", "#", part).split())


def measured(text: str) -> list[str]:
    """The rows of the table of numbers, by their names."""
    lines = text.partition("\nMeasurements")[2].splitlines()[1:]
    rows = itertools.takewhile(lambda line: line.startswith("  "), lines)
    return [re.split(r"\s{2,}", line.strip())[0] for line in rows]


@pytest.mark.slow
def test_the_example_is_what_is_printed(tmp_path: Path) -> None:
    shown = re.search(r"<!-- doctor -->\n```\n\$ (.*?)\n(.*?)```", PAGE, flags=re.DOTALL)
    code = re.search(r"```python\n# (my_faulty\.py)\n(.*?)```", PAGE, flags=re.DOTALL)
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


def forwarding(folder: Path) -> Path:
    """The file of the class whose counter is never reset."""
    code = re.search(r"```python\n# (forwarding\.py)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert code is not None
    (folder / code[1]).write_text(code[2])
    return folder / code[1]


def test_the_class_forgets_to_reset_its_counter(tmp_path: Path) -> None:
    from corral.envs import check_env
    from corral.named import named_object

    made = named_object(f"{forwarding(tmp_path)}:Forwarding", "environment")
    module = sys.modules[made.__module__]
    module.LENGTH = 30  # type: ignore[attr-defined]
    result = check_env(made, seeds=(0, 1), processes=False)
    assert {finding.check for finding in result.errors} == {"reset"}


@pytest.mark.slow
def test_the_doctor_judges_that_class(tmp_path: Path) -> None:
    forwarding(tmp_path)
    shown = re.search(r"<!-- forwarding -->\n```\n(.*?)```", PAGE, flags=re.DOTALL)
    assert shown is not None
    for name in ("train", "doctor"):
        line = re.search(rf"^\$ (corral {name} .*forwarding[^|\n]*)", PAGE, flags=re.MULTILINE)
        assert line is not None
        done = corral(shlex.split(line[1]), tmp_path)
    assert done.returncode == 1, done.stderr
    assert first_finding(done.stdout) == first_finding(shown[1])


def chunks(text: str) -> list[str]:
    """The parts of an excerpt between lines of "...", in one line and without numbers."""
    parts = re.split(r"^\.\.\.$", text, flags=re.MULTILINE)
    return [" ".join(re.sub(r"[-+]?\d[\d.,]*", "#", part).split()).rstrip(".") for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forwarding", "tutorial", "nim"])
def test_classes_that_corral_has_never_seen(name: str, tmp_path: Path) -> None:
    if name == "nim" and shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the library")
    forwarding(tmp_path)
    for folder in ("docs", "tests"):
        (tmp_path / folder).symlink_to(Path(__file__).parents[2] / folder)
    lines = []
    if name != "forwarding":  # its run is that of the test above
        lines = re.findall(rf"^\$ (corral .*runs/{name}\b.*)$", PAGE, flags=re.MULTILINE)
    kinds = {"forwarding": "forwarding", "tutorial": "MultiAgentArena", "nim": "Nim"}
    lines += re.findall(rf"^\$ (corral check \S*{kinds[name]}\b.*--learnable)$", PAGE, re.MULTILINE)
    printed = {line.split()[1]: corral(shlex.split(line), tmp_path).stdout for line in lines}
    screens = re.findall(rf"<!-- {name} (doctor|check) -->\n```\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(screens) == 1 + (name != "forwarding")  # its report is tested above
    for command, shown in screens:
        (text,) = chunks(printed[command])
        verdict, *rest = chunks(shown)
        if command == "check":  # a faster machine tells more; a slow one may be inconclusive
            verdict = verdict.partition(" ")[0]
        assert [part for part in (verdict, *rest) if part not in text] == []


def test_every_command_of_the_page_has_the_options_that_it_names() -> None:
    named = set(re.findall(r"`corral doctor [^`]*?(--[a-z-]+)", PAGE))
    named |= set(re.findall(r"`(--[a-z-]+)`", PAGE))
    told = corral(["corral", "doctor", "--help"], Path.cwd()).stdout
    assert len(named) >= 6
    assert [option for option in sorted(named) if option not in told] == []
