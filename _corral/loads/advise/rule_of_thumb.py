"""A rule of thumb for what a team has learned: a tree of three questions, replayed beside it.

The team plays the days that it was trained on; for each of its policies a tree is fitted to what
its nodes forwarded (``thumb_tree``). The trees then play the windows of a replay, with the
observations, levels and route of the team. What they serve there says how much of the team is this
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.masks import MASK, OBSERVATION
from corral.loads.advise.again import Again, again, require_label
from corral.loads.advise.thumb_tree import (
    CAME,
    Amount,
    Carried,
    Thumb,
    Tree,
    fitted,
    tree_lines,
)
from corral.loads.advise.words import number, wrapped
from corral.loads.judge import CAPACITY
from corral.loads.paired import has_costs
from corral.loads.replay import Entry, Replay, replay
from corral.loads.scores import Score
from corral.progress import Progress
from corral.trainers.evaluation.episodes import Turn
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run

__all__ = ["RuleOfThumb", "rule_of_thumb"]

LABEL = "rule of thumb"
DECISIONS = 60_000
"""Decisions that trees are fitted to, at most, but for one window of each node."""
NODES = 16
"""Nodes of one policy whose decisions are looked at, at most."""
TREES = 8
"""Trees that are printed."""


@dataclass(frozen=True)
class RuleOfThumb:
    """Trees of a team, and what they do in its place."""

    label: str  # the team's
    trees: dict[tuple[str, ...], Tree]  # by the nodes (of the trace) that play by it
    queue: int
    known: bool  # whether nodes know the arrivals of a step before it
    train: tuple[int, int]  # rows that they were fitted on
    decisions: int
    alike: float  # share of these decisions in which the tree forwards as many requests
    illegal: float  # share of the team's decisions that were illegal
    team: Score
    thumb: Score
    rule: str | None  # the best rule, where one was replayed
    rule_cost: float | None  # its cost in the same windows, in shares of the arrivals
    difference: float  # cost of the tree minus the team's in the same windows, in shares
    low: float | None  # 95 % interval of it
    high: float | None
    per_window: float  # that difference in requests per window
    unit: str  # "day" or "window"
    costs: bool  # whether anything costs something beside lost requests
    overlap: bool  # whether it was fitted on rows that it is judged on
    policy: Player = field(repr=False)
    """Plays it: ``replay(trace, {"rule of thumb": found.policy})``."""

    @property
    def said(self) -> str:
        """How much of the team this rule is, in a sentence."""
        own, team = (f"{100 * score.served:.1f}" for score in (self.thumb, self.team))
        if own == team:
            return f"This rule serves {own} % of the arrivals, as {self.label} does."
        if self.thumb.served > self.team.served:
            return (
                f"This rule serves {own} % of the arrivals, more than the {team} % of {self.label}."
            )
        return f"{own} of the {team} % of the arrivals that {self.label} serves is this rule."

    def lines(self) -> list[str]:
        """Return it in words, as plain if-lines; of at most 80 characters each."""
        low, high = self.train
        head = (
            f"Rule of thumb of {self.label}, fitted to {self.decisions:,} of its decisions on rows "
            f"{low}:{high}; in {np.floor(1000 * self.alike) / 10:g} % of them it forwards as much."
        )
        found = wrapped([head])
        for nodes, tree in list(self.trees.items())[:TREES]:
            if len(self.trees) > 1:
                found += wrapped([f"At {', '.join(nodes)}:"])
            found += wrapped(tree_lines(tree, self.queue, 2, self.known))
        if len(self.trees) > TREES:
            found.append(f"  ... and {len(self.trees) - TREES:,} more trees")
        return [*found, *wrapped(self._about())]

    def _about(self) -> list[str]:
        what = "costs" if self.costs else "loses"
        found = [self.said, f"It {what} as much as the team."]
        if self.difference:
            interval = ""
            if self.low is not None and self.high is not None:
                interval = f" (95 %: {100 * self.low:+.2f} to {100 * self.high:+.2f})"
            more = f"{'+' * (self.per_window > 0)}{number(self.per_window)}"
            found[1] = (
                f"It {what} {100 * self.difference:+.2f} points of the arrivals beside the team"
                f"{interval}: {more} requests a {self.unit}."
            )
        if self.rule is not None and self.rule_cost is not None:
            each = (self.thumb.cost, self.team.cost, self.rule_cost)
            own, team, best = (f"{100 * cost:.2f} %" for cost in each)
            found.append(f"Cost: {own}; of the team {team}; of the best rule, {self.rule}, {best}.")
        if self.policy.settings["observation"] == "summary":
            found.append("A summary tells ratios: requests are as if capacities were their means.")
        if self.illegal:
            found.append(
                f"{100 * self.illegal:.1f} % of the team's decisions were illegal, and forwarded "
                "all arrivals."
            )
        if self.overlap:
            found.append("It was fitted on some of the rows that it is judged on.")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            "team": self.label,
            "trees": [
                {"nodes": list(nodes), "tree": _tree_json(tree)}
                for nodes, tree in self.trees.items()
            ],
            "text": tree_text(self.trees, self.queue, self.known),
            "fitted_on_rows": list(self.train),
            "decisions": self.decisions,
            "alike": self.alike,
            "illegal": self.illegal,
            "served": self.thumb.served,
            "served_by_team": self.team.served,
            "cost": self.thumb.cost,
            "cost_of_team": self.team.cost,
            "best_rule": self.rule,
            "cost_of_best_rule": self.rule_cost,
            "difference": self.difference,
            "difference_low": self.low,
            "difference_high": self.high,
            "judged_on_rows_fitted": self.overlap,
            "said": self.said,
        }


def tree_text(trees: Mapping[tuple[str, ...], Tree], queue: int, known: bool) -> list[str]:
    """Return all trees as if-lines, each under the nodes that play by it."""
    found = []
    for nodes, tree in trees.items():
        found += [f"{', '.join(nodes)}:", *tree_lines(tree, queue, 2, known)]
    return found


def rule_of_thumb(
    result: Replay,
    label: str,
    entry: Entry | Run,
    *,
    train: tuple[int, int] | None = None,
    depth: int = 3,
    progress: Progress = lambda what, done, total: None,
) -> RuleOfThumb:
    """Fit a rule of thumb to a team of a replay, and replay it in the same windows.

    Args:
        result: what ``replay`` returned, for instance ``corral.evaluate(...).replay``.
        label: the team, as the replay names it.
        entry: the team, or its run.
        train: (low, high), rows whose decisions it is fitted to; default: those that the run was
            trained on, where it was trained on this load, else all before those replayed.
        depth: questions in a row, at most.
        progress: is told how far it is.

    Policies that play by one network get one tree. Under route "choose" the tree names the largest
    reported spare. Raises ValueError for a rule, a team that was not replayed, rows that are
    missing, and a team most of whose decisions are illegal; what ``again`` raises; and
    MissingExtraError without scikit-learn (extra ``advise``).
    """
    require_label(result, label)
    if label not in result.teams:
        raise ValueError(f"{label} is a rule already; a rule of thumb is fitted to a team")
    if depth < 1:
        raise ValueError(f"depth={depth}: give 1 or more")
    rows = _rows(result, entry, train)
    own = again(result, label, entry)
    if not isinstance(own.player, Player):
        raise ValueError(f"policy {label} makes plans: a rule of thumb is fitted to a team")
    seen = _decisions(own, own.player, rows, result.window, progress)
    trees: dict[str, Tree] = {}
    alike = decisions = 0
    for members, (inputs, forwarded) in seen.samples.items():
        tree = fitted(inputs, forwarded, seen.carried, depth)
        alike += int((seen.carried.tree(tree, inputs) == forwarded).sum())
        decisions += len(forwarded)
        trees |= dict.fromkeys(members, tree)
    alone = Amount("nothing")  # of nodes without neighbours
    team = {agent: Thumb(trees.get(agent, alone), own.rules, agent) for agent in own.rules.agents}
    player = Player(team, settings=own.rules.carried())
    settings = {key: value for key, value in result.settings.items() if key not in CAPACITY}
    again_played = replay(
        result.trace,
        {LABEL: player},
        rows=result.rows,
        window=result.window,
        seed=result.seed,
        optimum_windows=0,
        progress=progress,
        route=result.route,
        **settings,
    )
    beside, load = result.sums[label], result.sums[label].arrivals
    more = again_played.sums[LABEL].cost - beside.cost
    low, high = difference_interval(more, load, season=7 if result.days else 1)
    every = max(1, int(load.sum()))
    best = result.best_rule
    named = dict(zip(own.rules.agents, result.trace.nodes, strict=True))
    return RuleOfThumb(
        label=label,
        trees=_by_nodes({named[agent]: tree for agent, tree in trees.items()}),
        queue=own.rules.queue,
        known=own.rules.arrivals == "known",
        train=rows,
        decisions=decisions,
        alike=alike / max(1, decisions),
        illegal=seen.illegal,
        team=next(score for score in result.scores if score.policy == label),
        thumb=again_played.scores[0],
        rule=None if best is None else best.names[0],
        rule_cost=None if best is None else float(best.cost.sum()) / every,
        difference=float(more.sum()) / every,
        low=low,
        high=high,
        per_window=float(more.mean()),
        unit="day" if result.days else "window",
        costs=has_costs(result),
        overlap=rows[0] < result.rows[1] and result.rows[0] < rows[1],
        policy=player,
    )


# --- What a team decided -------------------------------------------------------------------------


def _rows(result: Replay, entry: Entry | Run, train: Sequence[int] | None) -> tuple[int, int]:
    """Return the rows to fit to. Raises ValueError where there are none."""
    first, length = result.rows[0], len(result.trace)
    if train is None and isinstance(entry, Run):
        config = entry.config.env_config
        load = config.trace
        if load is not None and np.array_equal(load.arrivals, result.trace.arrivals):
            train = config.env_kwargs.get("rows")
    if train is None:
        if not first:
            raise ValueError(
                "no rows come before those that were replayed: give train=(low, high), the rows "
                "that the team was trained on"
            )
        train = 0, first
    low, high = train
    if not 0 <= low < high <= length:
        raise ValueError(f"train={low}:{high}: give rows that lie in the trace's 0:{length}")
    return low, high


@dataclass(frozen=True)
class Seen:
    """Decisions by the agents that play by one policy: inputs, and requests forwarded, [S] each."""

    samples: dict[tuple[str, ...], tuple[dict[str, Array], Array]]
    illegal: float
    carried: Carried


def _decisions(
    own: Again, player: Player, rows: tuple[int, int], window: int, progress: Progress
) -> Seen:
    """Let the team play some windows of the rows, evenly spread; return its decisions.

    Raises ValueError if most of it is illegal."""
    groups = _groups(own, player)
    looked_at = {members: members[:: -(-len(members) // NODES)] for members in groups}
    steps = min(window, rows[1] - rows[0])
    each = steps * max(1, sum(map(len, looked_at.values())))
    whole = (rows[1] - rows[0]) // steps
    windows = np.linspace(0, whole - 1, min(whole, max(1, DECISIONS // each)))
    first = np.unique(windows.round().astype(np.int64)) * steps
    readers = {
        agent: Thumb(Amount("nothing"), own.rules, agent)
        for members in looked_at.values()
        for agent in members
    }
    rules, place = own.rules, {agent: i for i, agent in enumerate(own.rules.agents)}
    within = None if rules.caps is None else int(rules.caps * max(rules.network.degree))
    carried = Carried(rules.levels_of, rules.queue, within)
    # Not of a summary, in which requests are as at the mean capacity.
    after = rules.arrivals == "unknown" and rules.observation == "every"
    kept: dict[str, list[tuple[dict[str, Array], Array]]] = {agent: [] for agent in readers}
    illegal: list[int] = []

    def keep(turn: Turn) -> None:
        illegal.append(int(turn.step.info["illegal_actions"].sum()))
        actions = np.asarray(turn.actions)  # [B, N]
        levels = rules.actions.read(actions, np.zeros_like(actions))[0]
        for agent, reader in readers.items():
            i, observation = place[agent], turn.observations[agent]
            inputs = reader.inputs(observation[OBSERVATION])
            if after:
                inputs[CAME] = turn.step.info["arrivals"][:, i]
            meant = carried.forwarded(levels[:, i], inputs)
            legal = observation[MASK][np.arange(len(meant)), actions[:, i]] != 0
            kept[agent].append(
                (inputs, np.where(legal, meant, inputs.get(CAME, inputs["arrivals"])))
            )
        progress("decisions", turn.t + 1, steps)

    own.on_rows(rows).play(first, steps, keep)
    share = sum(illegal) / (len(first) * steps * len(own.rules.agents))
    if share > 0.5:
        raise ValueError(
            f"policy {own.label}: {100 * share:.0f} % of its decisions are illegal: there is no "
            "rule in them; give it the action mask"
        )
    samples = {m: _joined([t for a in looked_at[m] for t in kept[a]]) for m in groups}
    return Seen(samples, share, carried)


def _joined(turns: Sequence[tuple[dict[str, Array], Array]]) -> tuple[dict[str, Array], Array]:
    names = turns[0][0]
    inputs = {name: np.concatenate([found[name] for found, _ in turns]) for name in names}
    return inputs, np.concatenate([forwarded for _, forwarded in turns])


def _groups(own: Again, player: Player) -> list[tuple[str, ...]]:
    """Return which agents play by one policy or one network; not those without neighbours.

    Raises ValueError where nobody has one."""
    found: dict[int, list[str]] = {}
    for i, agent in enumerate(own.rules.agents):
        if own.rules.network.degree[i]:
            found.setdefault(id(_inner(player.team[agent])), []).append(agent)
    if not found:
        raise ValueError(f"policy {own.label}: no node has a neighbour to forward to")
    return [tuple(members) for members in found.values()]


def _inner(policy: Any) -> Any:
    """Return the network, model, object or function that a policy plays by."""
    own = getattr(policy, "__dict__", {})
    for name in ("network", "model", "player", "choose"):
        if name in own:
            return own[name]
    return policy


def _by_nodes(trees: Mapping[str, Tree]) -> dict[tuple[str, ...], Tree]:
    """Return equal trees once, by all nodes that play by them."""
    nodes: dict[Tree, list[str]] = {}
    for node, tree in trees.items():
        nodes.setdefault(tree, []).append(node)
    return {tuple(members): tree for tree, members in nodes.items()}


def _tree_json(tree: Tree) -> dict[str, Any]:
    if isinstance(tree, Amount):
        return {"forward": tree.kind, "value": tree.value, "text": str(tree)}
    parts = {"at_most": _tree_json(tree.low), "above": _tree_json(tree.high)}
    return {"input": tree.feature, "threshold": tree.at, **parts}
