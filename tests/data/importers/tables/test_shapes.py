"""import_trace: head lines, comments, missing headers, filters, sums, and binary files."""

from __future__ import annotations

import sys
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from corral.data import Imported, import_trace
from corral.errors import MissingExtraError, TraceError
from support.messages import refused, shown

TIMES = [datetime(2026, 3, 2) + timedelta(minutes=i) for i in range(20)]
LOADS = [[i * i % 7, i * i % 5] for i in range(20)]
WIDE = "".join(f"{t},{a},{b}\n" for t, (a, b) in zip(TIMES, LOADS, strict=True))


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    return import_trace(path, **options)


def refusal(tmp_path: Path, text: str, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, text, **options)
    return str(caught.value)


def is_original(result: Imported, nodes: tuple[str, ...] = ("fra", "lon")) -> bool:
    trace = result.trace
    same = trace.nodes == nodes and trace.arrivals.tolist() == LOADS
    return same and trace.clock_text(0) == "2026-03-02 00:00" and trace.step == 60


# --- Headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "skipped"),
    [
        ('"Label","fra","lon"\n"ID","m1","m2"\n"Units","None","None"\n"Period","60","60"\n', 3),
        ("Load of March\n\nTime,fra,lon\n", 1),
        ("Label,fra,lon\nunit,req,req\n", 1),
        ("# made by x\n# second\nTime,fra,lon\n", 2),
        ("# made by x\n#time,fra,lon\n", 2),
    ],
)
def test_lines_around_the_header_are_skipped(tmp_path: Path, head: str, skipped: int) -> None:
    result = imported(tmp_path, head + WIDE)
    assert is_original(result)
    shown(" ".join(result.notes), f"loads.csv: {skipped} ")


def test_several_headers_are_refused(tmp_path: Path) -> None:
    text = "x,y,z\nTime,fra,lon\n" + WIDE
    shown(refusal(tmp_path, text), "header=1", "header=2")
    assert is_original(imported(tmp_path, text, header=2))
    with refused(ValueError, "header=0"):
        imported(tmp_path, text, header=0)


def test_a_row_that_is_no_time_is_not_a_head_line(tmp_path: Path) -> None:
    shown(refusal(tmp_path, "Time,fra,lon\nyesterday,5,6\n" + WIDE), "loads.csv:2", "'yesterday'")


INFLUX = (
    "#group,false,false,true,true,false\n#datatype,string,long,dateTime:RFC3339,double,string\n"
    "#default,_result,,,,\n,result,table,_time,_value,host\n"
)


def test_annotations_may_stand_above_each_table(tmp_path: Path) -> None:
    text = "\r\n".join(
        INFLUX
        + "".join(
            f",,{at},{t.isoformat()}Z,{row[at]},{node}\n"
            for t, row in zip(TIMES, LOADS, strict=True)
        )
        for at, node in enumerate(("fra", "lon"))
    )
    assert is_original(imported(tmp_path, text))


def test_files_without_a_header(tmp_path: Path) -> None:
    shown(refusal(tmp_path, WIDE), "columns=")
    assert is_original(imported(tmp_path, WIDE, columns="time,fra,lon"))
    assert is_original(imported(tmp_path, WIDE, columns=["time", "fra", "lon"]))
    shown(refusal(tmp_path, WIDE, columns="time,fra"), "loads.csv:1", 3, 2)
    with refused(ValueError, "header=", "columns="):
        imported(tmp_path, WIDE, columns="time,fra,lon", header=1)


def test_spaces_between_cells(tmp_path: Path) -> None:
    rows = "".join(f"{1_772_409_600 + 60 * i}  {a}   {b} \n" for i, (a, b) in enumerate(LOADS))
    assert is_original(imported(tmp_path, "time fra lon\n" + rows))
    assert is_original(imported(tmp_path, "# time fra lon\n" + rows))
    assert is_original(imported(tmp_path, rows, columns="time,fra,lon"))


def test_a_row_for_each_node_and_a_column_for_each_time(tmp_path: Path) -> None:
    head = ",".join(f"{t:%Y-%m-%d %H:%M}" for t in TIMES)
    text = f"function,{head}\n" + "".join(
        f"{node}," + ",".join(str(row[at]) for row in LOADS) + "\n"
        for at, node in enumerate(("fra", "lon"))
    )
    assert is_original(imported(tmp_path, text))
    shown(refusal(tmp_path, text.replace("lon", "fra")), "'fra'", "combine=sum")


def test_the_name_of_a_file_may_hold_the_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"views-20260302-{hour:02d}" for hour in range(3)]
    for hour, path in enumerate(paths):
        path.write_text(f"en Page_0 {hour} 9\nen Page_1 5 9\nde Seite 2 9\n")
    result = import_trace(
        paths,
        columns="lang,page,views,bytes",
        time_column="file",
        time_format="views-%Y%m%d-%H",
        node_column="lang",
        arrivals="views",
        combine="sum",
    )
    assert result.trace.nodes == ("en", "de")
    assert result.trace.arrivals.tolist() == [[5, 2], [6, 2], [7, 2]]
    assert result.trace.step == 3600


# --- Rows ----------------------------------------------------------------------------------------

STATUS = "time,host,status,requests\n" + "".join(
    f"{t},{node},{status},{row[at] if status == 200 else at + 1}\n"
    for t, row in zip(TIMES, LOADS, strict=True)
    for at, node in enumerate(("fra", "lon"))
    for status in (200, 500)
)


def test_rows_of_a_node_and_time_are_summed_only_on_demand(tmp_path: Path) -> None:
    shown(refusal(tmp_path, STATUS), "'fra'", "combine=sum")
    result = imported(tmp_path, STATUS, combine="sum")
    assert result.trace.arrivals.tolist() == [[a + 1, b + 2] for a, b in LOADS]
    shown(" ".join(result.notes), "40 of 80", "combine=sum")
    by_path = STATUS.replace("status", "path").replace(",200,", ",/a,").replace(",500,", ",/b,")
    shown(refusal(tmp_path, by_path), "combine=sum", "node_column=host+path")
    assert imported(tmp_path, by_path, combine="sum").trace == result.trace
    with refused(ValueError, "combine='mean'", "sum"):
        imported(tmp_path, STATUS, combine="mean")


def test_capacities_are_not_summed(tmp_path: Path) -> None:
    lines = STATUS.splitlines()
    text = "\n".join([f"{lines[0]},capacity", *(f"{line},9" for line in lines[1:])]) + "\n"
    shown(refusal(tmp_path, text, combine="sum"), "capacity=100")
    assert imported(tmp_path, text, combine="sum", capacity=9).trace.capacity is not None


def test_rows_are_filtered(tmp_path: Path) -> None:
    for where in ("status=200", "status!=500", "status=200,host!=rome"):
        if "rome" not in where:
            assert is_original(imported(tmp_path, STATUS, where=where))
        else:
            shown(refusal(tmp_path, STATUS, where=where), "host!=rome", "fra, lon")
    alone = imported(tmp_path, STATUS, where="status=200,host=fra", node_column="host")
    assert alone.trace.nodes == ("fra",)
    shown(refusal(tmp_path, STATUS, where="state=200"), "'state'", "'status'")
    with refused(ValueError, "where='status'"):
        imported(tmp_path, STATUS, where="status")


def test_each_row_may_be_a_request(tmp_path: Path) -> None:
    result = imported(tmp_path, STATUS, arrivals="rows", node_column="host")
    assert result.trace.arrivals.tolist() == [[2, 2]] * 20


def test_names_of_nodes_are_taken_apart(tmp_path: Path) -> None:
    text = "time,pod,requests\n" + "".join(
        f"{t},{node}-{i // 10}ab,{row[at]}\n"
        for i, (t, row) in enumerate(zip(TIMES, LOADS, strict=True))
        for at, node in enumerate(("fra", "lon"))
    )
    assert is_original(imported(tmp_path, text, node_pattern="([a-z]+)-.*"))
    shown(
        refusal(tmp_path, text, node_pattern="-(.)ab"), "'0'", "2026-03-02T00:00:00Z", "combine=sum"
    )
    both = imported(tmp_path, text, node_pattern="-.ab", combine="sum", gaps="zero")
    assert both.trace.arrivals.sum() == sum(map(sum, LOADS))
    shown(refusal(tmp_path, text, node_pattern="fra"), "'lon-0ab'")
    with refused(ValueError, "node_pattern='('"):
        imported(tmp_path, text, node_pattern="(")
    wide = imported(tmp_path, "time,fra-1,lon-1\n" + WIDE, node_pattern="[a-z]+")
    assert is_original(wide)


# --- Excel and Parquet ---------------------------------------------------------------------------

FRAME = pd.DataFrame(LOADS, index=pd.DatetimeIndex(TIMES, name="time"), columns=["fra", "lon"])


def test_spreadsheets_and_columnar_files(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    FRAME.to_excel(tmp_path / "loads.xlsx")
    FRAME.to_parquet(tmp_path / "loads.parquet")
    FRAME.reset_index().to_feather(tmp_path / "loads.feather")
    for suffix in ("xlsx", "parquet", "feather"):
        path = tmp_path / f"loads.{suffix}"
        assert is_original(import_trace(path))
        with refused(TraceError, path.name, "max_cells"):
            import_trace(path, max_cells=5)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        with refused(TraceError, path.name):
            import_trace(path)
    with pd.ExcelWriter(tmp_path / "loads.xlsx") as writer:
        FRAME.to_excel(writer, sheet_name="loads", startrow=2)
        FRAME.to_excel(writer, sheet_name="more")
    result = import_trace(tmp_path / "loads.xlsx")
    assert is_original(result)
    shown(" ".join(result.notes), "'loads'", "more")
    with refused(TraceError, "loads.xlsx", "max_bytes"):
        import_trace(tmp_path / "loads.xlsx", max_bytes=100)


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "loads.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with refused(MissingExtraError, "pyarrow", "exports"):
        import_trace(tmp_path / "loads.parquet")


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "loads.zip", "w") as archive:
        archive.writestr("loads.csv", WIDE)
    with refused(TraceError, "loads.zip"):
        import_trace(tmp_path / "loads.zip")
