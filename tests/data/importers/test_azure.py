"""Importing the Azure Functions trace: functions are grouped onto nodes."""

from __future__ import annotations

import hashlib

import numpy as np

from corral.data import import_azure_functions
from corral.errors import TraceError
from support.import_files import write
from support.messages import refused, shown

AZURE_HEADER = "HashOwner,HashApp,HashFunction,Trigger," + ",".join(map(str, range(1, 1441)))


def azure(folder, name, functions):
    """A day: (app, function) -> {minute from 1: count}."""
    rows = [
        f"o,{app},{function},http," + ",".join(str(counts.get(m, 0)) for m in range(1, 1441))
        for (app, function), counts in functions.items()
    ]
    return write(folder, name, AZURE_HEADER, *rows)


def drawn(key: str, nodes: int) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest()[:16], 16) % nodes


def test_azure_functions_are_grouped_by_a_stable_hash(tmp_path):
    one = azure(tmp_path, "d01.csv", {("a1", "f1"): {1: 5}, ("a2", "f2"): {1440: 7}})
    two = azure(tmp_path, "d02.csv", {("a1", "f3"): {2: 9}, ("a3", "f4"): {2: 1}})
    found = import_azure_functions([one, two], nodes=2)
    expected = np.zeros((2880, 2), dtype=int)
    for minute, app, count in ((0, "a1", 5), (1439, "a2", 7), (1441, "a1", 9), (1441, "a3", 1)):
        expected[minute, drawn(app, 2)] += count
    assert found.trace.arrivals.tolist() == expected.tolist()
    assert expected.any(axis=0).all()  # the apps above fall onto both nodes
    assert found.trace.times[:2].tolist() == [1563148800, 1563148860]  # 2019-07-15
    by_function = import_azure_functions([one, two], nodes=2, by="function").trace
    assert by_function.arrivals[0, drawn("f1", 2)] == 5
    assert by_function.arrivals.sum() == expected.sum()


def test_azure_functions_of_the_busiest_tell_what_is_left_out(tmp_path):
    day = {("a1", "f1"): {1: 5}, ("a2", "f2"): {1: 7}, ("a2", "f3"): {2: 1}, ("a3", "f4"): {3: 2}}
    found = import_azure_functions(azure(tmp_path, "d.csv", day), nodes=2, pick="top", step=300)
    assert found.trace.nodes == ("a2", "a1")
    assert found.trace.arrivals[0].tolist() == [8, 5]
    assert found.trace.arrivals.shape == (288, 2)
    shown(found.notes[0], "2 of 3", "13 of 15")


def test_faults_of_azure_functions_have_their_place(tmp_path):
    path = azure(tmp_path, "d.csv", {("a", "f"): {3: "x", 4: 2**40}})
    with refused(TraceError, "d.csv:2", "'3'", "'x'"):
        import_azure_functions(path, nodes=1)
    path = write(tmp_path, "d.csv", AZURE_HEADER.replace("HashApp", "App"))
    with refused(TraceError, "d.csv:1", "HashOwner,HashApp,HashFunction,Trigger"):
        import_azure_functions(path, nodes=1)
    path = write(tmp_path, "d.csv", AZURE_HEADER, "o,,f,http" + ",1" * 1440)
    with refused(TraceError, "d.csv:2", "'HashApp'", "''"):
        import_azure_functions(path, nodes=1)
