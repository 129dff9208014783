"""Approximate a team by a rule of thumb: a tree of at most three questions for each policy.

The team plays the days on which it was trained. For each of its policies a tree is fitted to the
number of requests that its nodes forwarded (``thumb_tree``). The trees then play the windows of a
replay, with the observations, action levels and route of the team. Comparing the served requests
shows how well the rule of thumb approximates the team.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.features import SUMMARIES
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
"""Trees are fitted to at most this many decisions, but to at least one window of each node."""
NODES = 16
"""At most this many nodes of one policy contribute decisions."""
TREES = 8
"""At most this many trees are printed."""


@dataclass(frozen=True)
class RuleOfThumb:
    """The trees of a team, and their results in its place."""

    label: str  # of the team
    trees: dict[tuple[str, ...], Tree]  # by the trace's names of the nodes that use the tree
    queue: int
    known: bool  # whether nodes know a step's arrivals before the step
    train: tuple[int, int]  # rows to which the trees were fitted
    decisions: int  # number of decisions to which they were fitted
    alike: float  # share of these decisions in which the tree forwards the same number of requests
    illegal: float  # share of the team's decisions that were illegal
    team: Score
    thumb: Score
    rule: str | None  # the best rule, if one was replayed
    rule_cost: float | None  # its cost in the same windows, as a share of the arrivals
    difference: float  # cost of the trees minus that of the team in the same windows, as a share
    low: float | None  # 95 % interval of it
    high: float | None
    per_window: float  # that difference in requests per window
    unit: str  # "day" or "window"
    costs: bool  # whether forwarding or waiting has a cost
    overlap: bool  # whether some of the judged rows were used for fitting
    policy: Player = field(repr=False)
    """The trees as a team: ``replay(trace, {"rule of thumb": result.policy})``."""

    @property
    def said(self) -> str:
        """A sentence that compares the requests served by the trees and by the team."""
        thumb, team = (f"{100 * score.served:.1f}" for score in (self.thumb, self.team))
        if thumb == team:
            return f"The rule of thumb serves {thumb} % of the arrivals, the same as {self.label}."
        if self.thumb.served > self.team.served:
            return (
                f"The rule of thumb serves {thumb} % of the arrivals, more than the {team} % of "
                f"{self.label}."
            )
        return (
            f"The rule of thumb serves {thumb} % of the arrivals, less than the {team} % of "
            f"{self.label}."
        )

    def lines(self) -> list[str]:
        """Return the rule of thumb as if-lines of at most 80 characters."""
        low, high = self.train
        head = (
            f"Rule of thumb for {self.label}, fitted to {self.decisions:,} of its decisions on "
            f"rows {low}:{high}. It forwards the same number of requests in "
            f"{np.floor(1000 * self.alike) / 10:g} % of them."
        )
        lines = wrapped([head])
        for nodes, tree in list(self.trees.items())[:TREES]:
            if len(self.trees) > 1:
                lines += wrapped([f"At {', '.join(nodes)}:"])
            lines += wrapped(tree_lines(tree, self.queue, 2, self.known))
        if len(self.trees) > TREES:
            lines.append(f"  ... and {len(self.trees) - TREES:,} more trees")
        return [*lines, *wrapped(self._about())]

    def _about(self) -> list[str]:
        what = "costs" if self.costs else "loses"
        lines = [self.said, f"It {what} as much as the team."]
        if self.difference:
            interval = ""
            if self.low is not None and self.high is not None:
                interval = f" (95 %: {100 * self.low:+.2f} to {100 * self.high:+.2f})"
            more = f"{'+' * (self.per_window > 0)}{number(self.per_window)}"
            lines[1] = (
                f"Compared with the team it {what} {100 * self.difference:+.2f} % of the arrivals"
                f"{interval}: {more} requests a {self.unit}."
            )
        if self.rule is not None and self.rule_cost is not None:
            costs = (self.thumb.cost, self.team.cost, self.rule_cost)
            thumb, team, best = (f"{100 * cost:.2f} %" for cost in costs)
            lines.append(
                f"Cost: rule of thumb {thumb}; team {team}; best rule, {self.rule}, {best}."
            )
        if self.policy.settings["observation"] in SUMMARIES:
            lines.append(
                "The observation is a summary of ratios: numbers of requests here assume mean "
                "capacities."
            )
        if self.illegal:
            lines.append(
                f"{100 * self.illegal:.1f} % of the team's decisions were illegal and forwarded "
                "all arrivals."
            )
        if self.overlap:
            lines.append("It was fitted to some of the rows on which it is judged.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
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
    """Return all trees as if-lines, each below the names of its nodes."""
    lines = []
    for nodes, tree in trees.items():
        lines += [f"{', '.join(nodes)}:", *tree_lines(tree, queue, 2, known)]
    return lines


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
        result: the return value of ``replay``, or ``corral.evaluate(...).replay``.
        label: the team, as the replay names it.
        entry: the team, or its run.
        train: (low, high), the rows with the decisions to fit; default: the run's training rows,
            if it was trained on this load, else all rows before the replayed ones.
        depth: maximum number of questions in a row.
        progress: called with the number of steps done.

    Policies that share a network get one tree. Under route "choose" the trees forward to the
    largest reported spare. Raises ValueError for a rule, a team that was not replayed, missing
    rows, and a team with mostly illegal decisions; the errors of ``again``; and MissingExtraError
    without scikit-learn (extra ``advise``).
    """
    require_label(result, label)
    if label not in result.teams:
        raise ValueError(f"{label} is a rule already; pass the label of a team")
    if depth < 1:
        raise ValueError(f"depth={depth}: pass 1 or more")
    rows = _rows(result, entry, train)
    entry_again = again(result, label, entry)
    if not isinstance(entry_again.player, Player):
        raise ValueError(f"policy {label} makes plans: pass the label of a team that takes actions")
    seen = _decisions(entry_again, entry_again.player, rows, result.window, progress)
    trees: dict[str, Tree] = {}
    alike = decisions = 0
    for members, (inputs, forwarded) in seen.samples.items():
        tree = fitted(inputs, forwarded, seen.carried, depth)
        alike += int((seen.carried.tree(tree, inputs) == forwarded).sum())
        decisions += len(forwarded)
        trees |= dict.fromkeys(members, tree)
    alone = Amount("nothing")  # for nodes without neighbors
    team = {
        agent: Thumb(trees.get(agent, alone), entry_again.rules, agent)
        for agent in entry_again.rules.agents
    }
    player = Player(team, settings=entry_again.rules.carried())
    settings = {key: value for key, value in result.settings.items() if key not in CAPACITY}
    thumb_replay = replay(
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
    team_sums, load = result.sums[label], result.sums[label].arrivals
    more = thumb_replay.sums[LABEL].cost - team_sums.cost
    low, high = difference_interval(more, load, season=7 if result.days else 1)
    every = max(1, int(load.sum()))
    best = result.best_rule
    node_names = dict(zip(entry_again.rules.agents, result.trace.nodes, strict=True))
    return RuleOfThumb(
        label=label,
        trees=_by_nodes({node_names[agent]: tree for agent, tree in trees.items()}),
        queue=entry_again.rules.queue,
        known=entry_again.rules.arrivals == "known",
        train=rows,
        decisions=decisions,
        alike=alike / max(1, decisions),
        illegal=seen.illegal,
        team=next(score for score in result.scores if score.policy == label),
        thumb=thumb_replay.scores[0],
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


# --- Decisions of a team -------------------------------------------------------------------------


def _rows(result: Replay, entry: Entry | Run, train: Sequence[int] | None) -> tuple[int, int]:
    """Return the rows with the decisions to fit. Raises ValueError for missing or invalid rows."""
    first, length = result.rows[0], len(result.trace)
    if train is None and isinstance(entry, Run):
        config = entry.config.env_config
        load = config.trace
        if load is not None and np.array_equal(load.arrivals, result.trace.arrivals):
            train = config.env_kwargs.get("rows")
    if train is None:
        if not first:
            raise ValueError(
                "no rows precede the replayed ones: pass train=(low, high), the rows on "
                "which the team was trained"
            )
        train = 0, first
    low, high = train
    if not 0 <= low < high <= length:
        raise ValueError(f"train={low}:{high}: pass rows within 0:{length} of the trace")
    return low, high


@dataclass(frozen=True)
class Seen:
    """The decisions of agents, by policy: inputs, and requests forwarded, [S] each."""

    samples: dict[tuple[str, ...], tuple[dict[str, Array], Array]]
    illegal: float
    carried: Carried


def _decisions(
    entry: Again, player: Player, rows: tuple[int, int], window: int, progress: Progress
) -> Seen:
    """Let the team play some windows of the rows, evenly spread; return its decisions.

    Raises ValueError if most of the decisions are illegal."""
    groups = _groups(entry, player)
    looked_at = {members: members[:: -(-len(members) // NODES)] for members in groups}
    steps = min(window, rows[1] - rows[0])
    per_window = steps * max(1, sum(map(len, looked_at.values())))
    whole = (rows[1] - rows[0]) // steps
    windows = np.linspace(0, whole - 1, min(whole, max(1, DECISIONS // per_window)))
    first = np.unique(windows.round().astype(np.int64)) * steps
    readers = {
        agent: Thumb(Amount("nothing"), entry.rules, agent)
        for members in looked_at.values()
        for agent in members
    }
    rules, place = entry.rules, {agent: i for i, agent in enumerate(entry.rules.agents)}
    cap = rules.caps
    if rules.residual is not None and rules.residual.rule.within_links:
        cap = rules.link_limit
    within = None if cap is None else int(cap * max(rules.network.degree))
    carried = Carried(rules.levels_of, rules.queue, within)
    # A summary is excluded: its numbers of requests assume the mean capacity.
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

    entry.on_rows(rows).play(first, steps, keep)
    share = sum(illegal) / (len(first) * steps * len(entry.rules.agents))
    if share > 0.5:
        raise ValueError(
            f"policy {entry.label}: {100 * share:.0f} % of its decisions are illegal, so no rule "
            "can be fitted; let it use the action mask"
        )
    samples = {m: _joined([t for a in looked_at[m] for t in kept[a]]) for m in groups}
    return Seen(samples, share, carried)


def _joined(turns: Sequence[tuple[dict[str, Array], Array]]) -> tuple[dict[str, Array], Array]:
    names = turns[0][0]
    inputs = {name: np.concatenate([part[name] for part, _ in turns]) for name in names}
    return inputs, np.concatenate([forwarded for _, forwarded in turns])


def _groups(entry: Again, player: Player) -> list[tuple[str, ...]]:
    """Return the groups of agents that share a policy or a network, without agents that have no
    neighbors. Raises ValueError if no agent has a neighbor."""
    groups: dict[int, list[str]] = {}
    for i, agent in enumerate(entry.rules.agents):
        if entry.rules.network.degree[i]:
            groups.setdefault(id(_inner(player.team[agent])), []).append(agent)
    if not groups:
        raise ValueError(
            f"policy {entry.label}: no node has a neighbor to forward to; pass a load with links"
        )
    return [tuple(members) for members in groups.values()]


def _inner(policy: Any) -> Any:
    """Return the network, model, object or function inside a policy."""
    attributes = getattr(policy, "__dict__", {})
    for name in ("network", "model", "player", "choose"):
        if name in attributes:
            return attributes[name]
    return policy


def _by_nodes(trees: Mapping[str, Tree]) -> dict[tuple[str, ...], Tree]:
    """Return the distinct trees, each with all nodes that use it."""
    nodes: dict[Tree, list[str]] = {}
    for node, tree in trees.items():
        nodes.setdefault(tree, []).append(node)
    return {tuple(members): tree for tree, members in nodes.items()}


def _tree_json(tree: Tree) -> dict[str, Any]:
    if isinstance(tree, Amount):
        return {"forward": tree.kind, "value": tree.value, "text": str(tree)}
    parts = {"at_most": _tree_json(tree.low), "above": _tree_json(tree.high)}
    return {"input": tree.feature, "threshold": tree.at, **parts}
