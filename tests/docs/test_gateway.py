"""The examples of docs/gateway.md run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="trains networks")

from support.command import within

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")


def test_from_a_run_to_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "policy", raising=False)
    decide, export = PAGE.split("\n## ")[1:3]
    train, write = re.findall(r"^\$ corral (.*)$", PAGE.partition("\n## ")[0], flags=re.MULTILINE)
    within(*train.replace("4096", "2048").split())
    within(*write.split())
    names: dict[str, object] = {}
    for part in (decide, export):
        (code,) = re.findall(r"```python\n(.*?)```", part, flags=re.DOTALL)
        exec(compile(code, "docs/gateway.md", "exec"), names)
        forwards = names["forwards"]
        assert isinstance(forwards, dict)
        assert list(forwards) == ["milan", "oslo", "porto"]
        assert all(sum(others.values()) <= 60 for others in forwards.values())
    assert names["fallback"] == {"milan": {"oslo": 20, "porto": 20}, "oslo": {}, "porto": {}}
    monkeypatch.delitem(sys.modules, "policy")
