"""``corral bisect`` and ``corral doctor RUN --against stock``."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from support.command import stdout_of, within
from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.lab.bisect.stock import against
from support import forked

PAGE = (Path(__file__).parents[2] / "docs" / "bisect.md").read_text(encoding="utf-8")

SCRIPT = """
SETTINGS = {settings}

def train(*, seed, rate=1.0, size=3):
    return 100.0 * rate + 0.01 * seed
"""


@pytest.fixture
def scripts(tmp_path: Path) -> list[str]:
    for name, settings in (("a_good", {"rate": 1.0, "size": 3}), ("a_bad", {"rate": 0.0})):
        (tmp_path / f"{name}.py").write_text(SCRIPT.format(settings=settings))
    return [f"{tmp_path}/{name}.py:train" for name in ("a_good", "a_bad")]


def test_the_cause_is_printed_and_kept(scripts: list[str], tmp_path: Path) -> None:
    text = within("bisect", *scripts, "--out", tmp_path / "out")
    shown(" ".join(text.split()), "setting rate", 1.0, 0.0, "setting size", "code", "0.004")
    assert max(map(len, text.splitlines())) <= 80 or str(tmp_path) in text
    saved = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert [d["name"] for d in saved["causes"][0]["differences"]] == ["rate"]
    printed = json.loads(stdout_of("bisect", *scripts, "--out", tmp_path / "out", "--json"))
    assert printed == saved


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("corral bisect runs/GOOD runs/BAD",)),
        (("runs/good",), ("corral bisect runs/GOOD runs/BAD",)),
        (("nothing", "nothing"), ("nothing", "file.py:name")),
        (("mappo", "ippo"), ("--env",)),
        (("mappo", "ippo", "--env", "rps_v0", "--seconds", "0"), ("--seconds", 0)),
        (("mappo", "ippo", *("--model", "a") * 3), ("--model", 3)),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], expected: tuple[object, ...]) -> None:
    shown(" ".join(within("bisect", *words, code=2).split()), *expected)


def test_scripts_have_no_steps(scripts: list[str]) -> None:
    shown(within("bisect", *scripts, "--steps", "5", code=2), "SETTINGS", 5)


def test_other_parts_than_stock_are_unknown(tmp_path: Path) -> None:
    small = {"steps": 64, "num_envs": 4, "n_steps": 8, "progress": False}
    run = corral.train("probe_p05_v0", out=tmp_path / "run", **small)
    text = within("doctor", run.folder, "--against", "mine", code=2)
    shown(" ".join(text.split()), "--against", "mine", "stock", "corral bisect GOOD BAD")
    shown(within("doctor", "--learner", "mappo", "--against", "stock", code=2), "--against")


# --- Real trainings ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_script_is_named_if_its_configuration_learns(tmp_path: Path) -> None:
    small = {"steps": 1_024, "num_envs": 16, "n_steps": 16, "n_minibatches": 4, "preset": "none"}
    with corral.session("probe_p05_v0", out=tmp_path / "run", progress=False, **small) as session:
        weights = session.weights()
        for _ in session:
            session.set_weights(weights)
    result = against(tmp_path / "run", seconds=3600)  # as many steps on any machine
    assert [d.part for cause in result.causes for d in cause.differences] == ["script"]
    assert result.causes[0].p == 1 / 20
    sound = corral.train("probe_p05_v0", out=tmp_path / "sound", progress=False, **small)
    assert against(sound.folder, seconds=3600).causes == ()


@pytest.mark.slow
def test_the_screens_of_the_page_are_what_is_printed(tmp_path: Path) -> None:
    for kind in ("toml", "python"):
        for name, body in re.findall(rf"```{kind}\n# (\S+)\n(.*?)```", PAGE, flags=re.DOTALL):
            (tmp_path / name).write_text(body)
    train = re.search(r"^\$ (corral train .*)$", PAGE, flags=re.MULTILINE)
    assert train is not None
    assert forked.run(["-m", *shlex.split(train[1])], folder=tmp_path).returncode == 0
    for name in ("bisect", "stock"):
        screen = re.search(rf"<!-- {name} -->\n```\n\$ (.*?)\n(.*?)```", PAGE, flags=re.DOTALL)
        assert screen is not None
        done = forked.run(["-m", *shlex.split(screen[1])], folder=tmp_path, timeout=1500)
        assert done.returncode == (name == "stock"), done.stderr
        cause = screen[2].partition("new seeds")[0].rpartition("\n")[0]
        assert cause.count("algorithm advantages") == 1
        assert cause in done.stdout
