"""What a notebook shows: tables of results, and a bar while training."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import corral
from corral import notebook, progress
from corral.data import load_trace
from corral.envs import check_env
from corral.envs.registry import ENVIRONMENTS
from corral.loads.replay import replay
from corral.notebook import MAX_ROWS, NotebookBar, as_html
from corral.progress import cell_progress
from corral.trainers.cloning.agreement import Agreement, AgreementRow
from corral.trainers.evaluation.episodes import Interval
from corral.trainers.evaluation.scores import Evaluation, TeamScore


class Cells(HTMLParser):
    """Collects the texts of a piece of HTML, and checks that its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def texts(value: Any) -> list[str]:
    text = value if isinstance(value, str) else value._repr_html_()
    for color in ("black", "white", "#"):  # the notebook has its own colors, light or dark
        assert f"color:{color}" not in text
    return Cells(text).texts


def test_numbers_texts_and_missing_values() -> None:
    row = ("a", 1_234, 0.123456, None, float("nan"), True)
    shown = texts(as_html("Title", {"seed": 3, "none": None}, list("abcdef"), [row], lines=["x"]))
    assert shown == ["Title", "x", "seed", "3", *"abcdef", "a", "1,234", "0.1235", "True"]


def test_texts_cannot_be_tags() -> None:
    bad = "<script>alert(1)</script>"
    text = as_html(bad, {bad: bad}, [bad], [[bad]], lines=[bad])
    assert "<script" not in text
    assert texts(text) == [bad] * 6


def test_long_tables_are_cut() -> None:
    shown = texts(as_html("Title", {}, ["n"], [[i] for i in range(MAX_ROWS + 5)]))
    assert shown.count(str(MAX_ROWS)) == 0
    assert shown[-1].split()[0] == "5"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment(name: str) -> None:
    env = corral.make(name)
    shown = texts(env)
    assert set(env.possible_agents) <= set(shown)
    assert str(env.action_space(env.possible_agents[0])) in shown


def test_a_trace() -> None:
    trace = load_trace("edge3")
    shown = texts(trace)
    assert {*trace.nodes, f"{len(trace):,}", f"{trace.arrivals[:, 0].max():,}"} <= set(shown)


def test_a_replay() -> None:
    result = replay("edge3", ["local", "overflow/equal"], rows=(0, 576), window=288)
    shown = texts(result)
    assert {"local", "overflow/equal", f"{100 * result.scores[0].cost:.4g}"} <= set(shown)


def test_a_watched_episode(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs the extra render")
    watched = corral.watch("rps_v0", out=tmp_path / "clip.gif", steps=2)
    assert {*watched.returns, "2"} <= set(texts(watched))
    assert "data:image/gif;base64," in watched._repr_html_()
    (tmp_path / "clip.gif").unlink()
    assert "data:image" not in watched._repr_html_()


def test_a_run_and_its_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    small: dict[str, Any] = {"steps": 128, "num_envs": 2, "n_steps": 32, "n_epochs": 1}
    run = corral.train("two_step_v0", trainer="ippo", out=tmp_path / "run", **small)
    last = run.progress.iloc[-1]
    assert {"ippo", "two_step_v0", f"{last['return_team']:.4g}"} <= set(texts(run))
    result = corral.evaluate(run, episodes=4)
    assert {"greedy", "random", f"{result[0].return_team:.4g}"} <= set(texts(result))
    (run.folder / "progress.csv").unlink()
    assert "ippo" in texts(run)


@pytest.mark.parametrize(
    ("returns", "columns"),
    [
        ({"a": 3.25, "b": -1.5}, {"a": "3.25", "b": "-1.5"}),
        ({"a": 3.25, "b": 3.25}, {}),
        ({f"agent_{i}": i + 0.5 for i in range(9)}, {"min agent": "0.5", "max agent": "8.5"}),
    ],
)
def test_an_evaluation_shows_returns_of_agents_that_differ(
    returns: dict[str, float], columns: dict[str, str]
) -> None:
    row = TeamScore("mine", "greedy", sum(returns.values()), None, None, returns, 9, 1.0, 0, {})
    evaluation = Evaluation("some_v0", [row])
    shown = texts(evaluation)
    assert (
        columns.items() <= dict(zip(shown[1:], shown[1 + len(shown) // 2 :], strict=False)).items()
    )
    assert not {"a", "agent_0"} & (set(shown) - set(columns))
    assert all(name in str(evaluation) for name in columns)


def test_a_result_prints_its_screen_and_a_cell_shows_it() -> None:
    result = check_env("two_step_v0", processes=False)
    assert str(result) == result.text()
    assert "\n" not in repr(result)
    assert f"{len(result.errors)} errors" in repr(result)
    assert texts(result) == [result.text()]


def test_an_agreement_prints_its_table() -> None:
    rows = (AgreementRow("all", 8, 0.5, Interval(0.25, 0.75), None),)
    result = Agreement("<b>rule</b>", 4, rows, None)
    assert "0.25" in str(result)
    assert "0.25" in texts(result)[0]
    assert len(repr(result).splitlines()) == 1


class Display:
    """The outputs of a cell, and the events of the kernel."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        events = pytest.importorskip("IPython.core.events", reason="needs the extra dev")
        self.events = events.EventManager(None, events.available_events)

    def bar(self) -> NotebookBar:
        bar = NotebookBar.__new__(NotebookBar)
        bar._html, bar._shown, bar._handle = str, 0.0, SimpleNamespace(update=self.shown.append)
        return bar


def test_a_cell_shows_progress_and_removes_it_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(notebook, "NotebookBar", display.bar)
    monkeypatch.setattr(notebook, "_events", lambda: display.events)
    cell_progress("playing", 1, 8)
    assert display.shown == []  # a cell of less than a second shows no bar
    monkeypatch.setattr(notebook, "DELAY_S", 0.0)
    cell_progress("playing", 8, 8)
    assert 'value="8"' in display.shown[-1]
    assert "playing" in texts(display.shown[-1])[-1]
    display.events.trigger("post_run_cell", None)
    assert display.shown[-1] == ""
    display.events.trigger("post_run_cell", None)
    assert len(display.shown) == 2  # the next cell has no bar to remove


NOTEBOOK: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("import corral", lambda html: html == ""),
    (
        'run = corral.train("two_step_v0", steps=256, num_envs=2, n_steps=32, out="run")',
        lambda html: '<progress value="256" max="256">' in html,
    ),
    ("run", lambda html: "<table" in html and "two_step_v0" in html),
    ("corral.evaluate(run, episodes=4)", lambda html: "random" in html),
    ('corral.make("arena_v0")', lambda html: "action space" in html),
    (
        'corral.learnable("two_step_v0", seconds=4)',
        lambda html: html.startswith("<pre>") and "<progress" not in html,
    ),
)
"""The cells of a notebook, and what their outputs have to show."""


@pytest.mark.slow
def test_a_notebook_shows_tables_and_a_bar(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")
    from nbformat import v4

    book = v4.new_notebook(cells=[v4.new_code_cell(source) for source, _ in NOTEBOOK])
    place = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(book, timeout=1500, resources=place).execute()
    for cell, (source, holds) in zip(book.cells, NOTEBOOK, strict=True):
        html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        assert holds(html), (source, cell.outputs)
