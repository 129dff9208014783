"""VDN, QMIX, IQL and MASAC through BenchMARL: two_step_v0, and the probes that they can be asked.

    OMP_NUM_THREADS=1 python benchmarks/core/value_decomposition.py             # what is missing
    OMP_NUM_THREADS=1 python benchmarks/core/value_decomposition.py --only two_step # or probes
    OMP_NUM_THREADS=1 python benchmarks/core/value_decomposition.py --report    # the page anew

In an environment with ``.[benchmarl]``. Each run is kept in results/value_decomposition.json as
soon as it is done, and is not done again.

Judged is the greedy team, exactly: in two_step_v0 by its only episode, in a probe by all that
chance can decide. What is illegal raises, in training too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save, temporary_run

from corral.envs.masks import MASK
from corral.envs.registry import make_rules
from corral.trainers.base import trainer_class

NAME = "value_decomposition"
SEEDS = (0, 1, 2, 3, 4)
MIXERS = ("benchmarl_vdn", "benchmarl_qmix")
TRAINERS = (*MIXERS, "benchmarl_iql", "benchmarl_masac")
UNIFORM = {"exploration_initial_eps": 1.0, "exploration_final_eps": 1.0}
EXPLORED = {"uniform, all the time": UNIFORM, "from 1 to 0.05": {}}
TWO_STEP_STEPS = 8_000
PROBE_STEPS = 3_000
PROBE_SEEDS = (0, 1)
BEST = {  # of own rewards, of the sum
    "probe_p04_v0": ((1.0, 1.0), (1.0, 1.0)),
    "probe_p05_v0": ((1.0, 1.0), (1.0, 1.0)),
    "probe_p06_v0": ((34 / 15, 34 / 15), (34 / 15, 34 / 15)),
    "probe_p07_v0": ((1.0, 0.0), (0.0, 2.0)),
}
ELSEWHERE = {
    "P1-P3, P8, P9, P16, P17, P19": "ask for a critic's V, or for gradients of a policy of PPO's "
    "kind: these have neither",
    "P10, P15": "nothing to choose: their returns are in tests/frameworks",
    "P14": "needs a memory: the networks here have none",
    "P18": "needs an opponent that never learns: of corral's own trainers",
}
REFUSED = ("probe_p11_v0", "probe_p12_v0", "probe_p13_v0", "tictactoe_v0", "tiles_v0")


def jobs(only: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the key of each run, and what it is."""
    found = []
    for seed in SEEDS if only in (None, "two_step") else ():
        for explored in EXPLORED:
            for trainer in MIXERS:
                key = f"two_step_v0, {trainer}, {explored}, {seed}"
                settings = {"seed": seed, "steps": TWO_STEP_STEPS, **EXPLORED[explored]}
                found.append((key, {"env": "two_step_v0", "trainer": trainer, **settings}))
    for seed in PROBE_SEEDS if only in (None, "probes") else ():
        for env in BEST:
            for trainer in TRAINERS:
                key = f"{env}, {trainer}, {seed}"
                about = {"env": env, "trainer": trainer, "seed": seed, "steps": PROBE_STEPS}
                found.append((key, about))
    return found


def play(about: dict[str, Any]) -> dict[str, Any]:
    """Train, and return what the greedy team gets."""
    clock = time.process_time()
    with temporary_run(**about, env_kwargs={"illegal": "raise"}) as run:
        found: dict[str, Any] = {"returns": returns(run.policies, about["env"])}
        found["illegal"] = int(run.progress["kpi_illegal_actions"].fillna(0).sum())
        if about["env"] == "two_step_v0":
            found["values"] = values(run.policies)
    found["cpu_seconds"] = round(time.process_time() - clock, 1)
    return found


def returns(policies: Any, env: str) -> list[float]:
    """Return each agent's mean return, over all that chance can decide at the start."""
    rules: Any = make_rules(env, illegal="raise")
    state, weights = rules.start([np.random.default_rng(0)]), np.ones(1)
    if hasattr(rules, "starts"):
        state, weights = rules.starts()
    total = np.zeros((len(weights), len(rules.agents)))
    while rules.acting(state).any():
        seen = rules.observe(state)
        moves = [policies[a].act(seen[a], deterministic=True).action for a in rules.agents]
        for move, agent in zip(moves, rules.agents, strict=True):
            assert np.take_along_axis(seen[agent][MASK], move[:, None], axis=1).all()
        outcome = rules.step(state, np.stack(moves, axis=1))
        state, total = outcome.state, total + outcome.reward
    found: list[float] = (weights @ total).round(6).tolist()
    return found


def values(policies: Any) -> list[list[list[float]]]:
    """Return each agent's values of its two actions at the start, in game A and in game B."""
    found = []
    for i in range(2):
        seen = np.concatenate([np.eye(3), np.tile(np.eye(2)[i], (3, 1))], axis=1)
        with torch.no_grad():
            out = policies[f"agent_{i}"].network(torch.tensor(seen, dtype=torch.float32))
        found.append(np.round(out.numpy().astype(float), 3).tolist())
    return found


# --- The page ------------------------------------------------------------------------------------


def page(runs: dict[str, Any]) -> str:
    return "\n".join([*_two_step(runs), *_probes(runs), *_not_asked()])


def _two_step(runs: dict[str, Any]) -> list[str]:
    lines = [
        f"# two_step_v0, {TWO_STEP_STEPS:,} env steps",
        "",
        "The greedy team's return: 8 is the optimum, 7 the safe choice.",
        "",
        "| trainer | random actions | " + " | ".join(f"seed {s}" for s in SEEDS) + " | at 8 |",
        "|---|---|" + "--:|" * (len(SEEDS) + 1),
    ]
    for explored in EXPLORED:
        for trainer in MIXERS:
            own = [runs.get(f"two_step_v0, {trainer}, {explored}, {seed}") for seed in SEEDS]
            sums = [None if each is None else sum(each["returns"]) for each in own]
            cells = ["" if each is None else f"{each:g}" for each in sums]
            done = sum(each is not None for each in sums)
            lines.append(
                f"| {trainer} | {explored} | {' | '.join(cells)} | {sums.count(8.0)} of {done} |"
            )
    uniform = f"two_step_v0, benchmarl_vdn, {next(iter(EXPLORED))}, 0"
    if uniform in runs:
        lines += _table_of_vdn(np.array(runs[uniform]["values"]))
    return lines


def _table_of_vdn(found: Any) -> list[str]:
    """Return the team's values as VDN learned them, and why it chooses as it does."""
    start, a, b = (found[0, at][:, None] + found[1, at][None, :] for at in range(3))
    lines = [
        "",
        "What VDN has learned, seed 0, with uniform exploration: the sum of the two agents' values "
        "for each pair of actions (rows: agent_0).",
        "",
        "| | A: 0 | A: 1 | B: 0 | B: 1 |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in range(2):
        cells = [*a[row], *b[row]]
        lines.append(f"| **{row}** | " + " | ".join(f"{each:.2f}" for each in cells) + " |")
    chosen = "AB"[int(start.max(axis=1).argmax())]
    lines += [
        "",
        "Game B pays 0, 1, 1, 8. No sum of a row's and a column's value makes these four: where "
        "all pairs are played equally often, the nearest sums are -1.5, 2.5, 2.5 and 6.5. So VDN "
        f"takes the pair that pays 8 to be worth {b[1, 1]:.2f}, less than the {a.max():.2f} of "
        f"game A, and chooses game {chosen}. As exploration fades, the buffer holds more and more "
        "of one pair, and the sum can meet that one. The weights of QMIX's mixing network depend "
        "on the state: it meets all.",
    ]
    return lines


def _probes(runs: dict[str, Any]) -> list[str]:
    lines = [
        "",
        f"# Probes, {PROBE_STEPS:,} env steps",
        "",
        "Each agent's return of the greedy team. VDN and QMIX learn from the sum of the rewards, "
        "the others from their own. The best: "
        + "; ".join(
            f"{_label(env)} {_pair(own)}" + (f", by the sum {_pair(team)}" if own != team else "")
            for env, (own, team) in BEST.items()
        )
        + ".",
        "",
        "| trainer | " + " | ".join(map(_label, BEST)) + " | at the best |",
        "|---|" + "---|" * (len(BEST) + 1),
    ]
    for trainer in TRAINERS:
        cells, right, done = [], 0, 0
        for env, best in BEST.items():
            own = [runs.get(f"{env}, {trainer}, {seed}") for seed in PROBE_SEEDS]
            own = [each["returns"] for each in own if each is not None]
            wanted = best[trainer in MIXERS]
            right += sum(np.allclose(each, wanted, atol=1e-4) for each in own)
            done += len(own)
            cells.append(", ".join(dict.fromkeys(map(_pair, own))))
        lines.append(f"| {trainer} | {' | '.join(cells)} | {right} of {done} |")
    illegal = sum(each["illegal"] for each in runs.values())
    seconds = sum(each["cpu_seconds"] for each in runs.values())
    return [
        *lines,
        "",
        f"Illegal actions in all {len(runs)} runs: {illegal}. CPU: {seconds:,.0f} s.",
    ]


def _not_asked() -> list[str]:
    lines = ["", "# What does not apply", "", "| game | trainers | why |", "|---|---|---|"]
    for probes, why in ELSEWHERE.items():
        lines.append(f"| {probes} | all | {why} |")
    for env in REFUSED:
        by_reason: dict[str, list[str]] = {}
        for trainer in TRAINERS:
            if reason := refusal(trainer, env):
                by_reason.setdefault(reason.replace(trainer, "it"), []).append(trainer)
        for reason, who in by_reason.items():
            names = "all" if len(who) == len(TRAINERS) else ", ".join(who)
            lines.append(f"| {env} | {names} | refused: {reason} |")
    return lines


def refusal(trainer: str, env: str) -> str:
    """Return what a trainer says of a game that it refuses, each agent with its own policy; ""."""
    kind, rules = trainer_class(trainer), make_rules(env)
    agents = rules.agents
    try:
        kind(
            rules,
            kind.Settings(),
            seed=0,
            policies={agent: agent for agent in agents},
            policies_to_train=agents,
            steps=1,
        )
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _label(env: str) -> str:
    return f"P{int(env[7:9])}"


def _pair(returns: Any) -> str:
    return "(" + ", ".join(f"{each:.4g}" for each in returns) + ")"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("two_step", "probes"))
    parser.add_argument("--report", action="store_true", help="write the page, and run nothing")
    given = parser.parse_args()
    about = machine("torch", "benchmarl", "torchrl")
    for key, job in [] if given.report else jobs(given.only):
        if key not in kept():
            found = play(job)
            runs = {**kept(), key: found}  # of other processes as well
            save(NAME, page(runs), {"runs": runs}, about)
    save(NAME, page(kept()), {"runs": kept()}, about)


def kept() -> dict[str, Any]:
    """Return the runs that have been done."""
    path = RESULTS / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text())["runs"] if path.exists() else {}
    return found


if __name__ == "__main__":
    main()
