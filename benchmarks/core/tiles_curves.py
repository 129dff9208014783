"""How much teams of tiles_v0 know after so many values: played, and drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.seats import Seat
from corral.envs.core import Array, generator
from corral.envs.policy import Policy
from corral.envs.tiles_v0 import TilesRules
from corral.trainers.report import svg as pen

GRID = np.arange(3, 385, 3)
"""Values at which is looked, all multiples of what can be sent."""


@dataclass(frozen=True)
class Known:
    """What a team knows: after at most GRID values, and at the end of its episodes."""

    right: Array  # float64 [V] share of episodes in which the most probable class is the true one
    log_probability: Array  # float64 [V] of the true class, mean
    values: float  # sent in an episode, mean
    tiles: float
    right_at_end: float
    log_probability_at_end: float
    error: float  # of the share that is right at the end, standard
    value_cost: float

    @property
    def team_return(self) -> float:
        return self.log_probability_at_end + math.log(100) - self.value_cost * self.values

    @property
    def per_tile(self) -> float:
        return self.values / self.tiles

    def at(self, values: float) -> tuple[float, float]:
        """Share right and log-probability after at most so many values."""
        index = int(np.searchsorted(GRID, values, side="right")) - 1
        return float(self.right[index]), float(self.log_probability[index])


def play(
    rules: TilesRules,
    team: Mapping[str, Policy],
    *,
    episodes: int,
    seed: int = 0,
    deterministic: bool = True,
) -> Known:
    """Play ``episodes`` side by side, and look after each tile."""
    state = rules.start([generator(seed, "env", row) for row in range(episodes)])
    seats = [
        Seat(
            agent,
            team[agent],
            num_envs=episodes,
            actions=rules.action_space(agent),
            rng=generator(seed, "policy", i),
            deterministic=deterministic,
        )
        for i, agent in enumerate(rules.agents)
    ]
    rows = np.arange(episodes)
    right = np.zeros((episodes, len(GRID)))
    logs = np.full((episodes, len(GRID)), -math.log(len(rules.classes)))
    while not state.over.all():
        acting, observations = rules.acting(state), rules.observe(state)
        action = np.zeros((episodes, 2), dtype=np.int64)
        for i, seat in enumerate(seats):
            who = np.flatnonzero(acting[:, i])
            if len(who):
                action[who, i] = seat.act(observations[seat.agent], who)
        state = rules.step(state, action).state
        begun = (state.sent >= 0).any(axis=1)
        now = begun & (state.log_posterior.argmax(axis=1) == state.truth)
        log = state.log_posterior[rows, state.truth]
        reached = (rules.budget - state.left)[:, None] <= GRID  # stands until more is sent
        right = np.where(reached, now[:, None], right)
        logs = np.where(reached, log[:, None], logs)
    return Known(
        right=right.mean(axis=0),
        log_probability=logs.mean(axis=0),
        values=float((rules.budget - state.left).mean()),
        tiles=float((state.sent >= 0).sum(axis=1).mean()),
        right_at_end=float(now.mean()),
        log_probability_at_end=float(log.mean()),
        error=float(now.std() / math.sqrt(episodes)),
        value_cost=rules.value_cost,
    )


def row(name: str, known: Known) -> str:
    """A line of a table."""
    return (
        f"| {name} | {100 * known.right_at_end:.1f} ± {100 * 1.96 * known.error:.1f} "
        f"| {known.values:.1f} | {known.tiles:.1f} | {known.log_probability_at_end:.3f} "
        f"| {known.team_return:.3f} |"
    )


HEAD = (
    "| team | right at the end, % | values sent | tiles sent | log P(true class) | return |",
    "|---|--:|--:|--:|--:|--:|",
)


def as_values(known: Known) -> dict[str, Any]:
    return {
        "right_at_end": known.right_at_end,
        "values": known.values,
        "tiles": known.tiles,
        "log_probability_at_end": known.log_probability_at_end,
        "return": known.team_return,
        "right": known.right.round(5).tolist(),
        "log_probability": known.log_probability.round(5).tolist(),
    }


# --- The picture ---------------------------------------------------------------------------------

COLORS = {
    "learned": pen.GREEN,
    "greedy": pen.RED,
    "raster-0": pen.SKY,
    "raster-1": pen.BLUE,
    "raster-2": pen.ORANGE,
    "raster-3": pen.PURPLE,
    "random": pen.GRAY,
}
LEAST = 3


def chart(teams: Mapping[str, Known], title: str) -> str:
    """Share right against values sent, a line for each team, a dot where it ends on average."""
    top, plot, right = 44, 330, 120
    base, width = top + plot, pen.WIDTH - pen.LEFT - right

    def across(values: Any) -> Array:
        share = np.log(np.asarray(values, dtype=float) / LEAST) / math.log(384 / LEAST)
        return np.asarray(pen.LEFT + share * width)

    def up(share: Any) -> Array:
        return np.asarray(base - np.asarray(share, dtype=float) * plot)

    parts = [pen.text(pen.LEFT, 18, title, size=14, weight=600)]
    note = "line: after so many values at most; dot: at the end of an episode, at its mean values"
    parts.append(pen.text(pen.LEFT, 36, note, size=11))
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        y = float(up(share))
        parts.append(pen.line(pen.LEFT, y, pen.LEFT + width, y, pen.PALE))
        parts.append(pen.text(pen.LEFT - 8, y + 4, f"{100 * share:.0f} %", anchor="end", size=11))
    for values in (3, 6, 12, 24, 48, 96, 192, 384):
        x = float(across(values))
        parts.append(pen.line(x, base, x, base + 4, pen.GRAY))
        parts.append(pen.text(x, base + 18, str(values), anchor="middle", size=11))
    middle = pen.LEFT + width / 2
    parts.append(pen.text(middle, base + 36, "values sent (each twice the last)", anchor="middle"))
    parts.append(pen.text(16, top + plot / 2 + 60, "most probable class is right", turned=True))
    ends, labels = [], []
    for name, known in teams.items():
        color = COLORS[name]
        grid, share = np.repeat(GRID, 2)[1:], np.repeat(known.right, 2)[:-1]  # steps
        parts.append(pen.path(across(grid), up(share), color, 2.4 if name == "learned" else 1.7))
        x, y = float(across(known.values)), float(up(known.right_at_end))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}" stroke="#fff" '
            'stroke-width="1.5"/>'
        )
        ends.append(float(up(known.right[-1])))
        labels.append((name, color))
    for y, (name, color) in zip(pen.apart(ends, 16, top, base), labels, strict=True):
        x = pen.LEFT + width + 8
        parts.append(pen.box(x, y - 4, 12, 3, color))
        weight = 600 if name == "learned" else 400
        parts.append(pen.text(x + 18, y + 1, name, weight=weight))
    return pen.svg(base + 46, parts, title)
