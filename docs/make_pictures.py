"""Draw pictures of the documentation: docs/arena.gif, docs/dfaas.png and docs/rehearsal.svg.

python docs/make_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import corral
from corral.data import make_trace
from corral.envs import dfaas_v0
from corral.envs.dfaas_v0.baselines import Baseline
from corral.trainers.evaluation.watch import watch
from corral.trainers.report import svg as pen

HERE = Path(__file__).parent


def a_busy_step() -> np.ndarray:
    """The step of the held-out rows of edge3 in which most is forwarded under overflow."""
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), start=0, render_mode="rgb_array")
    policy = Baseline("overflow", env.rules)
    observations, _ = env.reset(seed=0)
    most, picture = 0, env.render()
    while env.agents:
        actions = {agent: int(policy.act(observations[agent]).action) for agent in env.agents}
        observations, _, _, _, infos = env.step(actions)
        served = sum(info["served_remote"] for info in infos.values())
        if served > most and any(info["lost"] for info in infos.values()):
            most, picture = served, env.render()
    return picture


DEMO = {
    "mean": 16,
    "largest": 60,
    "headroom": 1.25,
    "spread": 0,
    "uneven": 0,
    "scaling": 0,
    "maintenance": 0,
    "noise": 0.25,
    "bursts": 3,
    "shared": 0,
}
"""The load of ``make demo``, as in the Makefile."""

WAITS = {"local": pen.GRAY, "backlog=0.7/least": pen.BLUE, "room": pen.GREEN, "choices=2": pen.RED}
HEIGHT, TOP, BASE = 300, 34, 262


def waits_of_a_day() -> str:
    """The waits of four policies by hour, on the last ten days of the demo."""
    load = make_trace(nodes=3, days=35, seed=1, **DEMO)
    result = corral.rehearse(
        load,
        [*WAITS],
        rows=(7200, 10080),
        parts=False,
        queue=16,
        forward_cost=0.2,
        link_limit=7,
        second_offer=False,
    )
    hours = {policy: result.by_hour(policy) for policy in WAITS}
    waits = {policy: np.array(by["p95"]) for policy, by in hours.items() if by is not None}
    _, high, marks = pen.ticks(0.0, max(float(values.max()) for values in waits.values()))
    left, right = pen.LEFT, pen.WIDTH - pen.room(WAITS, least=0) - 16

    def height(value: float) -> float:
        return BASE - (BASE - TOP) * value / high

    def across(hour: float) -> float:
        return left + (right - left) * hour / 24

    parts = [pen.text(left, 18, "wait within which 95 % of requests enter service, s", weight=600)]
    for mark in marks:
        parts.append(pen.line(left, height(mark), right, height(mark), pen.PALE))
        parts.append(pen.text(left - 8, height(mark) + 4, f"{mark:g}", anchor="end"))
    for hour in range(0, 25, 3):
        parts.append(pen.text(across(hour), BASE + 18, f"{hour}", anchor="middle"))
    parts.append(pen.text(across(12), BASE + 34, "hour of the day, UTC", anchor="middle"))
    ends = pen.apart([height(float(v[-1])) for v in waits.values()], 16, TOP, BASE)
    for (policy, values), end in zip(waits.items(), ends, strict=True):
        x = np.array([across(hour + 0.5) for hour in range(24)])
        y = np.array([height(float(value)) for value in values])
        parts.append(pen.path(x, y, WAITS[policy], 2))
        parts.append(pen.box(right + 4, end - 4, 10, 3, WAITS[policy]))
        parts.append(pen.text(right + 18, end + 1, policy))
    return pen.svg(HEIGHT, parts, "Waits of requests by hour for four policies")


def main() -> None:
    (HERE / "rehearsal.svg").write_text(waits_of_a_day(), encoding="utf-8")
    Image.fromarray(a_busy_step()).save(HERE / "dfaas.png", optimize=True)
    watch("arena_v0", policies="nearest/chase", out=HERE / "arena.gif", steps=40)


if __name__ == "__main__":
    main()
