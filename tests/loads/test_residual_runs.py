"""A run whose actions are offsets to a rule plays later days alike wherever it plays them."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains networks")

import corral
from corral.data import Trace
from corral.errors import ScaleError
from corral.loads.export.standalone import Decider
from corral.loads.rehearsal import rehearse
from corral.loads.replay import replay
from corral.trainers.evaluation.judge import players
from corral.trainers.runs.run import Run, load_run
from support.deciding import carried_out, moment_of, presented
from support.loads import days
from support.messages import refused
from support.thinned import fast_every

GAME: dict[str, Any] = {"queue": 6, "link_limit": 5, "forward_cost": 0.1}
RULE = "backlog=0.5/least"


def trained(folder: Path, **env_kwargs: Any) -> Run:
    return corral.train(
        "dfaas_v0", trainer="mappo", steps=480, out=folder,
        env_kwargs={"trace": days(6), "max_cycles": 24, "residual": RULE, **GAME, **env_kwargs},
        num_envs=2, n_steps=24, net_arch=(16,), learning_rate=0.05, preset="none",
        progress=False, validation=0,
    )  # fmt: skip


def later(run: Run, more: float = 1.6) -> Trace:
    """Four other days, on which some hours exceed all that the run was trained on."""
    trace = days(4, seed=9)
    arrivals, capacity = trace.arrivals.copy(), trace.capacity.copy()
    rng = np.random.default_rng(0)
    for table in (arrivals, capacity):
        hours = rng.random(len(table)) < 0.15
        table[hours] = np.rint(more * table[hours] + 4)
    trace = dataclasses.replace(trace, arrivals=arrivals, capacity=capacity)
    rules: Any = run.config.env_config.rules()
    assert arrivals.max() > rules.load_scale
    assert capacity.max() > rules.capacity_scale
    return trace


KINDS: dict[str, dict[str, Any]] = {
    "known": {"beyond": "rule"},
    "unknown": {"beyond": "rule", "arrivals": "unknown", "daily_mean": True, "last_counts": 2},
    "late": {"beyond": "rule", "arrivals": "unknown", "report_delay": 2},
    "clip": {"beyond": "clip", "arrivals": "unknown"},
    "local": {"beyond": "rule", "arrivals": "unknown", "residual": "local/fill", "offsets": 3},
}


class Runs(dict[str, Run]):
    """A run of each kind, trained when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, kind: str) -> Run:
        self[kind] = trained(self.folder / kind, **KINDS[kind])
        return self[kind]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def player_of(run: Run) -> Any:
    (player,) = [player for player in players(run) if player.mode == "greedy"]
    return player


def game_of(run: Run) -> dict[str, Any]:
    kwargs = run.config.env_config.env_kwargs
    keys = (*GAME, "arrivals", "report_delay")
    return {key: kwargs[key] for key in keys if key in kwargs}


@pytest.mark.parametrize("kind", fast_every(2, KINDS))
def test_decisions_are_what_a_replay_plays(runs: Runs, kind: str, tmp_path: Path) -> None:
    run = runs[kind]
    trace = later(run)
    run.export("numpy", tmp_path / "gateway")
    deciders = {"run": run.decider, "export": Decider(tmp_path / "gateway")}
    found = replay(trace, {"team": player_of(run), RULE: RULE}, optimum_windows=0, **game_of(run))
    sums = found.sums["team"]
    rules: Any = run.config.env_config.rules(
        trace=trace, rows=None, capacity=None, capacity_rows=None, start=0
    )
    totals = {"lost": 0, "forwarded": 0, "waiting": 0}
    by_rule = deviating = 0
    for window in range(4):
        state = rules.start_at(np.array([24 * window]), [np.random.default_rng(0)])
        memories = {name: decider.start() for name, decider in deciders.items()}
        previous = None
        for _ in range(24):
            nodes, time = moment_of(rules, state, trace.nodes)
            decisions = [
                decider.decide(nodes, previous, memories[name], **time)
                for name, decider in deciders.items()
            ]
            assert decisions[0] == decisions[1]
            rule = run.decider.by_rule(rules.carried()["residual"])
            plain = rule.decide(nodes, previous, rule.start())
            exceeds = bool(rules.exceeds(state)[0])
            by_rule += exceeds
            if rules.report_delay == 1:
                deviating += decisions[0] != plain
                assert decisions[0] == plain or not exceeds or rules.beyond == "clip"
            if rules.arrivals == "unknown":
                outcome = carried_out(rules, state, decisions[0])
            else:
                actions = np.zeros((1, 3), dtype=np.int64)
                seen = rules.observe(state)
                for i, agent in enumerate(rules.agents):
                    chosen = run.policies[agent].act(seen[agent], None, deterministic=True)
                    actions[0, i] = chosen.action[0]
                outcome = rules.step(copy.deepcopy(state), actions)
                sent = [sum(decisions[0][name].values()) for name in trace.nodes]
                assert sent == outcome.info["forwarded"][0].tolist()
            for key in totals:
                totals[key] += int(outcome.info[key].sum())
            state = outcome.state
            previous = presented(trace.nodes, spare=state.spare[0], lost=state.lost[0])
    assert by_rule > 5
    assert deviating > 3 or kind not in ("unknown", "local")
    for key in totals:
        assert totals[key] == int(getattr(sums, key).sum()), key


@pytest.mark.parametrize(
    "kind", [*fast_every(2, ("late", "unknown")), *fast_every(2, ("local", "clip"))]
)
def test_a_rehearsal_by_steps_costs_what_a_replay_costs(runs: Runs, kind: str) -> None:
    run = runs[kind]
    trace = later(run)
    rehearsal = rehearse(trace, {"team": run, RULE: RULE}, service="step", **game_of(run))
    policies: Any = {"team": player_of(run), RULE: RULE}
    replayed = replay(trace, policies, optimum_windows=0, **game_of(run))
    for label in policies:
        counts, expected = rehearsal.sums[label].counts, replayed.sums[label]
        for name in ("arrivals", "served", "lost", "forwarded", "waiting"):
            assert counts[name].tolist() == getattr(expected, name).tolist(), (label, name)


@pytest.mark.parametrize("kind", ["known", "unknown", "clip"])
def test_later_days_above_the_scales_can_be_evaluated(
    runs: Runs, kind: str, tmp_path: Path
) -> None:
    run = load_run(runs[kind].folder)
    trace = later(run)
    plain = Trace(trace.nodes, trace.arrivals, trace.capacity, trace.times, clock=trace.clock)
    replayed = replay(
        plain, {"team": player_of(run), RULE: RULE}, optimum_windows=0, **game_of(run)
    )
    for given in ({}, {"trace": trace}):
        found = corral.evaluate(run, references=(RULE, "overflow/spare"), out=tmp_path, **given)
        costs = {row.policy: row.cost for row in found if row.mode != "sampled"}
        assert {RULE, "overflow/spare"} < set(costs)
    (greedy,) = [row.policy for row in found if row.mode == "greedy"]
    expected = {score.policy: score.cost for score in replayed.scores}
    assert costs[greedy] == pytest.approx(expected["team"])
    assert costs[RULE] == pytest.approx(expected[RULE])


def test_without_beyond_they_are_an_error(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    reaches = dataclasses.replace(days(4), arrivals=days(4).arrivals * 3)
    scale = run.config.env_config.rules().load_scale
    with refused(ScaleError, f"{scale:g}", int(reaches.arrivals.max())):
        corral.evaluate(run, trace=reaches, out=tmp_path / "later")
