"""Names of opponents with weights: what a text says, and what it must not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.trainers.opponents.mix import mix_text, parse_mix
from support.messages import refused

MIXES = [
    ("perfect", {"perfect": 1}, "perfect"),
    ("perfect:3", {"perfect": 1}, "perfect"),
    ("beat-last:2,copy-last:1", {"beat-last": 2 / 3, "copy-last": 1 / 3}, None),
    (
        " beat-last : 3 , copy-last ",
        {"beat-last": 0.75, "copy-last": 0.25},
        "beat-last:3,copy-last:1",
    ),
    ("runs/a@best:0.5,overflow/two:1.5", {"runs/a@best": 0.25, "overflow/two": 0.75}, None),
    ("runs/a@40000", {"runs/a@40000": 1}, "runs/a@40000"),
    (r"C:\runs\a@best", {r"C:\runs\a@best": 1}, r"C:\runs\a@best"),
    (
        r"C:\runs\a:2,D:/runs/b",
        {r"C:\runs\a": 2 / 3, "D:/runs/b": 1 / 3},
        r"C:\runs\a:2,D:/runs/b:1",
    ),
    ("runs/x:y/z", {"runs/x:y/z": 1}, "runs/x:y/z"),
    (
        {"beat-last": 2, "runs/a@best": np.float64(2)},
        {"beat-last": 0.5, "runs/a@best": 0.5},
        "beat-last:2,runs/a@best:2",
    ),
    ({"random": 1}, {"random": 1}, "random"),
    ({Path("runs/a"): 1, "random": 1}, {"runs/a": 0.5, "random": 0.5}, "runs/a:1,random:1"),
    (Path("runs/a"), {"runs/a": 1}, "runs/a"),
]


@pytest.mark.parametrize(("given", "weights", "text"), MIXES, ids=lambda value: str(value)[:30])
def test_a_mix_and_its_text(given: Any, weights: dict[str, float], text: str | None) -> None:
    assert parse_mix(given) == pytest.approx(weights)
    assert list(parse_mix(given)) == list(weights)
    assert mix_text(given) == (given if text is None else text)
    assert parse_mix(mix_text(given)) == parse_mix(given)
    assert mix_text(mix_text(given)) == mix_text(given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("random:two", ("random", "'two'", "beat-last:2,runs/mine@best:1")),
        ("random:0", ("random", "'0'", "beat-last:2,runs/mine@best:1")),
        ("random:-1,perfect", ("random", "'-1'", "beat-last:2,runs/mine@best:1")),
        ("random:nan", ("random", "'nan'", "beat-last:2,runs/mine@best:1")),
        ("random:inf", ("random", "'inf'", "beat-last:2,runs/mine@best:1")),
        ({"random": True}, ("random", True, "beat-last:2,runs/mine@best:1")),
        ({"random": None}, ("random", None, "beat-last:2,runs/mine@best:1")),
        ({"random": 1e308, "perfect": 1e308}, ("{'random': 1e+308, 'perfect': 1e+308}",)),
        ("random:", ("random", "''", "beat-last:2,runs/mine@best:1")),
        ("", ("opponent '", "beat-last:2,runs/mine@best:1")),
        ("random,,perfect", ("opponent '", "beat-last:2,runs/mine@best:1")),
        ({}, ("{}", "beat-last:2,runs/mine@best:1")),
        ("random,random:2", ("'random,random:2'",)),
        ({"runs/a,b": 1}, ("'runs/a,b'",)),
        (lambda obs: 0, ("lambda", "RUN@best", "corral.adapters.SeatEnv(")),
        ({3: 1}, (3, "RUN@best")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_mix(given: Any, named: tuple[object, ...]) -> None:
    with refused(ValueError, *named):
        parse_mix(given)


def test_what_could_be_a_folder_or_a_mix_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a:2", "a,b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    with refused(ValueError, "'a:2'", "a:2:1"):
        parse_mix("a:2")
    assert parse_mix("a:2:1") == {"a:2": 1}
    assert mix_text({"a:2": 1}) == mix_text("a:2:5") == "a:2:1"
    with refused(ValueError, "'a,b'"):
        parse_mix("a,b")
    with refused(ValueError, "'a,b@best'"):
        parse_mix("a,b@best")
    # The checkpoint of a run is no folder's name.
    assert parse_mix("c@best:3,c@latest") == {"c@best": 0.75, "c@latest": 0.25}
    assert parse_mix("a:2@best") == {"a:2@best": 1}
