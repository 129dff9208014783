"""corral advise: what it prints at 80 columns, and how it fails."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.cli.commands.loads.advise import _beginner
from corral.cli.output import in_options
from corral.data import write_trace
from corral.progress import without_setup_messages
from support.command import within
from support.loads import DAY, days
from support.messages import shown


@pytest.fixture(autouse=True)
def _no_lines_of_slow_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.cli.commands.loads.advise.EVERY", math.inf)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "loads.csv"
    write_trace(days(7), path)
    return path


GAME = ("--queue", "5", "--forward-cost", "0.1", "--no-train")


def test_one_screen_begins_with_the_verdict(load: Path, tmp_path: Path) -> None:
    lines = within("advise", load, *GAME, "--out", tmp_path).splitlines()
    kept = json.loads((tmp_path / "advice.json").read_text())
    first = next(k for k, line in enumerate(lines) if kept["verdict"][0].startswith(line.strip()))
    assert all(line.startswith("corral: ") for line in lines[:first])
    assert len(lines[first:]) <= 40
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert str(tmp_path / "report.html") in lines[-1]
    typed = {"queue": 5, "forward_cost": 0.1, "train": False, "out": str(tmp_path)}
    assert kept["arguments"] == {"trace": str(load), **typed}


def test_verbose_prints_the_whole_advice(load: Path, tmp_path: Path) -> None:
    settings = (*GAME, "--no-rehearse", "--verbose", "--out", tmp_path)
    printed = within("advise", load, *settings)
    shown(printed, "unknown")
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    kept = json.loads((tmp_path / "advice.json").read_text())
    told = " ".join(printed.partition("\nVerdict\n")[2].split())
    sentences, code = kept["verdict"][:3], kept["pseudo_code"]
    assert code
    said = " ".join([*sentences, *code, *kept["verdict"][3:]])
    assert told.startswith(" ".join(said.split()))
    headings = [line for line in lines if line in ("What if", "How it was judged", "Verdict")]
    assert headings == ["Verdict", "What if", "How it was judged"]
    assert "95\n" not in printed.replace(" ", "")  # "95 %" stays on its line
    assert kept["arrivals"] == "unknown"


def test_a_rehearsal_stands_in_the_table_and_in_the_verdict(load: Path, tmp_path: Path) -> None:
    settings = (*GAME, "--route", "equal", "--verbose")
    printed = within("advise", load, *settings, "--out", tmp_path)
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    kept = json.loads((tmp_path / "advice.json").read_text())
    _, _, verdict = printed.partition("\nVerdict\n")
    verdict, _, table = verdict.partition("How it was judged")
    for name, costs in kept["rehearsal"]["policies"].items():
        row = [line for line in table.splitlines() if line.split()[:1] == [name]][-1]
        assert row.split()[-1] == f"{costs['deterministic']:,.0f}"
    code = verdict.index(kept["pseudo_code"][0])
    needs = [text for text in kept["verdict"] if text.startswith("Each gateway needs")]
    assert verdict.index("Each gateway needs") < code
    assert len(needs) == 1
    bare = within("advise", load, "--no-rehearse", *settings, "--out", tmp_path / "bare")
    assert "rehearsed\n" not in bare.partition("How it was judged")[2].replace(" ", "")


def test_knowledge_and_the_rule_of_today_can_be_given(load: Path, tmp_path: Path) -> None:
    settings = (
        "--arrivals",
        "known",
        "--today",
        "round-robin",
        "--route",
        "least",
        "--no-train",
        "--no-rehearse",
    )
    within("advise", load, *settings, "--out", str(tmp_path))
    kept = json.loads((tmp_path / "advice.json").read_text())
    assert (kept["arrivals"], kept["rule"]["today"]) == ("known", "overflow/equal")


def test_progress_is_written_into_a_log(load: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("corral.cli.commands.loads.advise.EVERY", 0.0)
    printed = within("advise", load, "--no-train", "--no-rehearse", "--out", str(tmp_path))
    assert re.search(
        r"corral: plain rules, plays of a day: \d+ of [\d,]+, about [\d,]+ s left in this part",
        printed,
    )


def test_quiet_is_for_the_parts_of_an_advice_too(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, lines in ((False, 1), (True, 0)):
        with without_setup_messages() if quiet else contextlib.nullcontext():
            _beginner()("a part")
        assert capsys.readouterr().err.count("\n") == lines


def test_a_stopped_advice_names_what_is_kept(load: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def stop(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    words = ("advise", load, "--no-rehearse", "--route", "equal", "--out", tmp_path / "new")
    with monkeypatch.context() as patch:
        patch.setattr("corral.loads.advise.driver.textbook_of", stop)
        shown(within(*words, "--no-train", code=130), "nothing")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("corral.loads.advise.driver.trained", stop)
    printed = within(*words, "--steps", "64", code=130)
    shown(" ".join(printed.split()), f"--out {tmp_path / 'new'}")
    assert json.loads((tmp_path / "new" / "advice.json").read_text())["run"] == "rule"


def test_rules_alone_need_no_minutes(load: Path, tmp_path: Path) -> None:
    said = within(
        "advise", load, "--no-train", "--no-rehearse", "--minutes", "2", "--out", tmp_path, code=2
    )
    shown(said, "--minutes 2", "--no-train")


def test_mistakes_name_the_remedy(load: Path, tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text("{}")
    said = within("advise", load, "--no-train", "--no-rehearse", "--out", tmp_path, code=2)
    shown(" ".join(said.split()), "advice.json", "--overwrite")
    shown(within("advise", tmp_path / "none.csv", code=2), "none.csv")
    shown(within("advise", load, "--worth", "-1", "--out", tmp_path / "a", code=2), "--worth -1")
    bare = tmp_path / "bare.csv"
    rows = [line.rpartition(",")[0] for line in load.read_text().splitlines()]
    bare.write_text("\n".join(rows) + "\n")
    shown(within("advise", bare, "--out", tmp_path / "b", code=2), "bare", "--capacity")
    shown(within("advise", "dfaas_v0", code=2), "corral advise edge3")


def test_the_verdict_names_the_baseline_as_an_assumption(load: Path, tmp_path: Path) -> None:
    settings = ("--no-train", "--no-rehearse", "--forward-cost", "0.1", "--verbose", "--out")
    told = within("advise", load, "--today", "round-robin", *settings, tmp_path)
    verdict = " ".join(told.partition("\nVerdict\n")[2].split())
    shown(verdict, "local first, overflow in turn (overflow/equal)", "--today", "0.1 x forwarded")
    helped = " ".join(within("advise", "--help").split())
    shown(helped, "share=0.8333/equal")


def test_names_of_rules_are_not_spelled_as_options() -> None:
    text = in_options("capacity=1/equal on 3, backlog=0.5+margin=1/least", ["capacity", "margin"])
    assert text == "capacity=1/equal on 3, backlog=0.5+margin=1/least"
    assert in_options("pass capacity=, or capacity=220", ["capacity"]).count("--capacity") == 2


def test_code_lines_are_not_wrapped(load: Path, tmp_path: Path) -> None:
    settings = ("--no-train", "--no-rehearse", "--queue", "5", "--verbose", "--out", tmp_path)
    printed = within("advise", load, *settings).splitlines()
    for line in json.loads((tmp_path / "advice.json").read_text())["pseudo_code"]:
        assert f"    {line}" in printed


@pytest.mark.parametrize(
    "options",
    [
        ("--route", "nginx"),
        ("--queue", "-1"),
        ("--minutes", "-2"),
        ("--link-limit", "-3"),
        ("--window", "0"),
        ("--today", "nginx"),
    ],
)
def test_options_are_checked_before_the_first_progress_line(
    load: Path, tmp_path: Path, options: tuple[str, str]
) -> None:
    said = within("advise", load, *options, "--out", tmp_path / "new", code=2)
    shown(said, options[1])
    assert "plain rules" not in said
    assert not (tmp_path / "new").exists()


def test_todays_rules_are_listed_in_full(load: Path) -> None:
    said = " ".join(within("advise", load, "--today", "nginx", code=2).split())
    shown(said, "'nginx'", "round-robin", "patient", "share=0.8333/equal")


def test_capacities_of_single_nodes_belong_to_the_import(load: Path) -> None:
    said = within("advise", load, "--capacity", "a=4,b=3", code=2)
    shown(" ".join(said.split()), "corral trace import", "--capacity a=4,b=3")


def test_a_capacity_in_another_unit_is_noted(load: Path, tmp_path: Path) -> None:
    within("advise", load, "--no-train", "--no-rehearse", "--capacity", "1", "--out", tmp_path)
    notes = " ".join(json.loads((tmp_path / "advice.json").read_text())["notes"])
    shown(notes, "capacity is per step")


def test_a_folder_of_advice_is_exported_by_its_team(load: Path, tmp_path: Path) -> None:
    within("advise", load, "--no-train", "--no-rehearse", "--out", tmp_path)
    said = " ".join(within("export", tmp_path, code=2).split())
    shown(said, "corral serve", "no team")
    kept = json.loads((tmp_path / "advice.json").read_text())
    (tmp_path / "team").mkdir()
    kept["team"] = {"folder": "team"}
    (tmp_path / "advice.json").write_text(json.dumps(kept))
    said = " ".join(within("export", tmp_path, code=2).split())
    shown(said, f"corral export {tmp_path / 'team'} --recommended --out gateway")


# --- A recheck -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def advised(load: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advised")
    settings = ("--queue", "5", "--route", "equal", "--no-train", "--no-rehearse")
    within("advise", load, *settings, "--out", folder)
    return folder


def following(path: Path) -> Path:
    """The days of the advice, and seven more."""
    first, second = days(7), days(7, seed=4)
    columns = {
        name: np.concatenate([vars(first)[name], vars(second)[name]])
        for name in ("arrivals", "capacity")
    }
    trace = dataclasses.replace(first, times=3600 * np.arange(14 * DAY), **columns)
    write_trace(trace, path)
    return path


def test_a_recheck_prints_its_answer_last(advised: Path, tmp_path: Path) -> None:
    both = following(tmp_path / "both.csv")
    printed = within("advise", "--recheck", advised, both, "--rows", f"{7 * DAY}:")
    kept = json.loads((advised / "recheck.json").read_text())
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(advised) not in line) <= 80
    shown(" ".join(printed.split()), kept["answer"], kept["policy"], kept["fresh"]["rule"])
    assert kept["trace"]["rows"] == [7 * DAY, 14 * DAY]
    assert kept["windows"] == 7
    assert f"Recheck: {advised / 'recheck.json'}" in printed


def test_options_without_effect_on_a_recheck_are_refused(
    advised: Path, load: Path, tmp_path: Path
) -> None:
    both = following(tmp_path / "both.csv")
    for option in (("--minutes", "1"), ("--no-train",), ("--out", tmp_path), ("--queue", "3")):
        printed = within("advise", "--recheck", advised, both, *option, code=2)
        shown(printed, option[0], "--recheck")
    printed = within("advise", "--recheck", advised, both, code=2)
    shown(" ".join(printed.split()), f"{7 * DAY}:{14 * DAY}", "--rows")
    for option in (("--rows", "0:24"), ("--beyond", "clip")):
        shown(within("advise", load, *option, code=2), *option, "--recheck")
