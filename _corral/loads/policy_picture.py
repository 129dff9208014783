"""Pictures of a learned team: the requests that each node forwards, by load and capacity.

Two features of a node's observation vary from hour to hour: arrivals and capacity. A picture is a
grid over these two. All other features are at their means over a real replay, because zeros (an
empty queue, no spare capacity at the neighbors) may be a situation that the team never met. With
unknown arrivals, the picture uses the last count instead of the arrivals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.adapters.seats import Seat
from corral.data import Trace
from corral.envs.core import Array, generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.features import SUMMARIES
from corral.envs.policy import PolicyLike, as_policy
from corral.loads.replay import play_windows
from corral.trainers.evaluation.episodes import Turn
from corral.trainers.evaluation.players import Player, as_player

__all__ = ["Picture", "backgrounds", "policy_picture", "team_pictures"]

LARGEST = 4_000_000
"""At most this many numbers are observed at once."""


@dataclass(frozen=True)
class Picture:
    """The requests that a node forwards at each point of a grid of Y capacities and X arrivals."""

    policy: str  # label of the team
    agent: str
    node: str  # the trace's name of the agent
    arrivals: Array  # int64 [X] requests per step, evenly spaced from 0
    capacity: Array  # int64 [Y] requests per step, evenly spaced from 0
    forwarded: Array  # int64 [Y, X] requests per step
    reference: str = ""  # name of the reference policy that this shows, for all nodes; "": a team
    seen: Array | None = None
    """bool [Y, X]: cells with such arrivals and capacity in the rows, to one cell; None: all."""


def policy_picture(
    rules: DfaasRules,
    policy: PolicyLike,
    agent: str,
    points: int = 40,
    *,
    background: Array | None = None,
    label: str = "",
) -> Picture:
    """Return a picture of greedy play at ``agent`` over the trace's loads and capacities.

    Args:
        rules: the team's rules; they give the masks, and the requests that an action forwards.
        points: maximum number of arrivals and of capacities, from 0 to the trace's largest.
        background: float [F], a feature vector without use of its first two entries, see
            ``backgrounds``. None: that of a replay in which ``policy`` plays every node.

    A recurrent policy decides as at the start of an episode. Raises ValueError for an unknown
    agent or a background of the wrong length.
    """
    if agent not in rules.agents:
        raise ValueError(f"agent={agent!r}: pass one of {', '.join(rules.agents)}")
    if points < 2:
        raise ValueError(f"points={points}: pass 2 or more")
    if background is None:
        background = backgrounds(rules, policy)[agent]
    features = rules.features.size
    if np.shape(background) != (features,):
        raise ValueError(f"background {np.shape(background)}: pass {features} features")
    index = rules.agents.index(agent)
    assert rules.trace.capacity is not None  # checked by the rules
    arrivals = _spread(int(rules.trace.arrivals.max()), points)
    capacity = _spread(int(rules.trace.capacity.max()), points)
    grid = _grid(rules, index, arrivals, capacity)
    # In parts: the rules compute the observation of every node, N * F features for N nodes.
    rows = np.arange(len(grid.trace))
    count = -(-len(rows) * len(rules.agents) * features // LARGEST)
    parts = [
        _forwarded(grid, policy, index, part, background) for part in np.array_split(rows, count)
    ]
    load, room = rules.trace.arrivals[slice(*rules.rows)], rules.trace.capacity[slice(*rules.rows)]
    return Picture(
        policy=label,
        agent=agent,
        node=rules.trace.nodes[index],
        arrivals=arrivals,
        capacity=capacity,
        forwarded=np.concatenate(parts).reshape(len(capacity), len(arrivals)),
        seen=_seen(load[:, index], room[:, index], arrivals, capacity),
    )


def _seen(load: Array, room: Array, arrivals: Array, capacity: Array) -> Array:
    """Return the grid points, bool [Y, X], with some of ``load`` and ``room`` [R] in their cell or
    in a neighboring cell."""
    steps = (int(side[1] - side[0]) if len(side) > 1 else 1 for side in (arrivals, capacity))
    x, y = (
        np.minimum(np.rint(values / step).astype(np.int64), len(side) - 1)
        for values, step, side in zip((load, room), steps, (arrivals, capacity), strict=True)
    )
    wide = np.zeros((len(capacity) + 2, len(arrivals) + 2), dtype=bool)
    for down in range(3):
        for right in range(3):
            wide[y + down, x + right] = True
    return wide[1:-1, 1:-1]


def _forwarded(
    grid: DfaasRules, policy: PolicyLike, index: int, rows: Array, background: Array
) -> Array:
    """Return the requests that node ``index`` forwards in ``rows`` [R] of the grid: [R]."""
    agent = grid.agents[index]
    state = grid.start_at(rows, [])
    observation = grid.observe(state)[agent]
    count = 1 if grid.observation in SUMMARIES else 2  # features of the arrivals and the capacity
    features = np.tile(np.asarray(background, dtype=np.float32), (len(rows), 1))
    features[:, :count] = observation["observation"][:, :count]
    if grid.arrivals == "unknown":
        load, capacity, _ = grid.load.at(state, rows)
        scale = grid.load_scale
        if grid.observation in SUMMARIES:
            scale = np.maximum(capacity[:, index], 1)
        features[:, 0] = np.minimum(load[:, index] / scale, grid.features.space().high[0])
    observation = {**observation, "observation": features}
    seat = Seat(
        agent,
        as_policy(policy, agent, grid.agents),
        num_envs=len(rows),
        actions=grid.action_space(agent),
        rng=generator(0, "policy", index),
        deterministic=True,
    )
    actions = np.zeros((len(rows), len(grid.agents)), dtype=np.int64)
    actions[:, index] = seat.act(observation)
    return np.asarray(grid.step(state, actions).info["forwarded"][:, index])


def team_pictures(
    rules: DfaasRules,
    team: Player | PolicyLike | Mapping[str, PolicyLike],
    label: str,
    points: int = 40,
    *,
    agents: Sequence[str] | None = None,
    reference: str = "overflow",
) -> list[Picture]:
    """Return a picture for each node of a team, or for ``agents``, and one of a reference policy.

    ``rules`` are those of the team, with its scales; their rows are replayed once to compute the
    backgrounds.
    """
    player = as_player(team, rules.agents)
    means = backgrounds(rules, player)
    pictures = [
        policy_picture(
            rules, player.team[agent], agent, points, background=means[agent], label=label
        )
        for agent in (rules.agents if agents is None else agents)
    ]
    # A node with neighbors: the reference policy does the same at all of them.
    linked = rules.agents[int(rules.network.links.any(axis=1).argmax())]
    reference_policy = baseline_team(reference, rules)[linked]
    reference_picture = policy_picture(
        rules, reference_policy, linked, points, background=means[linked], label=label
    )
    shown = [picture.seen for picture in pictures if picture.seen is not None]
    seen = np.logical_or.reduce(shown) if shown else None
    return [*pictures, dataclasses.replace(reference_picture, reference=reference, seen=seen)]


def backgrounds(
    rules: DfaasRules, team: Player | PolicyLike | Mapping[str, PolicyLike], *, seed: int = 0
) -> dict[str, Array]:
    """Return each agent's mean features [F] over a replay of the rules' rows by the team."""
    player = as_player(team, rules.agents)
    window = min(rules.max_cycles, rules.rows[1] - rules.rows[0])
    sums = dict.fromkeys(rules.agents, np.zeros(1))

    def add(turn: Turn) -> None:
        for agent in sums:
            features = turn.observations[agent]["observation"]  # [W, F]
            sums[agent] = sums[agent] + features.sum(axis=0, dtype=np.float64)

    play_windows(rules, player, window, seed, on_turn=add)
    return {agent: total / (rules.rows[1] - rules.rows[0]) for agent, total in sums.items()}


def _spread(largest: int, points: int) -> Array:
    """Return 0, s, 2s, ... up to ``largest``: whole numbers, at most ``points``."""
    step = max(1, -(-largest // (points - 1)))
    return np.arange(0, largest + 1, step)


def _grid(rules: DfaasRules, index: int, arrivals: Array, capacity: Array) -> DfaasRules:
    """Return the rules on a trace with a row for each grid point, for one node."""
    shape = (len(arrivals) * len(capacity), len(rules.agents))
    load, room = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    sides = np.meshgrid(capacity, arrivals, indexing="ij")  # [Y, X] each
    room[:, index], load[:, index] = (side.ravel() for side in sides)
    trace = Trace(rules.trace.nodes, load, room, np.arange(len(load)), name=rules.trace.name)
    agents = rules.agents
    settings = rules.carried()
    settings.pop("daily_mean", None)  # grid points have no time of day; the background has the mean
    # Recipients do not matter, and "two" would need generators. A residual rule has its route.
    if settings["route"] != "choose" and rules.residual is None:
        settings["route"] = "equal"
    settings["neighbours"] = {
        agent: [other for j, other in enumerate(agents) if rules.network.links[i, j]]
        for i, agent in enumerate(agents)
    }
    return DfaasRules(trace, max_cycles=1, queue=rules.queue, **settings)
