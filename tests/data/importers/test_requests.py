"""Importing one row per request: rows are counted into steps."""

from __future__ import annotations

from corral.data import import_requests
from corral.errors import TraceError
from support.import_files import MIDNIGHT, clock, write
from support.messages import refused, shown
from support.traces import public_traces

REQUESTS = (
    "TIMESTAMP,ContextTokens",
    "2026-01-05 00:00:09.9999999,10",
    "2026-01-05 00:00:10.0000000,10",
    "2026-01-05 00:00:19.9,10",
    "2026-01-05 00:00:40,10",
)


def test_requests_are_counted_into_steps(tmp_path):
    found = import_requests(write(tmp_path, "code.csv", *REQUESTS, end="\r\n"), step=10)
    assert found.trace.nodes == ("code",)
    assert found.trace.times[0] == MIDNIGHT
    assert found.trace.arrivals[:, 0].tolist() == [1, 2, 0, 0, 1]
    shown(found.notes[0], "code", "2 of 5")


def test_two_files_of_requests_are_cut_and_the_loss_is_told(tmp_path):
    a = write(tmp_path, "a.csv", *REQUESTS)
    b = write(tmp_path, "b.csv", "t", f"{MIDNIGHT + 15}.25", f"{MIDNIGHT + 38}")
    found = import_requests([a, b], step=10)
    assert found.trace.arrivals.tolist() == [[2, 1], [0, 0], [0, 1]]
    shown(found.notes[0], "a: 1 step", "1 request before")
    shown(found.notes[1], "a: 1 step", "1 request after")


def test_a_column_may_name_the_node(tmp_path):
    rows = ["when,who", f"{clock(0)},b", f"{clock(1)},a", f"{clock(3)},b"]
    trace = import_requests(write(tmp_path, "x.csv", *rows), step=60, node_column="who").trace
    assert trace.nodes == ("b", "a")
    assert trace.arrivals.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_faults_of_requests_have_their_place(tmp_path):
    for row, values in (
        ("noon,a", ("x.csv:3", "'when'", "'noon'")),
        (f"{clock(0)},", ("x.csv:3", "'who'", "''")),
        (f"{clock(0)}", ("x.csv:3", "1 fields", 2)),
    ):
        path = write(tmp_path, "x.csv", "when,who", f"{clock(0)},a", row)
        with refused(TraceError, *values):
            import_requests(path, step=60, node_column="who")
    with refused(TraceError, "x.csv", "rows"):
        import_requests(write(tmp_path, "x.csv", "when"), step=60)


def test_language_model_requests_keep_their_number():
    folder = public_traces() / "azure_llm_2023"
    paths = [folder / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")]
    for path in paths:
        one = import_requests(path, step=60)
        assert one.trace.arrivals.sum() == path.read_bytes().count(
            b"\n"
        )  # header, no last line end
        assert any("complete" in note for note in one.notes)
    both = import_requests(paths, step=60, names=["code", "conv"])
    trimmed = [note.split(" steps with ")[1] for note in both.notes if "trimmed" in note]
    lost = sum(int(note.split(" requests")[0].replace(",", "")) for note in trimmed)
    total = sum(path.read_bytes().count(b"\n") for path in paths)
    assert both.trace.arrivals.sum() + lost == total


def test_columns_that_are_not_read_are_named(tmp_path):
    path = write(tmp_path, "code.csv", *REQUESTS)
    (note,) = [note for note in import_requests(path, step=10).notes if "code.csv" in note]
    shown(note, "ContextTokens", "node_column=")
    found = import_requests(path, step=10, node_column="ContextTokens")
    assert not any("code.csv" in note for note in found.notes)
