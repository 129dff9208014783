"""Hearing the calls of a method of one object."""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path

import pytest

from corral.lab.listening.frameworks.calls import on_call
from corral.lab.listening.frameworks.traps import place_of


class Base:
    def double(self, number: int) -> int:
        return 2 * number


class Child(Base):
    pass


def test_calls_of_one_object_are_heard_with_their_results() -> None:
    first, second, calls = Child(), Child(), []
    undo = on_call(first, "double", lambda args, kwargs, result: calls.append((args, result)))
    assert (first.double(3), second.double(4)) == (6, 8)
    assert calls == [((3,), 6)]
    undo()
    first.double(5)
    assert len(calls) == 1
    assert "double" not in vars(Child)
    assert Child.double is Base.double


def test_two_listeners_may_stop_in_any_order() -> None:
    item, calls = Base(), []
    original = Base.double
    undo = [on_call(item, "double", lambda *heard, name=name: calls.append(name)) for name in "ab"]
    item.double(1)
    undo[0]()
    item.double(1)
    undo[1]()
    item.double(1)
    assert calls == ["a", "b", "b"]
    assert Base.double is original


def test_copies_and_saved_objects_are_not_heard() -> None:
    item, calls = Base(), []
    undo = on_call(item, "double", lambda *heard: calls.append(heard))
    copies = copy.deepcopy(item), pickle.loads(pickle.dumps(item))
    assert [one.double(2) for one in copies] == [4, 4]
    assert not calls
    assert not vars(item)
    undo()


def test_a_function_of_the_object_itself_is_heard() -> None:
    item, calls = Base(), []
    item.double = lambda number: 3 * number  # type: ignore[method-assign]
    undo = on_call(item, "double", lambda args, kwargs, result: calls.append(result))
    assert item.double(2) == 6
    undo()
    assert item.double(2) == 6
    assert calls == [6]


def test_a_class_in_a_file_that_was_changed_has_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads the source again: a user edits the script while it trains."""
    file = tmp_path / "edited_script.py"
    file.write_text("class Module:\n    def setup(self):\n        return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = importlib.import_module("edited_script").Module
    file.write_text("\n\ntext = f(\n    'a',\n")
    place = place_of(kind, "setup")
    assert (place.module, place.line) in {("Module", None), ("Module", 1)}
