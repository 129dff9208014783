"""The first screen of an advice: few lines, and one set of figures in lines, table and picture."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.loads.advise.advice import Advice
from corral.loads.advise.rehearsed import DEPENDS, HOLDS, Better, Promised, age_of
from corral.loads.advise.screen import LINES, Screen, _commands, _rows, losses_of, screen_of
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import Saving
from corral.loads.advise.words import WIDTH, percent, requests
from corral.loads.rehearsal.balancers import balancer_of
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from support.loads import DAY, days
from support.messages import shown

GAIN = (Saving(0.02, None, None, 0.02, 4, 1_000.0, "a day"),) * 2
GAME: dict[str, Any] = {"queue": 5, "forward_cost": 0.1, "route": "equal"}


def advised(out: Path, **given: Any) -> Advice:
    return corral.advise(days(8), train=False, out=out, **{**GAME, **given})


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return advised(tmp_path_factory.mktemp("replayed"), rehearse=False, today="round-robin")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return advised(tmp_path_factory.mktemp("rehearsed"), today="round-robin")


def page_of(advice: Advice) -> str:
    return (advice.folder / "report.html").read_text()


# --- The terminal --------------------------------------------------------------------------------


def test_the_first_line_is_the_verdict_and_the_screen_is_short(
    replayed: Advice, rehearsed: Advice
) -> None:
    for advice in (replayed, rehearsed):
        lines = screen_of(advice).lines()
        assert len(lines) <= LINES == 40
        assert max(len(line) for line in lines if str(advice.folder) not in line) <= WIDTH == 80
        assert advice.verdict[0].startswith(lines[0])


def test_notes_give_way_if_the_screen_would_be_too_long(rehearsed: Advice) -> None:
    screen = screen_of(rehearsed)
    more = dataclasses.replace(screen, notes=tuple(f"doubt{k} " + "x " * 60 for k in range(20)))
    lines = more.lines()
    assert LINES - 3 <= len(lines) <= LINES
    assert any(line.startswith("doubt0") for line in lines)
    assert lines[-1] == screen.lines()[-1]


def test_a_trend_is_a_note_and_the_team_has_its_own_sentence(rehearsed: Advice) -> None:
    trend = Trend(0.01, 3.0, 8, False, 10.0, 12.0, 14.0, 13.0, 15.0)
    place = rehearsed.code_after + 1
    verdict = (*rehearsed.verdict[:place], "It grows.", *rehearsed.verdict[place:])
    screen = screen_of(dataclasses.replace(rehearsed, trend=trend, verdict=verdict))
    assert screen.notes[0] == "It grows."
    assert screen.team == rehearsed.no_team


# --- The policies that matter --------------------------------------------------------------------


def roles(screen: Screen) -> dict[str, str]:
    return {row.policy: row.role for row in screen.rows}


def test_the_policies_that_matter_have_a_row_each(replayed: Advice, rehearsed: Advice) -> None:
    assert roles(screen_of(replayed)) == {
        replayed.chosen.rule: "advised",
        "overflow/equal": "today",
        "local/equal": "",
    }
    found = roles(screen_of(rehearsed))
    assert {"overflow/equal", "local/equal", rehearsed.chosen.rule} < set(found)
    assert rehearsed.rehearsed is not None
    assert rehearsed.rehearsed.balancers()[0] in found
    assert len(found) == 4
    costs = [row.cost for row in screen_of(rehearsed).rows]
    assert costs == sorted(costs)


def test_figures_are_those_of_the_same_days(rehearsed: Advice) -> None:
    assert rehearsed.rehearsed is not None
    played = rehearsed.rehearsed.played
    rows = {row.policy: row for row in screen_of(rehearsed).rows}
    today = rows["overflow/equal"]
    assert today.saving is None
    for label, row in rows.items():
        assert row.cost == pytest.approx(played.deterministic[label].cost.mean())
        assert row.lost == pytest.approx(played.deterministic[label].lost.mean())
        if row.saving is not None:
            assert row.saving.requests == pytest.approx(today.cost - row.cost)


def test_a_replay_has_the_figures_of_the_verdict(replayed: Advice) -> None:
    row = screen_of(replayed).advised
    assert row.saving == replayed.chosen.beside_today
    assert row.lost_share == replayed.chosen.lost


def test_the_picture_has_the_losses_of_the_table(replayed: Advice, rehearsed: Advice) -> None:
    for advice, count in ((replayed, 8), (rehearsed, 2)):
        screen = screen_of(advice)
        names = [screen.advised.policy, "overflow/equal"]
        losses = losses_of(advice, names)
        rows = {row.policy: row for row in screen.rows}
        assert losses.rows == ((8 - count) * DAY, 8 * DAY)
        assert (losses.played, losses.whole) == (count, count)
        for label in names:
            assert losses.lost[label].sum() * losses.width == pytest.approx(
                rows[label].lost * count, rel=1e-9
            )


def test_days_that_were_not_rehearsed_show_no_losses(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    played = dataclasses.replace(it.played, windows=(1,), whole=2)
    one_day = {
        label: dataclasses.replace(costs, lost_by_step=costs.lost_by_step[1:])
        for label, costs in it.played.deterministic.items()
        if costs.lost_by_step is not None
    }
    assert len(one_day) == len(played.deterministic)
    played = dataclasses.replace(played, deterministic=one_day)
    partly = dataclasses.replace(rehearsed, rehearsed=dataclasses.replace(it, played=played))
    lost = losses_of(partly, ["overflow/equal"]).lost["overflow/equal"]
    assert not lost[:DAY].any()
    assert lost[DAY:].sum() == it.played.deterministic["overflow/equal"].lost[1] > 0


def test_a_policy_that_costs_more_has_negative_savings(replayed: Advice) -> None:
    screen = screen_of(replayed)
    place = screen.headings().index("95 %\ninterval")
    row = {cells[0]: cells for cells in screen.cells()}["local/equal"]
    local = next(row for row in screen.rows if row.policy == "local/equal").saving
    assert local is not None
    assert local.low is not None
    assert local.high is not None
    assert local.low < local.share < local.high < 0
    ends = (f"{end * local.arrivals:,.0f}" for end in (local.low, local.high))
    assert row[place] == " to ".join(ends)


@pytest.mark.parametrize(
    ("period", "step", "text"),
    [(1 / 3, 3600.0, "1,200 s"), (1 / 10, 300.0, "30 s"), (1 / 60, 75.0, "1.25 s")],
)
def test_times_of_reports_are_plain_numbers(period: float, step: float, text: str) -> None:
    assert age_of(period, step) == text


def test_the_sentence_of_the_saving_has_the_figures_of_the_table(
    replayed: Advice, rehearsed: Advice
) -> None:
    for advice in (replayed, rehearsed):
        screen = screen_of(advice)
        cells = {line[0]: line for line in screen.cells()}[screen.advised.policy]
        assert cells[-2]
        shown(screen.saves, cells[-2], cells[-1])


def test_thousands_are_not_rounded_in_the_sentence(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    today = it.played.deterministic[it.today]
    dear = dataclasses.replace(today, cost=today.cost + 12_345.6)
    played = dataclasses.replace(
        it.played, deterministic={**it.played.deterministic, it.today: dear}
    )
    changed = dataclasses.replace(rehearsed, rehearsed=dataclasses.replace(it, played=played))
    screen = screen_of(changed)
    cells = {line[0]: line for line in screen.cells()}[screen.advised.policy]
    assert cells[-2].startswith("12,")
    shown(screen.saves, cells[-2])


def test_the_screen_names_the_parts_of_a_cost(rehearsed: Advice, tmp_path: Path) -> None:
    parts = "cost = lost + 0.1 x forwarded"
    assert parts in " ".join(screen_of(rehearsed).lines())
    assert parts in page_of(rehearsed).partition("<details")[0]
    free = advised(tmp_path, forward_cost=0.0, rehearse=False)
    assert screen_of(free).costs == ""
    assert not any(line.endswith("forwarded:") for line in screen_of(free).lines())


def test_an_equal_loss_is_stated_once(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    lost = it.played.deterministic[it.today].lost
    costs = {k: dataclasses.replace(v, lost=lost) for k, v in it.played.deterministic.items()}
    played = dataclasses.replace(it.played, deterministic=costs)
    changed = dataclasses.replace(rehearsed, rehearsed=dataclasses.replace(it, played=played))
    screen = screen_of(changed)
    assert screen.saves.count(percent(screen.advised.lost_share)) == 1


def test_an_advised_rule_that_costs_as_much_as_todays_says_so(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    same = it.played.deterministic[it.today]
    played = dataclasses.replace(
        it.played, deterministic=dict.fromkeys(it.played.deterministic, same)
    )
    changed = dataclasses.replace(rehearsed, rehearsed=dataclasses.replace(it, played=played))
    first, _, _ = screen_of(changed).saves.partition(".")
    assert not re.search(r"\b0\b.*fewer", first)
    shown(first, "same")


# --- Commands ------------------------------------------------------------------------------------


def test_the_call_is_shown_as_it_was_typed(rehearsed: Advice) -> None:
    call = screen_of(rehearsed).call
    assert call.startswith("corral.advise(trace, ")  # a Trace has no path
    for words in ("queue=5", "today='round-robin'", "train=False", "route='equal'"):
        assert words in call
    assert "minutes" not in call
    assert "rehearse=" not in call
    typed = {**rehearsed.arguments, "trace": "my loads.csv", "out": "runs/a"}
    assert screen_of(dataclasses.replace(rehearsed, arguments=typed)).call == (
        "corral advise 'my loads.csv' --queue 5 --forward-cost 0.1 --route equal "
        "--today round-robin --no-train --out runs/a"
    )
    assert rehearsed.to_json()["arguments"] == dict(rehearsed.arguments)


def test_known_arrivals_cannot_be_rehearsed(tmp_path: Path) -> None:
    advice = advised(tmp_path, arrivals="known", rehearse=False)
    commands = [command.split()[1] for command, _ in screen_of(advice).commands]
    assert commands == ["serve", "advise"]


def test_the_commands_name_the_folder(rehearsed: Advice) -> None:
    commands = [command for command, _ in screen_of(rehearsed).commands]
    assert [command.split()[1] for command in commands] == ["rehearse", "serve", "advise"]
    assert all(str(rehearsed.folder) in command for command in commands)


def test_a_saving_of_the_replay_alone_is_explained(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    better = Better(balancer_of("choices=2"), *it.played.savings(it.plan, "choices=2"), GAIN, None)
    for sign, answer in ((1.0, HOLDS), (-1.0, DEPENDS)):
        gain = dataclasses.replace(GAIN[0], share=sign * 0.01)
        promise = Promised(GAIN[0], gain, GAIN[1])
        assert promise.answer == answer
        changed = dataclasses.replace(it, better=better, promise=promise)
        notes = screen_of(dataclasses.replace(rehearsed, rehearsed=changed)).notes
        told = [note for note in notes if DEPENDS in note]
        assert len(told) == (answer == DEPENDS)
        for note in told:
            shown(note, it.plan, 20, -10)


def test_a_policy_that_costs_more_than_today_says_so_in_words(rehearsed: Advice) -> None:
    it = rehearsed.rehearsed
    assert it is not None
    costs = {
        k: dataclasses.replace(v, cost=v.cost + 1_000 * (k == it.plan))
        for k, v in it.played.deterministic.items()
    }
    played = dataclasses.replace(it.played, deterministic=costs)
    changed = dataclasses.replace(it, played=played, better=None)
    screen = screen_of(dataclasses.replace(rehearsed, rehearsed=changed))
    gain = screen.advised.saving
    assert gain is not None
    assert gain.share < 0
    shown(screen.saves, f"{requests(-gain.requests)} more")


# --- The page ------------------------------------------------------------------------------------


def test_each_command_of_the_page_has_a_label(rehearsed: Advice) -> None:
    block = re.search(r"<pre class='commands'>(.*?)</pre>", page_of(rehearsed), flags=re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if line]
    assert len(lines) == 1 + len(screen_of(rehearsed).commands)
    assert all("  # " in line for line in lines)


def test_a_second_choice_worse_than_today_is_not_served(rehearsed: Advice) -> None:
    rows, _ = _rows(rehearsed)
    folder = str(rehearsed.folder)
    for sign, served in ((1.0, True), (-1.0, False)):
        changed = [
            row
            if row.saving is None
            else dataclasses.replace(row, saving=dataclasses.replace(row.saving, share=sign * 0.1))
            for row in rows
        ]
        commands = [command for command, _ in _commands(rehearsed, changed)]
        assert any(command.startswith(f"corral serve {folder}") for command in commands) == served


def test_few_days_are_named_before_the_table(replayed: Advice) -> None:
    few = dataclasses.replace(replayed, replay=dataclasses.replace(replayed.replay, windows=3))
    text = f"fewer than {FEWEST_WINDOWS} "
    assert text in _rows(few)[1]
    assert text not in _rows(replayed)[1]


def test_the_page_opens_with_the_screen(rehearsed: Advice) -> None:
    page = page_of(rehearsed)
    opened, _, folded = page.partition("<details")
    headings = re.findall(r"<h2>(.*?)</h2>", opened)
    assert headings == [
        "Load and loss over time",
        "What it saves",
        "What it asks",
        "In NGINX, HAProxy and Envoy",
        "20 % more capacity",
        "A learned team",
        "Policies",
        "Next",
    ]
    assert page.index(html.escape(rehearsed.verdict[0])) < page.index("<h2>")
    assert opened.count("<table") == 1
    assert opened.count("<figure") == 1
    assert "<h2>Load" not in folded
    assert page.count("<details") == page.count("</details>") == len(re.findall("<summary>", page))


def test_the_page_has_one_ranking_of_all_rules(rehearsed: Advice) -> None:
    _, _, folded = page_of(rehearsed).partition("<details")
    tables = re.findall(r"<table class='sort'>.*?</table>", folded)
    ranked = [table for table in tables if f"<td>{rehearsed.replay.scores[0].policy}</td>" in table]
    assert len(ranked) == 1
    for score in rehearsed.replay.scores:
        assert f"<td>{score.policy}</td>" in ranked[0]


def test_servers_have_the_names_of_the_load(rehearsed: Advice) -> None:
    page = page_of(rehearsed)
    assert not re.search(r"\bnode_\d", page)
    for name in rehearsed.replay.trace.nodes:
        assert f"<b>{name}</b>" in page


def test_no_column_is_empty(replayed: Advice, rehearsed: Advice) -> None:
    for advice in (replayed, rehearsed):
        for table in re.findall(r"<table class='sort'>(.*?)</table>", page_of(advice)):
            heads = re.findall("<th>(.*?)</th>", table)
            rows = [re.findall("<td>(.*?)</td>", row) for row in table.split("<tr")[2:]]
            assert {len(row) for row in rows} == {len(heads)}
            filled = np.array([[bool(cell) for cell in row] for row in rows]).any(axis=0)
            assert filled.all(), heads
