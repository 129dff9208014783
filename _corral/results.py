"""``Result``: what all results have in common: a table, JSON values, and files of both.

    result = corral.duel("runs/new@best", "perfect")
    result.to_dataframe(), result.to_json()
    result.write("duels/monday")

A result says what its rows are and what its JSON holds; how both become text, and how that gets
into files, stands here alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from corral.files import write_file

if TYPE_CHECKING:
    import pandas as pd  # slow to import, and the environments do without

__all__ = ["Result", "csv_text", "json_text", "plain"]


class Result(ABC):
    """The result of a function of the library.

    A subclass, a dataclass, gives ``to_dataframe`` and the names of its files. One whose JSON is
    not its fields extends ``to_json``, one with more files ``texts``.
    """

    json_file: ClassVar[str]
    csv_file: ClassVar[str] = ""  # of the table; "": none is written
    indent: ClassVar[int] = 2  # of json_file, in spaces

    @abstractmethod
    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each row."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values, see ``plain``."""
        found: dict[str, Any] = plain(self)
        return found

    def texts(self) -> dict[str, str]:
        """Return the text of each file, by its name."""
        found = {self.json_file: json_text(self.to_json(), self.indent)}
        return found | ({self.csv_file: csv_text(self.to_dataframe())} if self.csv_file else {})

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write the files into ``folder`` (made if missing), each whole or not at all; return
        their paths by name. Raises OSError."""
        folder = Path(folder)
        return {
            name: write_file(folder / name, text, folder=folder)
            for name, text in self.texts().items()
        }


def plain(found: Any) -> Any:
    """Return JSON values: dataclasses as objects, arrays as lists, numbers that are not finite as
    None, what JSON does not know as its text."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {each.name: plain(getattr(found, each.name)) for each in dataclasses.fields(found)}
    if isinstance(found, Mapping):
        return {str(key): plain(value) for key, value in found.items()}
    if hasattr(found, "tolist"):
        return plain(found.tolist())
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if found is None or isinstance(found, str | int):
        return found
    return [plain(each) for each in found] if isinstance(found, Collection) else str(found)


def json_text(values: Any, indent: int = 2) -> str:
    """Return JSON values as the text of a file."""
    return json.dumps(values, indent=indent, allow_nan=False) + "\n"


def csv_text(table: pd.DataFrame, *, index: bool = False) -> str:
    """Return a table as the text of a file; with ``index`` its labels are the first columns."""
    return table.to_csv(index=index, lineterminator="\n")
