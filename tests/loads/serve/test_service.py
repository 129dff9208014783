"""What is served of a run: its team, what was recommended, a rule, a shadow."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.errors import RunError, UnknownNameError
from corral.loads.from_rule.recommend import Recommendation
from corral.loads.serve import service as module
from corral.loads.serve.service import Service, service_of
from corral.trainers.runs.run import Run, load_run
from support.messages import refused, shown

NAMES = ("site-0", "site-1", "site-2")
NODES = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}


def recommended(team: Run, folder: Path, play: Any) -> Path:
    """The run with a recommendation."""
    shutil.copytree(team.folder, folder)
    checkpoint = 32 if play == "team" else None
    found = Recommendation(
        play, "margin/spare", None, "so it was found", windows=0, compared=0, checkpoint=checkpoint
    )
    found.write(folder)
    return folder


def words(service: Service) -> str:
    return " ".join(service.lines)


def test_the_team_decides_and_overflow_where_it_does_not(team: Run) -> None:
    service = service_of(team)
    assert (service.deciding, service.rule) == ("team", "overflow/equal")
    assert service.nodes == NAMES
    shown(service.lines[0], team.name, "32 env steps")
    assert service.decide(NODES).forward == team.decide(NODES)
    assert service.decide({**NODES, "new": NODES["site-0"]}).by == "rule"


def test_numpy_plays_as_the_policies_do(team: Run) -> None:
    service, rng = service_of(team), np.random.default_rng(0)
    for _ in range(50):
        drawn = zip(NAMES, rng.integers(12, size=(3, 2)).tolist(), strict=True)
        nodes = {name: {"arrivals": a, "capacity": c} for name, (a, c) in drawn}
        answer = service.decide(nodes)
        assert (answer.by, answer.forward) == ("team", team.decide(nodes))


@pytest.mark.parametrize("odd", [RunError("a tree, and no layers"), 7])
def test_where_numpy_cannot_the_own_network_decides(
    team: Run, odd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(decider: Any) -> Any:
        raise odd

    if isinstance(odd, RunError):
        monkeypatch.setattr(module, "network_actor", refuse)
    else:
        monkeypatch.setattr(module, "odd_actions", lambda *given: odd)
    service = service_of(team)
    shown(service.lines[-1], "network")
    assert service.decide(NODES).forward == team.decide(NODES)


def test_a_recommended_rule_is_served_and_a_named_checkpoint_all_the_same(
    team: Run, tmp_path: Path
) -> None:
    folder = recommended(team, tmp_path / "run", "rule")
    service = service_of(load_run(folder))
    assert (service.deciding, service.rule) == ("rule", "margin/spare")
    shown(words(service), "margin/spare", f"{folder}@best")
    service = service_of(load_run(f"{folder}@best"))
    assert (service.deciding, service.rule) == ("team", "margin/spare")


def test_a_recommended_team_is_the_best_checkpoint(team: Run, tmp_path: Path) -> None:
    folder = recommended(team, tmp_path / "run", "team")
    service = service_of(load_run(folder))
    assert (service.deciding, service.run) == ("team", f"{folder}@best")


def test_a_rule_or_another_fallback_is_named(team: Run) -> None:
    assert service_of(team, rule="static").rule == "static/equal"
    service = service_of(team, fallback="static/capacity")
    assert (service.deciding, service.rule) == ("team", "static/capacity")
    with refused(UnknownNameError, "'overflw'", "'overflow'"):
        service_of(team, rule="overflw")
    with refused(ValueError, "random/equal", "overflow/capacity"):
        service_of(team, fallback="random")


def test_a_shadow_of_a_recommended_rule_is_of_the_team(team: Run, tmp_path: Path) -> None:
    folder = recommended(team, tmp_path / "run", "rule")
    service = service_of(load_run(folder), shadow=tmp_path / "log.jsonl")
    assert service.log is not None
    service.log.close()
    assert (service.deciding, service.rule) == ("shadow", "margin/spare")
    shown(words(service), f"{folder}@best", "32 env steps")


def test_a_run_of_another_environment_is_refused(team: Run) -> None:
    env_config = dataclasses.replace(team.config.env_config, env="arena_v0")
    run = Run(team.folder, dataclasses.replace(team.config, env_config=env_config))
    with refused(RunError, "arena_v0", "dfaas_v0", "run.policies"):
        service_of(run)
    for place in (None, team.folder / "made/deeper"):
        with refused(RunError, "arena_v0", "dfaas_v0", "run.policies"):
            run.export("numpy", place)
    assert not (team.folder / "export").exists()
    assert not (team.folder / "made").exists()


def test_an_export_is_served_without_the_run(team: Run, tmp_path: Path) -> None:
    team.export("numpy", tmp_path / "gateway")
    service, own = service_of(tmp_path / "gateway"), service_of(team)
    assert (service.deciding, service.rule, service.nodes) == ("team", "overflow/equal", NAMES)
    shown(service.lines[0], f"{tmp_path}/gateway")
    asked = {"site-0": {"arrivals": 99, "capacity": 4}}
    for nodes in (NODES, {**NODES, **asked}, asked):
        assert service.decide(nodes) == own.decide(nodes)


@pytest.mark.parametrize("exported", [False, True])
def test_no_number_makes_a_team_raise(team: Run, tmp_path: Path, exported: bool) -> None:
    """Just above the largest of the training, margin or not, the guard knows why."""
    if exported:
        team.export("numpy", tmp_path / "gateway")
    service = service_of(tmp_path / "gateway" if exported else team, margin=1.0)
    for key, value in (("arrivals", 13), ("capacity", 13), ("queue", 6)):
        answer = service.decide({**NODES, "site-1": {**NODES["site-1"], key: value}})
        assert (answer.by, answer.reason) == ("rule", key)
        assert str(answer.detail).startswith(f"site-1: {key} {value}, not in 0 to ")
    for key in ("spare", "lost"):
        ended = {name: {"spare": 0, "lost": 0} for name in NAMES}
        answer = service.decide(NODES, {**ended, "site-1": {**ended["site-1"], key: 13}})
        assert (answer.by, answer.reason) == ("rule", key)


def test_an_exported_rule_is_served(team: Run, tmp_path: Path) -> None:
    found = load_run(recommended(team, tmp_path / "run", "rule")).recommendation
    found.export("numpy", tmp_path / "gateway")
    service = service_of(tmp_path / "gateway")
    assert (service.deciding, service.rule) == ("rule", "margin/spare")
    assert service.decide(NODES).forward == found.decide(NODES)


def test_a_rule_goes_before_a_fallback(team: Run, tmp_path: Path) -> None:
    assert service_of(team, rule="static", fallback="overflow").rule == "static/equal"
