"""Convert a DataFrame to the columns of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from corral.data.importers.tables.cells import Column, Table
from corral.data.source import fault_error

__all__ = ["table_of"]


def table_of(frame: pd.DataFrame, name: str) -> Table:
    """Return the columns of a DataFrame.

    An index other than plain row numbers becomes columns, too. Its first level is named "time" if
    it has no name.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"expected a DataFrame, not {type(frame).__name__}")
    if not len(frame) or not len(frame.columns):
        raise fault_error(name, "the DataFrame is empty")
    frame = _flat(frame)
    columns = {}
    for at, title in enumerate(frame.columns):
        label = str(title)
        if label in columns:
            raise fault_error(name, f"two columns have the name {label!r}; rename one")
        values = frame.iloc[:, at]
        codes, cells = pd.factorize(values)
        distinct = list(cells)
        if (codes < 0).any():
            codes = np.where(codes < 0, len(distinct), codes)
            distinct.append(None)
        distinct = [cell.strip() if isinstance(cell, str) else cell for cell in distinct]
        columns[label] = Column(label, codes.astype(np.int32), distinct)
    return Table(Path(name), columns, np.arange(len(frame)), None)


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    if isinstance(frame.columns, pd.MultiIndex):
        frame = frame.set_axis(["_".join(map(str, level)) for level in frame.columns], axis=1)
    if isinstance(frame.index, pd.RangeIndex) and frame.index.name is None:
        return frame
    if isinstance(frame.index, pd.PeriodIndex):
        frame = frame.set_axis(frame.index.to_timestamp(), axis=0)
    names = [n or ("time" if i == 0 else f"index {i}") for i, n in enumerate(frame.index.names)]
    return frame.set_axis(frame.index.set_names(names), axis=0).reset_index()
