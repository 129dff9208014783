"""Objects named by text: module:name and file.py:name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from corral.errors import UnknownNameError
from corral.named import named_object, source_digest


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "my_objects_for_named.py"
    path.write_text("class Holder:\n    inner = 7\n\ndef make():\n    return 1\n")
    yield path
    sys.modules.pop("my_objects_for_named", None)


def test_an_object_of_a_file_and_of_a_module(file: Path) -> None:
    make = named_object(f"{file}:make", "model")
    assert make() == 1
    assert named_object(f"{file}:Holder.inner", "model") == 7
    assert named_object(f"{file}:make", "model") is make  # the file is not run twice
    assert named_object("my_objects_for_named:make", "model") is make
    assert named_object("collections:OrderedDict", "model").__name__ == "OrderedDict"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing_here_at_all:make", "no module named 'nothing_here_at_all'"),
        ("missing_file.py:make", "missing_file.py"),
        (":make", "give module:name, or file.py:name"),
        ("collections:", "give module:name, or file.py:name"),
        ("collections:OrderedDikt", "OrderedDict"),
    ],
)
def test_what_is_not_there_is_named(text: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match="model") as caught:
        named_object(text, "model")
    assert said in str(caught.value)


def test_an_error_of_the_file_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "broken_for_named.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        named_object(f"{tmp_path / 'broken_for_named.py'}:make", "model")
    assert "broken_for_named" not in sys.modules


def test_the_digest_is_that_of_the_source(file: Path) -> None:
    make = named_object(f"{file}:make", "model")
    before = source_digest(make)
    assert before is not None
    assert len(before) == 64
    file.write_text(file.read_text() + "# changed\n")
    assert source_digest(make) != before
    assert source_digest(len) is None


def test_a_class_of_a_notebook_has_no_source_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert source_digest(type("Net", (), {"__module__": "__main__"})) is None


def test_an_unknown_name_lists_what_the_file_defines(tmp_path: Path) -> None:
    path = tmp_path / "mine_for_named.py"
    path.write_text(
        "from __future__ import annotations\nimport math\nfrom collections import OrderedDict\n"
        "from corral.errors import CorralError\n\nLIMIT = 3\n\nclass One: ...\n\nmade = One()\n"
        "def two(): ...\n"
    )
    with pytest.raises(UnknownNameError) as caught:
        named_object(f"{path}:Nope", "metric one")
    assert str(caught.value) == (
        f"metric one: no object in {path} named 'Nope'. Known: One, made, two"
    )
