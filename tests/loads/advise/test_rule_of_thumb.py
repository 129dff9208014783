"""Rules of thumb: teams that are such a rule are found again, and replayed to the request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.amounts import Requests
from corral.envs.dfaas_v0.baselines import Baseline, baseline_team
from corral.envs.policy import Decision
from corral.errors import ActionError, MissingExtraError
from corral.loads.advise.rule_of_thumb import RuleOfThumb, rule_of_thumb
from corral.loads.advise.thumb_tree import Amount, Carried, Split, Tree, fitted, tree_lines
from corral.loads.replay import Replay, replay
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.messages import refused, shown

pytest.importorskip("sklearn", reason="a rule of thumb needs scikit-learn: corral[advise]")

TRACE = small_trace(steps=120)
JUDGED = (80, 120)


class Follows(Baseline):
    """Forwards what a function of arrivals, capacity, queue and the others' spare says."""

    def __init__(self, rule: Callable[..., Array], rules: DfaasRules, agent: str) -> None:
        super().__init__("overflow", rules, agent)
        self.rule = rule

    def _forwarded(self, features: Array) -> Array:
        wanted = self.rule(*self.read.load(features), self.read.spare(features))
        return np.asarray(np.clip(wanted, 0, self.read.load(features)[0]))


def team_of(*rules: Callable[..., Array], trace: Trace = TRACE, **settings: Any) -> dict[str, Any]:
    """A policy for each node, the last for all others."""
    world = DfaasRules(trace, **settings)
    policies = [Follows(rule, world, world.agents[0]) for rule in rules]
    return {agent: policies[min(i, len(rules) - 1)] for i, agent in enumerate(world.agents)}


def found_of(team: Any, *, trace: Trace = TRACE, own: Any = None, **settings: Any) -> RuleOfThumb:
    entry = Player(team, settings=own or {})
    result = judged(entry, trace, **settings)
    return rule_of_thumb(result, "team", entry)


def judged(entry: Any, trace: Trace = TRACE, **settings: Any) -> Replay:
    policies = {"overflow/equal": "overflow/equal", "team": entry}
    return replay(trace, policies, rows=JUDGED, window=5, optimum_windows=0, **settings)


def only(found: RuleOfThumb) -> Tree:
    """The one tree of all nodes."""
    (tree,) = found.trees.values()
    return tree


def is_the_team(found: RuleOfThumb) -> bool:
    return (found.alike, found.difference, found.low, found.high) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("amount", "tree"),
    [
        ("local", Amount("nothing")),
        ("overflow", Amount("beyond")),
        ("threshold", Amount("beyond", 80)),
        ("margin", Amount("margin")),
        ("patient", Amount("patient")),
        ("static", Amount("share", 40)),
    ],
)
def test_a_team_that_is_a_rule_is_found_again(amount: str, tree: Tree) -> None:
    found = found_of(baseline_team(amount, DfaasRules(TRACE, queue=2)), queue=2)
    assert only(found) == tree
    assert is_the_team(found)
    assert found.thumb.served == found.team.served
    assert next(iter(found.trees)) == ("site-0", "site-1", "site-2")
    assert f"  forward {tree}" in found.lines()


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize(
    ("amount", "tree"),
    [
        ("local", Amount("nothing")),
        ("overflow", Amount("beyond")),
        ("threshold", Amount("beyond", 80)),
        ("patient", Amount("patient")),
        ("backlog=0.5", Amount("backlog", 50)),
    ],
)
def test_a_team_that_keeps_is_found_again(amount: str, tree: Tree, arrivals: str) -> None:
    """With actions that say how many requests stay, and arrivals that may be unknown."""
    own: dict[str, Any] = {"amount": "keep", "arrivals": arrivals}
    game: dict[str, Any] = {"queue": 8, "link_limit": 5}
    team = baseline_team(amount, DfaasRules(TRACE, **own, **game))
    found = found_of(team, own=own, arrivals=arrivals, **game)
    assert only(found) == tree
    assert is_the_team(found)
    assert found.known == (arrivals == "known")


def test_with_unknown_arrivals_a_tree_asks_for_those_of_the_last_step() -> None:
    class Follows(Baseline):
        def _level(self, features: Any, mask: Any) -> Any:
            arrivals, capacity, _ = self.read.load(features)  # of the last step
            level = np.where(arrivals > 7, self.levels.of_keep(capacity), 0)  # type: ignore[union-attr]
            return np.minimum(level, self._most(features, mask))

    own: dict[str, Any] = {"amount": "keep", "arrivals": "unknown"}
    rules = DfaasRules(TRACE, **own)
    team = dict.fromkeys(rules.agents, Follows("overflow", rules))
    found = found_of(team, own=own, arrivals="unknown")
    assert only(found) == Split("arrivals", 7, Amount("nothing"), Amount("beyond"))
    assert is_the_team(found)
    shown("\n".join(found.lines()), "if arrivals of the last step <= 7:")


def test_a_threshold_on_the_arrivals_is_found_to_the_request() -> None:
    team = team_of(lambda a, c, q, spare: np.where(a > 7, a - c, 0))
    found = found_of(team)
    assert only(found) == Split("arrivals", 7, Amount("nothing"), Amount("beyond"))
    assert is_the_team(found)
    lines = found.lines()
    start = lines.index("  if arrivals <= 7:")
    assert lines[start : start + 4] == [
        "  if arrivals <= 7:",
        "      forward nothing",
        "  else:",
        "      forward arrivals beyond the capacity",
    ]


def test_what_the_others_reported_is_asked_for() -> None:
    team = team_of(lambda a, c, q, spare: np.where(spare > 4, a - c, 0))
    found = found_of(team)
    tree = only(found)
    assert isinstance(tree, Split)
    assert (tree.feature, tree.low, tree.high) == ("spare", Amount("nothing"), Amount("beyond"))
    assert tree.at == 4
    assert is_the_team(found)


def test_a_fixed_number_is_found() -> None:
    found = found_of(team_of(lambda a, c, q, spare: np.where(a > c, 3, 0)))
    tree = only(found)
    assert isinstance(tree, Split)
    assert {str(tree.low), str(tree.high)} == {"nothing", "3 requests"}
    assert found.alike == 1


def test_policies_of_their_own_have_trees_of_their_own() -> None:
    team = team_of(
        lambda a, c, q, spare: a - c * 80 // 100,
        lambda a, c, q, spare: 0 * a,
        lambda a, c, q, spare: a - c * 80 // 100,
    )
    found = found_of(team)
    assert found.trees == {
        ("site-0", "site-2"): Amount("beyond", 80),
        ("site-1",): Amount("nothing"),
    }
    assert is_the_team(found)
    lines = found.lines()
    assert lines[lines.index("At site-1:") + 1] == "  forward nothing"


def test_one_network_for_all_gets_one_tree() -> None:
    class Shared:
        """Nodes differ only by what they observe; each is played by an object of its own."""

        def __init__(self, inner: Any, network: object) -> None:
            self.inner, self.network = inner, network

        def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
            return Decision(self.inner.choose(observation, None))

    inner, network = team_of(lambda a, c, q, spare: a - c), object()
    found = found_of({agent: Shared(one, network) for agent, one in inner.items()})
    assert found.decisions == 3 * 80
    assert only(found) == Amount("beyond")


def test_the_rule_says_how_much_of_the_team_it_is() -> None:
    """What it forwards hangs on the last digit: three questions are too few."""
    bits = [1, 5, 2, 7, 0, 4, 3, 6]
    team = team_of(lambda a, c, q, spare: np.where(np.isin(a % 8, bits[:4]), a - c, (a - c) // 2))
    found = found_of(team)
    assert 0.5 < found.alike < 1
    own, served = f"{100 * found.thumb.served:.1f}", f"{100 * found.team.served:.1f}"
    assert own in found.said
    assert served in found.said
    again = replay(TRACE, {"rule": found.policy}, rows=JUDGED, window=5, optimum_windows=0)
    assert again.scores[0].served == found.thumb.served
    assert again.scores[0].cost - found.team.cost == pytest.approx(found.difference)


@pytest.mark.parametrize(
    "own",
    [
        {"observation": "summary", "max_level": 40},
        {"route": "choose"},
        {"observation": "summary", "route": "choose"},
        {"max_level": 3},
        {"amount": "quantile", "max_level": 4},
    ],
)
def test_it_plays_with_the_observations_levels_and_route_of_the_team(own: dict[str, Any]) -> None:
    trace = Trace(TRACE.nodes, TRACE.arrivals, np.full_like(TRACE.arrivals, 6), TRACE.times)
    rules = DfaasRules(trace, rows=JUDGED, **own)
    found = found_of(baseline_team("threshold", rules), trace=trace, own=own)
    assert set(found.trees.values()) == {Amount("beyond", 80)}
    assert is_the_team(found)
    assert max(map(len, found.lines())) <= 80


def test_illegal_actions_are_told_and_nonsense_is_refused() -> None:
    class Often:
        """Chooses the largest action, legal or not, where few arrive."""

        def __init__(self, below: int) -> None:
            self.below = below

        def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
            arrivals = observation["action_mask"].sum(axis=1) - 1
            return Decision(np.where(arrivals < self.below, 12, 0))

    found = found_of(dict.fromkeys(DfaasRules(TRACE).agents, Often(3)))
    assert 0 < found.illegal < 0.5
    shown("\n".join(found.lines()), f"{100 * found.illegal:.1f} %", "illegal")
    assert str(only(found).low) == "all arrivals"  # type: ignore[union-attr]
    with refused(ValueError, "policy team", "91 %", "mask"):
        found_of(dict.fromkeys(DfaasRules(TRACE).agents, Often(12)))
    result = judged(baseline_team("local", DfaasRules(TRACE)))
    with refused(ActionError, "policy team", "node_0", "<U4 (16,)", "shape (16,)"):
        rule_of_thumb(result, "team", lambda observation: "five")


def test_its_actions_are_legal_whatever_is_observed() -> None:
    found = found_of(team_of(lambda a, c, q, spare: a))
    result = replay(small_trace(steps=60, seed=1), {"rule": found.policy}, optimum_windows=0)
    assert result.scores[0].illegal_actions == 0


@pytest.mark.parametrize(
    ("label", "given", "values"),
    [
        ("overflow/equal", {}, ("overflow/equal", "rule", "team")),
        ("mine", {}, ("'mine'", "overflow/equal, team")),
        ("team", {"train": (50, 121)}, ("train=50:121", "0:120")),
        ("team", {"train": (9, 9)}, ("train=9:9", "0:120")),
        ("team", {"depth": 0}, ("depth=0", "1")),
    ],
)
def test_mistakes_are_told(label: str, given: dict[str, Any], values: tuple[str, ...]) -> None:
    team = baseline_team("local", DfaasRules(TRACE))
    with refused(ValueError, *values):
        rule_of_thumb(judged(team), label, team, **given)


def test_nodes_without_neighbours_have_no_rule() -> None:
    own: dict[str, Any] = {"neighbours": {"site-0": ["site-1"]}}
    rules = DfaasRules(TRACE, **own)
    found = found_of(baseline_team("overflow", rules), own=own)
    assert found.trees == {("site-0",): Amount("beyond")}
    assert is_the_team(found)
    with refused(ValueError, "policy team"):
        found_of(
            baseline_team("overflow", DfaasRules(TRACE, neighbours={})), own={"neighbours": {}}
        )


def test_rows_to_fit_to_are_asked_for_where_none_come_before() -> None:
    team = baseline_team("threshold", DfaasRules(TRACE))
    result = replay(TRACE, {"team": team}, optimum_windows=0)
    with refused(ValueError, "train=(low, high)"):
        rule_of_thumb(result, "team", team)
    found = rule_of_thumb(result, "team", team, train=(0, 120))
    assert found.overlap
    assert any("fitted" in line and "judged" in line for line in found.lines())
    assert (found.rule, found.rule_cost) == (None, None)


def test_a_run_of_another_environment_is_refused() -> None:
    run = object.__new__(Run)
    run.folder = "runs/tic"  # type: ignore[assignment]
    config = type("E", (), {"env": "tictactoe_v0", "trace": None})
    run.config = type("C", (), {"env_config": config})  # type: ignore[assignment]
    with refused(ValueError, "runs/tic", "tictactoe_v0", "dfaas_v0"):
        rule_of_thumb(judged(baseline_team("local", DfaasRules(TRACE))), "team", run)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    with refused(MissingExtraError, "sklearn", "pip install '.[advise]'"):
        found_of(baseline_team("local", DfaasRules(TRACE)))


def test_json_holds_the_tree_and_the_figures() -> None:
    found = found_of(team_of(lambda a, c, q, spare: np.where(a > 7, a - c, 0)))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["said"] == found.said
    tree = told["trees"][0]["tree"]
    assert (tree["input"], tree["threshold"]) == ("arrivals", 7)
    assert tree["at_most"] == {"forward": "nothing", "value": 100, "text": "nothing"}
    assert told["text"][:2] == ["site-0, site-1, site-2:", "  if arrivals <= 7:"]


def test_a_tree_has_three_questions_in_a_row_and_if_lines() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 40, 2000)
    forwarded = np.select([a < 10, a < 20, a < 30], [0 * a, a, a // 2], a // 4)
    names = ("capacity", "queue", "spare", "lost")
    inputs = {"arrivals": a, **{name: np.full_like(a, 10) for name in names}}
    inputs |= {"overflow": a, "load": 10 * a, "room": 10 - a}
    tree = fitted(inputs, forwarded, Carried(Requests(40), 0), 3)
    assert tree_lines(tree, 0) == [
        "if arrivals <= 29:",
        "    if arrivals <= 19:",
        "        if arrivals <= 9:",
        "            forward nothing",
        "        else:",
        "            forward all arrivals",
        "    else:",
        "        forward 50 % of the arrivals",
        "else:",
        "    forward 25 % of the arrivals",
    ]
    assert (
        tree_lines(fitted(inputs, forwarded, Carried(Requests(40), 0), 1), 0)[0]
        == "if arrivals <= 29:"
    )


def test_long_loads_are_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.loads.advise.rule_of_thumb.DECISIONS", 100)
    found = found_of(baseline_team("threshold", DfaasRules(TRACE)))
    assert found.decisions == 3 * 5 * 6  # 3 nodes, windows of 5 steps: 6 of the 16
    assert only(found) == Amount("beyond", 80)
