"""``Result``: base class of all results, with a table, JSON values and files of both.

    result = corral.duel("runs/new@best", "perfect")
    print(result)
    result.to_dataframe(), result.to_json()
    result.write("duels/monday")

A subclass defines its rows and its JSON values. Only this module converts them to text and writes
the files.
"""

from __future__ import annotations

import dataclasses
import html
import json
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from corral.files import write_file

if TYPE_CHECKING:
    import pandas as pd  # slow to import, and not needed by the environments

__all__ = ["Result", "csv_text", "filled", "json_text", "plain"]


WIDE = 1_000
"""Width at which the first sentence of a result is on one line."""


class Result(ABC):
    """The result of a function of the library.

    A subclass is a dataclass. It defines ``to_dataframe`` and the names of its files. It overrides
    ``text`` if its screen is more than a table, ``to_json`` if its JSON differs from its fields,
    and ``texts`` if it has more files.
    """

    json_file: ClassVar[str]
    csv_file: ClassVar[str] = ""  # name of the table's file; "": no file
    indent: ClassVar[int] = 2  # of json_file, in spaces

    @abstractmethod
    def to_dataframe(self) -> pd.DataFrame:
        """Return a table with one line per row of the result."""

    def text(self, width: int = 80) -> str:
        """Return the result as text in lines of at most ``width``; here, its table."""
        return self.to_dataframe().to_string(index=False, line_width=width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        first = self.text(WIDE).partition("\n")[0]
        return f"<{type(self).__name__}: {first}>"

    def _repr_html_(self) -> str:
        """Return the text, for the output of a notebook's cell."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_json(self) -> dict[str, Any]:
        """Return the whole result as JSON values; see ``plain``."""
        values: dict[str, Any] = plain(self)
        return values

    def texts(self) -> dict[str, str]:
        """Return file name -> text of the file."""
        texts = {self.json_file: json_text(self.to_json(), self.indent)}
        return texts | ({self.csv_file: csv_text(self.to_dataframe())} if self.csv_file else {})

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write the files into ``folder``, which is created if missing. Raises OSError.

        Each file is written completely or not at all. Return file name -> path.
        """
        folder = Path(folder)
        return {
            name: write_file(folder / name, text, folder=folder)
            for name, text in self.texts().items()
        }


def plain(value: Any) -> Any:
    """Return JSON values: dataclasses as objects, arrays as lists, NaN and infinity as None, and
    any other unsupported value as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            member.name: plain(getattr(value, member.name)) for member in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(member) for key, member in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return [plain(member) for member in value] if isinstance(value, Collection) else str(value)


def filled(lines: Iterable[str], width: int) -> str:
    """Return lines as text, wrapped to at most ``width`` characters."""
    return "\n".join(part for line in lines for part in textwrap.wrap(line, width) or [""])


def json_text(values: Any, indent: int = 2) -> str:
    """Return JSON values as the text of a JSON file."""
    return json.dumps(values, indent=indent, allow_nan=False) + "\n"


def csv_text(table: pd.DataFrame, *, index: bool = False) -> str:
    """Return a table as the text of a CSV file; with ``index``, the index comes first."""
    return table.to_csv(index=index, lineterminator="\n")
