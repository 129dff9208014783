"""Teams on loads that exceed their scales: played, counted, and refused without ``beyond``."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.policy import Decision
from corral.errors import ScaleError
from corral.loads.advise.again import again
from corral.loads.export.decider import Decider
from corral.loads.rehearsal import rehearse
from corral.loads.replay import TeamNote, replay
from corral.loads.serve.guard import Guard, Ranges
from corral.loads.serve.memory import Remembering
from corral.loads.serve.rule import Rule
from corral.loads.text import describe
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run
from support.loads import DAY, days, small_trace
from support.messages import refused, shown


class Fixed:
    """Always takes the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also: Any) -> Decision:
        return Decision(np.full(len(observation["action_mask"]), self.action))


AGENTS = ("node_0", "node_1", "node_2")
SCALES: dict[str, Any] = {"load_scale": 10.0, "capacity_scale": 9.0}


def team(action: int = 1, **settings: Any) -> Player:
    return Player(dict.fromkeys(AGENTS, Fixed(action)), True, {**SCALES, **settings})


def naive_count(trace: Trace, infos: list[dict[str, list[int]]], window: int, **game: Any) -> int:
    """Count, number by number, the steps in which a node observes a number above its scale.

    ``infos``: counts of the nodes in each step of the trace.
    """
    load, capacity = trace.arrivals.tolist(), np.asarray(trace.capacity).tolist()
    delay, counts = game.get("report_delay", 1), game.get("last_counts", 0)
    counts = max(counts, int(game.get("arrivals") == "unknown"))
    steps = 0
    for row in range(len(load)):
        t = row % window
        above = any(number > SCALES["capacity_scale"] for number in capacity[row])
        if game.get("arrivals", "known") == "known":
            above |= any(number > SCALES["load_scale"] for number in load[row])
        for back in range(1, counts + 1):
            if t >= back:
                above |= any(number > SCALES["load_scale"] for number in load[row - back])
        if t >= delay:
            info = infos[row - delay]
            for node in range(len(trace.nodes)):
                served = info["served_local"][node] + info["served_remote"][node]
                above |= capacity[row - delay][node] - served > SCALES["capacity_scale"]
                above |= info["lost"][node] > SCALES["load_scale"]
        steps += above
    return steps


def infos_of(result: Any, label: str, entry: Any, window: int) -> list[dict[str, list[int]]]:
    """Return the counts of the nodes in each step, from windows that are played one by one."""
    infos: list[dict[str, list[int]]] = []

    def add(turn: Any) -> None:
        infos.append({name: values[0].tolist() for name, values in turn.step.info.items()})

    one = again(result, label, entry)
    for first in range(0, len(result.trace), window):
        one.play(np.array([first]), min(window, len(result.trace) - first), add)
    return infos


@pytest.mark.parametrize(
    "game",
    [
        {},
        {"arrivals": "unknown"},
        {"arrivals": "unknown", "report_delay": 3},
        {"arrivals": "unknown", "last_counts": 4},
        {"report_delay": 2, "last_counts": 2},
    ],
    ids=str,
)
def test_the_steps_beyond_the_scales_are_counted_number_by_number(game: dict[str, Any]) -> None:
    trace, own = small_trace(steps=50), {k: v for k, v in game.items() if k != "report_delay"}
    shared = {k: v for k, v in game.items() if k in ("arrivals", "report_delay")}
    entry = team(beyond="clip", **own)
    result = replay(trace, {"team": entry, "local": "local/equal"}, window=20, queue=3, **shared)
    note = result.teams["team"]
    assert isinstance(note, TeamNote)
    expected = naive_count(trace, infos_of(result, "team", entry, 20), 20, **game)
    assert 0 < expected < 50
    assert (note.beyond, note.exceeding) == ("clip", expected)
    shown("\n".join(describe(result)), "team", expected, 50)


def test_a_load_within_the_scales_has_no_such_step() -> None:
    entry = team(beyond="clip", load_scale=12.0, capacity_scale=12.0)
    note = replay(small_trace(), {"team": entry}, window=20).teams["team"]
    assert (note.beyond, note.exceeding) == ("clip", 0)


def test_all_steps_beyond_the_scales_are_played_by_the_rule() -> None:
    trace = small_trace(steps=40)
    capacity = np.asarray(trace.capacity) + 10  # above the scale in every step
    trace = changed(trace, capacity=capacity, arrivals=trace.arrivals * 2)
    rule = "backlog=0.5/least"
    entry = team(0, residual=rule, offsets=2, beyond="rule", arrivals="unknown", route="least")
    game: dict[str, Any] = {"queue": 4, "arrivals": "unknown", "link_limit": 3}
    result = replay(trace, {"team": entry, rule: rule}, window=20, **game)
    assert result.teams["team"].exceeding == 40
    assert result.sums["team"].cost.tolist() == result.sums[rule].cost.tolist()


@pytest.mark.parametrize(("factor", "by"), [(1.3, "team"), (1.6, "rule")])
def test_a_server_lets_the_team_play_up_to_its_scales_as_a_replay_does(
    factor: float, by: str
) -> None:
    """The scales are 1.5 times the largest number of the training, 12, as in a run from a rule."""
    game: dict[str, Any] = {"queue": 4, "arrivals": "unknown"}
    own: dict[str, Any] = {"residual": "backlog=0.5/least", "offsets": 2, "beyond": "rule"}
    own |= {"load_scale": 18.0, "capacity_scale": 18.0}
    trace = small_trace(steps=40)
    assert trace.arrivals.max() == np.asarray(trace.capacity).max() == 12
    rules = DfaasRules(trace, route="least", **game, **own)
    action = 1 if by == "team" else 0  # above the scales only the rule's action is legal
    decider = Decider(rules, dict.fromkeys(rules.agents, Fixed(action)))
    rule = Rule(str(own["residual"]), decider.about)
    guard = Guard(Remembering(decider), rule.decide, Ranges.seen(decider.about))
    number = int(12 * factor)
    nodes = {name: {"last_arrivals": number, "capacity": number} for name in trace.nodes}
    ended = {name: {"spare": number, "lost": number} for name in trace.nodes}
    answer = guard.decide(nodes, ended)
    assert answer.by == by
    busier = changed(trace, arrivals=np.full_like(trace.arrivals, number))
    entry = team(action, arrivals="unknown", route="least", **own)
    note = replay(busier, {"team": entry}, window=20, **game).teams["team"]
    assert note.exceeding == (0 if by == "team" else 38)  # the first step of a window knows none
    if by == "rule":  # the rule of the run, in both
        assert answer.plan == Remembering(decider)(nodes, ended, None)[0]


def test_beyond_of_a_replay_replaces_that_of_its_teams() -> None:
    trace = small_trace()
    with refused(ScaleError, "policy team", "load_scale=10", "load_scale=12", "'clip'"):
        replay(trace, {"team": team()}, window=20)
    result = replay(trace, {"team": team()}, window=20, beyond="clip")
    assert result.teams["team"].beyond == "clip"
    assert result.teams["team"].exceeding > 0
    assert "beyond" not in result.settings
    with refused(ValueError, "policy team", "'rule'", "residual"):
        replay(trace, {"team": team()}, window=20, beyond="rule")
    with refused(ValueError, "beyond", "'cut'"):
        replay(trace, {"team": team()}, window=20, beyond="cut")


# --- Runs ----------------------------------------------------------------------------------------

GAME: dict[str, Any] = {"queue": 5, "forward_cost": 0.1, "arrivals": "unknown", "max_cycles": DAY}
RULE = "backlog=0.75/least"


def later(count: int = 3) -> Trace:
    """Days with more arrivals and, at one node, more capacity than those of training."""
    trace = days(count, seed=5)
    capacity = np.asarray(trace.capacity).copy()
    capacity[::7, 1] += 30
    return changed(trace, arrivals=trace.arrivals * 2, capacity=capacity, name="later")


def trained(folder: Path, **more: Any) -> Run:
    pytest.importorskip("torch", reason="needs the extra mappo")
    return corral.train(
        "dfaas_v0",
        trainer="ippo",
        env_kwargs={"trace": days(6), **GAME, **more},
        num_envs=2,
        n_steps=8,
        n_epochs=1,
        n_minibatches=1,
        steps=16,
        out=folder,
        progress=False,
    )


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("run"), residual=RULE, offsets=2, beyond="rule")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("run"), amount="keep")


def test_a_run_is_evaluated_on_later_days_beyond_its_scales(residual: Run, tmp_path: Path) -> None:
    options: dict[str, Any] = {"trace": later(), "out": tmp_path, "optimum_windows": 0}
    result = corral.evaluate(residual, references=["local/equal"], **options)
    notes = result.details["teams"]
    assert {note["beyond"] for note in notes.values()} == {"rule"}
    assert all(0 < note["exceeding"] <= 3 * DAY for note in notes.values())
    assert result.replay is not None
    clipped = corral.evaluate(residual, references=["local/equal"], beyond="clip", **options)
    assert {note["beyond"] for note in clipped.details["teams"].values()} == {"clip"}
    page = (tmp_path / "report.html").read_text()
    shown(page, *{note["exceeding"] for note in clipped.details["teams"].values()})


def test_a_run_without_beyond_names_the_remedy(plain: Run, tmp_path: Path) -> None:
    options: dict[str, Any] = {"trace": later(), "out": tmp_path, "optimum_windows": 0}
    with refused(ScaleError, "load_scale", "beyond", "'clip'", int(later().arrivals.max())):
        corral.evaluate(plain, **options)
    result = corral.evaluate(plain, references=["local/equal"], beyond="clip", **options)
    assert all(note["exceeding"] for note in result.details["teams"].values())
    with refused(ValueError, "'rule'", "residual"):
        corral.evaluate(plain, beyond="rule", **options)


@pytest.mark.parametrize("beyond", [None, "clip"])
def test_a_rehearsal_counts_the_decisions_beyond_the_scales(
    residual: Run, beyond: str | None
) -> None:
    load, rules = later(), residual.config.env_config.rules()
    assert isinstance(rules, DfaasRules)
    # The last counts and the capacities; spare is at most a capacity, lost at most an arrival.
    above = (np.asarray(load.capacity) > rules.capacity_scale).any(axis=1)
    counts = (load.arrivals > rules.load_scale).any(axis=1)
    spare = np.zeros_like(above)  # of a node with more capacity than its scale
    for row in range(len(load)):
        if row % DAY:
            above[row] |= counts[row - 1]
            spare[row] = (np.asarray(load.capacity)[row - 1] > rules.capacity_scale).any()
    game = {key: value for key, value in GAME.items() if key != "max_cycles"}
    game |= {} if beyond is None else {"beyond": beyond}
    result = rehearse(load, {"team": residual}, window=DAY, parts=False, **game)
    assert result.beyond == {"team": beyond or "rule"}
    assert above.sum() <= result.exceeding["team"] <= (above | spare).sum()
    assert result.to_json()["exceeding"] == result.exceeding
    assert result.to_dataframe()["exceeding"].sum() == result.exceeding["team"]
    shown("\n".join(result.about()), result.exceeding["team"], 3 * DAY)


def test_a_rehearsal_refuses_a_load_beyond_the_scales(plain: Run) -> None:
    game = {key: value for key, value in GAME.items() if key != "max_cycles"}
    largest = int(later().arrivals.max())
    with refused(ScaleError, "policy team", "arrivals", largest, "'clip'"):
        rehearse(later(), {"team": plain}, window=DAY, parts=False, **game)
    result = rehearse(later(), {"team": plain}, window=DAY, beyond="clip", **game)
    assert result.exceeding["team"] > 0
    assert set(result.promises) == {"team"}
