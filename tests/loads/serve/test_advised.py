"""The verdict of an advice is served by its folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import RunError
from corral.loads.advise import advice
from corral.loads.export.decider import about_rules
from corral.loads.serve import advised as module
from corral.loads.serve.rule import Rule
from corral.loads.serve.service import service_of
from corral.trainers.runs.run import Run
from support.command import within
from support.edited import odd_files, require_plain_errors
from support.loads import small_trace
from support.messages import refused, shown

NAMES = ("site-0", "site-1", "site-2")
NODES = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}


def written(
    folder: Path,
    run: str,
    team: Run | None = None,
    *,
    plan: str | None = None,
    balancer: str | None = None,
    **settings: Any,
) -> Path:
    """A folder with as much of advice.json as is asked for."""
    folder.mkdir()
    if team is not None:
        shutil.copytree(team.folder, folder / "team")
    found = {
        "format": 1,
        "run": run,
        "rule": {"rule": "overflow/capacity"},
        "team": None if team is None else {"folder": str(folder / "team")},
        "trace": {"nodes": list(NAMES)},
        "settings": settings,
    }
    if plan is not None:
        found["plan"] = plan
    if balancer is not None:
        found["balancer"] = {"name": balancer}
    (folder / "advice.json").write_text(json.dumps(found))
    return folder


def test_its_file_is_that_of_advise() -> None:
    assert (module.ADVICE, module.FORMAT) == (advice.ADVICE, advice.FORMAT)


def test_a_rule_is_served_without_a_team(tmp_path: Path) -> None:
    neighbours = {"site-0": ["site-1"], "site-1": ["site-2"]}
    folder = written(tmp_path / "advice", "rule", queue=5, neighbours=neighbours)
    service, rng = service_of(folder), np.random.default_rng(0)
    assert (service.deciding, service.rule, service.nodes) == ("rule", "overflow/capacity", NAMES)
    shown(service.lines[0], "overflow/capacity", folder)
    shown(service.lines[1], "second offer")
    rules = DfaasRules(small_trace(), queue=5, neighbours=neighbours)
    own = Rule("overflow/capacity", about_rules(rules))
    for _ in range(50):
        drawn = zip(NAMES, rng.integers(12, size=(3, 3)).tolist(), strict=True)
        nodes = {n: {"arrivals": a, "capacity": c, "queue": q} for n, (a, c, q) in drawn}
        assert service.decide(nodes).forward == own.decide(nodes)[0]
    assert service_of(folder, rule="static").rule == "static/equal"
    with refused(RunError, folder, "--rule overflow/capacity"):
        service_of(folder, shadow=tmp_path / "log.jsonl")


def test_a_team_is_served_where_the_verdict_says_so(team: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "advice", "team", team)
    service = service_of(folder)
    assert (service.deciding, service.rule) == ("team", "overflow/capacity")
    assert service.run == f"{folder}/team@best"
    assert service.decide(NODES).by == "team"
    shutil.rmtree(folder / "team")
    with refused(RunError, folder, "--rule overflow/capacity"):
        service_of(folder)
    assert service_of(folder, rule="overflow/capacity").deciding == "rule"


def test_a_rule_beside_a_team_is_served_and_the_team_shadows_it(team: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "advice", "rule", team)
    service = service_of(folder)
    assert (service.deciding, service.rule) == ("rule", "overflow/capacity")
    shown(service.lines[0], f"{folder}/team@best")
    service = service_of(folder, shadow=tmp_path / "log.jsonl")
    assert service.log is not None
    service.log.close()
    assert (service.deciding, service.rule) == ("shadow", "overflow/capacity")


def test_a_balancer_runs_in_the_proxy_and_the_rule_is_served(tmp_path: Path) -> None:
    given = {"plan": "rule", "balancer": "room", "second_offer": False}
    service = service_of(written(tmp_path / "advice", "balancer", **given))
    assert (service.deciding, service.rule) == ("rule", "overflow/capacity")
    assert service.recommended == "room"
    assert service.decide(NODES).by == "rule"
    shown(service.lines[0], "overflow/capacity")
    shown(service.lines[1], "room", "proxy")
    with refused(RunError, "--rule overflow/capacity"):
        service_of(tmp_path / "advice", shadow=tmp_path / "log.jsonl")
    named = service_of(tmp_path / "advice", rule="static")
    assert (named.rule, named.recommended) == ("static/equal", "room")


def test_corral_runs_says_what_an_advice_advises(tmp_path: Path) -> None:
    advices = {"a": ("rule", None, "overflow/capacity"), "b": ("balancer", "room", "room")}
    for name, (run, balancer, _) in advices.items():
        written(tmp_path / name, run, balancer=balancer)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "advice.json").write_text("{}")
    lines = within("runs", tmp_path).splitlines()
    assert len(lines) == 3
    for line, (name, (_, _, policy)) in zip(lines, advices.items(), strict=False):
        shown(line, tmp_path / name, policy)
    shown(lines[2], tmp_path / "c", "advice.json")
    listed = json.loads(within("runs", tmp_path, "--json"))
    assert listed["runs"] == []
    named = {Path(advice["folder"]).name: advice for advice in listed["advices"]}
    assert {name: entry["policy"] for name, entry in named.items()} == {
        **{name: policy for name, (_, _, policy) in advices.items()},
        "c": None,
    }
    shown(named["c"]["fault"], "advice.json")
    shown(within("runs", tmp_path / "a", "--trainer", "mappo"), tmp_path / "a", "--trainer mappo")


@pytest.mark.parametrize(
    ("replay", "rehearsal", "warns"),
    [(14, None, False), (-14, None, True), (14, -9, True), (-14, 9, False), (14, 0, False)],
)
def test_a_rule_that_costs_more_than_todays_is_served_with_a_warning(
    tmp_path: Path, replay: float, rehearsal: float | None, warns: bool
) -> None:
    folder = written(tmp_path / "advice", "balancer", balancer="room")
    kept = json.loads((folder / "advice.json").read_text())
    saved = {"requests": replay, "unit": "a day", "share": 0.1}
    kept["rule"] |= {"today": "local/equal", "beside_today": saved}
    if rehearsal is not None:
        promise = {"deterministic": {**saved, "requests": rehearsal}, "answer": "depends"}
        kept["rehearsal"] = {"promise": promise, "plan": "overflow/capacity"}
    (folder / "advice.json").write_text(json.dumps(kept))
    warnings = [line for line in service_of(folder).lines if "local/equal" in line]
    assert len(warnings) == warns
    for line in warnings:
        shown(line, "overflow/capacity", 14 if rehearsal is None else 9)


def test_health_names_what_is_served_and_what_is_recommended(tmp_path: Path) -> None:
    testing = pytest.importorskip("fastapi.testclient", reason="needs the extra serve")
    from corral.loads.serve.app import app_of

    for run, balancer in (("balancer", "choices=2"), ("rule", None)):
        folder = written(tmp_path / run, run, balancer=balancer)
        with testing.TestClient(app_of(service_of(folder))) as client:
            health = client.get("/healthz").json()
        assert health["rule"] == "overflow/capacity"
        assert health.get("recommended") == balancer


def test_the_best_plan_behind_a_balancer_may_be_a_team(team: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "advice", "balancer", team, plan="team", balancer="room")
    service = service_of(folder)
    assert (service.deciding, service.recommended) == ("team", "room")
    shown(" ".join(service.lines), "room", f"{folder}/team@best")


@pytest.mark.parametrize("balancer", [None, "", "no name", "x" * 60])
def test_a_balancer_without_a_name_is_refused(tmp_path: Path, balancer: str | None) -> None:
    with refused(RunError, "advice.json", "balancer"):
        service_of(written(tmp_path / "advice", "balancer", balancer=balancer))


def test_nothing_is_said_of_a_second_offer_that_was_not_judged(tmp_path: Path) -> None:
    assert len(service_of(written(tmp_path / "advice", "rule", second_offer=False)).lines) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 1, "run": "rule"}'])
def test_a_damaged_advice_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "advice.json").write_text(text)
    with pytest.raises(RunError, match=r"advice\.json"):
        service_of(tmp_path)


def test_an_edited_advice_ends_plain(tmp_path: Path) -> None:
    neighbours = {"site-0": ["site-1"], "site-1": ["site-2"]}
    given = {"queue": 5, "neighbours": neighbours, "report_delay": 1, "second_offer": False}
    folder = written(
        tmp_path / "advice",
        "balancer",
        plan="rule",
        balancer="room",
        **given,
        arrivals="known",
        link_limit=None,
    )
    path = folder / "advice.json"
    assert require_plain_errors(path, lambda: service_of(folder)) > 200
    service_of(folder)
    for what in odd_files(path):
        if what not in ("a pipe", "a folder"):  # else the folder is taken for an export
            with pytest.raises(RunError, match=r"advice\.json"):
                service_of(folder)
        with pytest.raises(RunError, match=r"advice\.json"):
            module.advised(folder)
