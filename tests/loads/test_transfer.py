"""A team of dfaas_v0 that learned from a summary plays other traces, whatever their nodes."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.data import Trace, make_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.errors import RunError
from corral.loads.judge import on_other_nodes
from corral.loads.replay import play_windows, replay
from corral.loads.textbook import play_rules
from corral.trainers.evaluation import episodes
from corral.trainers.evaluation.judge import run_players
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.messages import refused, shown

SMALL: dict[str, Any] = {"steps": 1_024, "num_envs": 16, "n_steps": 16, "progress": False}
SUMMARY = {"observation": "summary", "max_cycles": 24, "max_level": 20}


def load(nodes: int, days: int = 1) -> Trace:
    return make_trace(nodes=nodes, days=days, step=3600, mean=30.0, seed=nodes)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The overflow of 3 nodes, cloned."""
    pytest.importorskip("torch", reason="training needs torch: corral[mappo]")
    out = tmp_path_factory.mktemp("runs") / "three"
    kwargs = {"trace": load(3, days=10), "route": "spare", **SUMMARY}
    return corral.clone(
        "dfaas_v0", "overflow/spare", env_kwargs=kwargs, out=out, episodes=4, **SMALL
    )


def test_its_policy_is_shared_and_not_told_whom_it_plays(run: Run) -> None:
    assert set(run.config.policies.values()) == {"shared"}
    assert run.config.settings["agent_id"] is False
    kwargs = {"trace": load(3, days=10), **SUMMARY}
    trained = corral.train("dfaas_v0", env_kwargs=kwargs, dry_run=True, preset="none")
    assert trained.config.settings["agent_id"] is False
    assert set(trained.config.policies.values()) == {"shared"}


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"agent_id": True}, ("agent_id=True", "observation='summary'")),
        ({"policies": "separate"}, ("policies='separate'", "observation='summary'")),
    ],
)
def test_what_would_tie_it_to_its_nodes_is_refused(
    given: dict[str, Any], values: tuple[str, ...]
) -> None:
    pytest.importorskip("torch", reason="training needs torch: corral[mappo]")
    with refused(ValueError, *values):
        corral.train("dfaas_v0", env_kwargs=SUMMARY, dry_run=True, **given)


@pytest.mark.parametrize("nodes", [1, 2, 5, 20])
def test_it_replays_a_trace_of_other_nodes(run: Run, nodes: int) -> None:
    result = replay(load(nodes), {"overflow": "overflow/spare", **run_players({"mine": run})})
    scores = {score.policy: score for score in result.scores}
    greedy = scores["mine, greedy"]
    assert len(greedy.lost_by_node) == nodes
    assert greedy.illegal_actions == 0
    # It learned the overflow of three nodes, and forwards it here too.
    assert abs(greedy.lost - scores["overflow"].lost) < 0.03
    assert result.teams["mine, greedy"].settings["observation"] == "summary"


def test_it_is_evaluated_on_another_trace(run: Run, tmp_path: Path) -> None:
    found = corral.evaluate(
        run.folder, trace=load(5), out=tmp_path, references=["local/equal", "overflow/spare"]
    )
    rows = {row.policy: row for row in found.rows}
    assert len(rows["clone, greedy"].returns) == 5
    assert rows["clone, greedy"].lost < rows["local/equal"].lost
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown(page, "observation summary", "clone was trained on 3 nodes", "plays 5", "transfer.md")


def test_a_sentence_about_other_nodes_only_where_they_are_others(run: Run) -> None:
    assert on_other_nodes("mine", run, load(3)) is None
    shown(on_other_nodes("mine", run, load(20)) or "", "mine", "3 nodes", "plays 20", "transfer.md")


@pytest.mark.parametrize("observation", ["summary", "neighborhood"])
@pytest.mark.parametrize("nodes", [3, 20])
def test_an_untrained_residual_team_is_its_rule_everywhere(
    tmp_path: Path, observation: str, nodes: int
) -> None:
    """It takes its rule along to other nodes, and prefers offset 0 with any number of them."""
    pytest.importorskip("torch", reason="training needs torch: corral[mappo]")
    rule = "backlog=0.75/least"
    shared: dict[str, Any] = {"arrivals": "unknown", "queue": 9, "forward_cost": 0.1}
    kwargs = {"observation": observation, "residual": rule, "max_cycles": 24, **shared}
    team = corral.train(
        "dfaas_v0",
        trainer="mappo",
        env_kwargs={"trace": load(3, days=10), **kwargs},
        out=tmp_path / "run",
        validation=0,
        preset="none",
        **{**SMALL, "steps": 256, "learning_rate": 1e-9},
    )
    assert set(team.config.policies.values()) == {"shared"}
    rules = DfaasRules(load(nodes), **{**kwargs, "max_cycles": 24})
    player = as_player(Player(team.policies), rules.agents)
    ended, _ = play_windows(rules, player, 24)
    expected = play_rules(load(nodes), [rule], window=24, **shared)[rule].cost
    costs = -ended.returns.sum(axis=1) * rules.load_scale
    np.testing.assert_allclose(costs, expected, rtol=1e-5)
    assert expected.sum() > 0


def test_references_of_its_replay_forward_single_requests(run: Run) -> None:
    result = replay(load(3), {"overflow": "overflow", **run_players({"mine": run})})
    alone = replay(load(3), ["overflow"])
    assert result.scores[0].lost == alone.scores[0].lost


def test_a_team_of_every_node_stays_with_its_nodes() -> None:
    rules = DfaasRules(small_trace())
    team = baseline_team("local", rules)
    with refused(ValueError, "3 agents (node_0, node_1, node_2)", "5 (node_0, node_1"):
        as_player(team, DfaasRules(small_trace(5)).agents)


def test_it_is_watched_elsewhere(run: Run) -> None:
    shown: list[str] = []
    kwargs = {"trace": load(5), "route": "spare", **SUMMARY}
    seen = corral.watch("dfaas_v0", policies=run.folder, text=shown.append, steps=3, **kwargs)
    assert seen.steps == 3
    assert len(seen.returns) == 5
    assert "node_4" in shown[-1]


def test_its_policies_are_those_of_any_agent(run: Run) -> None:
    assert list(run.policies) == ["node_0", "node_1", "node_2"]
    assert run.policies["node_17"] is run.policies["node_0"]


# --- Learning on from it -------------------------------------------------------------------------


def test_another_number_of_nodes_takes_its_actor_and_leaves_its_critic(
    run: Run, tmp_path: Path
) -> None:
    with redirect_stderr(io.StringIO()) as said:
        more = corral.train(
            "dfaas_v0",
            init=run.folder,
            env_kwargs={"trace": load(5, days=10)},
            out=tmp_path / "five",
            **{**SMALL, "steps": 256},
        )
    shown(said.getvalue(), "actor taken", "critic fresh")
    kwargs = more.config.env_config.env_kwargs
    assert (kwargs["observation"], kwargs["route"], kwargs["max_level"]) == ("summary", "spare", 20)
    assert kwargs["load_scale"] == max(1, load(5, days=10).arrivals.max())  # not the other run's


def test_a_run_of_every_node_does_not_start_from_it(run: Run) -> None:
    with pytest.raises(RunError, match="observation"):
        corral.train(
            "dfaas_v0",
            init=run.folder,
            env_kwargs={"trace": load(3, days=10), "observation": "every"},
            dry_run=True,
        )


def test_it_teaches_other_nodes(run: Run, tmp_path: Path) -> None:
    kwargs = {"trace": load(5, days=10), "route": "spare", **SUMMARY}
    small = {**SMALL, "steps": 256}
    taught = corral.clone(
        "dfaas_v0", run.folder, env_kwargs=kwargs, out=tmp_path / "taught", episodes=2, **small
    )
    assert len(taught.config.policies) == 5


# --- Asked for many agents at once ---------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [True, False])
def test_many_agents_at_once_decide_as_one_by_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    rules = DfaasRules(load(12), observation="summary", max_level=20, max_cycles=24, start=0)
    player = as_player(Player(run.policies, deterministic), rules.agents)
    played = []
    for many in (episodes.MANY, 10**9):
        monkeypatch.setattr(episodes, "MANY", many)
        ended, _ = play_windows(rules, Player(player.team, deterministic), 12)
        played.append(ended.returns)
    np.testing.assert_array_equal(*played)
