"""The tutorial and its notebook: the same cells, executed in order, without an error."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("nbclient", reason="needs the extra dev")
import nbformat

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")
NOTEBOOK = nbformat.read(DOCS / "tutorial.ipynb", as_version=4)
STEPS = 12


def load_maker() -> ModuleType:
    """Return docs/make_tutorial.py as a module."""
    spec = importlib.util.spec_from_file_location("make_tutorial", DOCS / "make_tutorial.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_is_the_page() -> None:
    cells = MAKER.notebook_of(PAGE).cells
    assert [(c.cell_type, c.source) for c in cells] == [
        (c.cell_type, c.source) for c in NOTEBOOK.cells
    ]
    assert MAKER.page_with_outputs(PAGE, NOTEBOOK) == PAGE


def test_every_cell_ran_in_order_without_an_error() -> None:
    cells = code_cells(NOTEBOOK)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    assert len(re.findall(r"^## \d+\. ", PAGE, flags=re.MULTILINE)) == STEPS


def test_the_training_of_the_page_reaches_15() -> None:
    output = next(MAKER.output_of(c) for c in code_cells(NOTEBOOK) if "run.stopped" in c.source)
    returns = [float(line.split()[2]) for line in output.splitlines() if re.match(r"\d+ ", line)]
    assert returns[0] < 0
    stopped = re.match(r"return_team>=15: return_team is (\S+)\n", output)
    assert stopped is not None
    assert float(stopped[1]) >= 15


def test_outputs_are_replaced_and_nothing_else() -> None:
    page = "a\n\n```python\nprint(1)\n```\n\n```text\nold\n```\n\nb\n"
    notebook = MAKER.notebook_of(page)
    code = code_cells(notebook)[0]
    code.outputs = [nbformat.v4.new_output("stream", name="stdout", text="1\n")]
    assert MAKER.page_with_outputs(page, notebook) == page.replace("old", "1")


@pytest.mark.slow
def test_every_cell_runs(tmp_path: Path) -> None:
    """All of it again, by a kernel; outputs may differ between processors. Trainings of which no
    output is looked at below are short."""
    page, shorter = re.subn(r"(\bsteps[ =])(?:[346]0_?000|50000)\b", r"\g<1>12288", PAGE)
    assert shorter >= 6
    notebook = MAKER.notebook_of(page)
    MAKER.execute(notebook, str(tmp_path))
    text = "".join(MAKER.output_of(cell) for cell in code_cells(notebook))
    assert "exit status 1" in text  # the doctor found the planted fault
    assert "return_team>=15" in text
