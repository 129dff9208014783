"""The report of ``corral.listen`` as a table in a notebook."""

from __future__ import annotations

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.text import SURE
from corral.lab.listening.report import Report


def report(*findings: Finding) -> Report:
    return Report(findings, {"policy": None}, {"policy": 9}, {"policy": 0}, (), {"policy": ()})


def test_a_row_for_each_fault_that_follows_from_no_other() -> None:
    root = Finding("a", "<rate>", "0 of 9", "above 0", "lr=0.1", 3, "", place="run.py:7")
    effect = Finding("b", "stillness", "0", "moves", "see a", 3, "", follows="a")
    text = report(root, effect)._repr_html_()
    for cell in ("&lt;rate&gt;", "certain", "0 of 9", "run.py:7", "lr=0.1"):
        assert f">{cell}</td>" in text
    assert "stillness" not in text


def test_no_table_without_faults() -> None:
    assert "<table" not in report()._repr_html_()


def test_the_headline_tells_of_findings_below_it() -> None:
    note = Finding("a", "Slow.", "0 of 9", "above 0", "lr=0.1", 1, "")
    for findings in ((), (note,), (note, note)):
        headline = str(report(*findings)).partition("\n\n")[0]
        assert (SURE[1] in " ".join(headline.split())) == bool(findings)


def test_one_update_is_no_plural() -> None:
    heard = Report((), {"policy": None}, {"policy": 1}, {"policy": 2048}, (), {"policy": ()})
    assert "updates" not in str(heard)
    assert "2,048" in str(heard)
