"""Run the code of docs/tutorial.md and write its outputs there and into docs/tutorial.ipynb.

    make tutorial

In the page, a block ``python`` or ``console`` is a cell, and a block ``text`` right after it is its
output. This program replaces the outputs and nothing else. The page is the source: edit the page.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PAGE = Path(__file__).with_name("tutorial.md")
NOTEBOOK = PAGE.with_suffix(".ipynb")
BLOCK = re.compile(
    r"^```(python|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL
)
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def notebook_of(page: str) -> nbformat.NotebookNode:
    """Return the notebook of a page: a cell per block of code and per text between two blocks."""
    cells, end = [], 0
    for block in BLOCK.finditer(page):
        if text := page[end : block.start()].strip():
            cells.append(nbformat.v4.new_markdown_cell(text))
        cells.append(nbformat.v4.new_code_cell(source_of(block[1], block[2])))
        end = block.end()
    if text := page[end:].strip():
        cells.append(nbformat.v4.new_markdown_cell(text))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # random by default: every run would change the file
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def source_of(language: str, code: str) -> str:
    """Return the code of a cell. Commands run in bash without a terminal: no progress bars."""
    if language == "console":
        code = "%%bash\n" + re.sub(r"^\$ ", "", code, flags=re.MULTILINE)
    return code.rstrip("\n")


def execute(notebook: nbformat.NotebookNode, folder: str) -> None:
    """Run all cells in ``folder`` with one kernel of this Python. Raises CellExecutionError."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "IPYTHONDIR": f"{folder}/.ipython"}
    startup = Path(folder) / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    # A kernel sets FORCE_COLOR, and commands would print codes of colors.
    (startup / "no_color.py").write_text("import os\nos.environ.pop('FORCE_COLOR', None)\n")
    where = {"metadata": {"path": folder}}
    NotebookClient(notebook, timeout=600, coalesce_streams=True, resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of the day


def output_of(cell: nbformat.NotebookNode) -> str:
    """Return the texts that a cell printed, and the value of its last line."""
    parts = []
    for output in cell.outputs:
        text = output.text if output.output_type == "stream" else output.data.get("text/plain", "")
        parts.append(text if text.endswith("\n") else text + "\n")
    lines = "".join(parts).replace("\r", "").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def page_with_outputs(page: str, notebook: nbformat.NotebookNode) -> str:
    """Return the page with the outputs of the executed notebook."""
    outputs = iter([output_of(cell) for cell in notebook.cells if cell.cell_type == "code"])

    def renew(block: re.Match[str]) -> str:
        output = next(outputs)
        shown = f"\n```text\n{output}```\n" if output else ""
        return f"```{block[1]}\n{block[2]}```\n{shown}"

    return BLOCK.sub(renew, page)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    notebook = notebook_of(page)
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, folder)
    PAGE.write_text(page_with_outputs(page, notebook), encoding="utf-8")
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
