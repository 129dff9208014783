"""How soon a team learned in each framework beats random play on days that it has not seen.

    OMP_NUM_THREADS=1 python benchmarks/core/frameworks.py               # all that can be imported
    OMP_NUM_THREADS=1 python benchmarks/core/frameworks.py --only mappo

The frameworks exclude each other: run it once in each virtual environment. Every run replaces the
rows of the frameworks that it could import, in results/frameworks.json, and keeps the others.

The game is dfaas_v0 on the first 70 % of edge3, with illegal="raise": one illegal action would end
the training, or the play after it. A framework's ``learn`` in docs/plug_it_in trains anew for
2,000, 5,000, ... env steps until its greedy team's mean return over 20 held-out windows is above
the 95 % interval of random legal play over the same windows. ``mappo`` and ``sb3_ppo`` are
``corral.train``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.frameworks import EXAMPLES, Play, example, judge

STEPS = (2_000, 5_000, 10_000, 20_000, 50_000)
SEED = 0
GAME = {"trace": "edge3", "max_cycles": 48}
OWN = {"mappo": "safetensors", "sb3_ppo": "stable_baselines3"}
"""Our own trainers, and a package that each of them needs."""
LIKE_THE_EXAMPLES: dict[str, dict[str, Any]] = {
    "mappo": {"num_envs": 20, "n_steps": 48, "n_epochs": 10, "n_minibatches": 4},
    "sb3_ppo": {"num_envs": 20, "n_steps": 48, "n_epochs": 10, "batch_size": 720},
}
"""Small rollouts: the trainers' own settings are for longer trainings."""
PACKAGES = {"rllib": "ray", "benchmarl": "benchmarl", "cleanrl": "torch", "mappo": "corral"}
"""The distribution whose version a row tells, where it is not called as the example is."""


def trained(trainer: str) -> Any:
    """``learn`` of one of our own trainers, with the rollouts and the discount of the examples."""

    def learn(steps: int, seed: int) -> Play:
        import corral

        with tempfile.TemporaryDirectory() as folder:
            run = corral.train(
                "dfaas_v0",
                trainer=trainer,
                steps=steps,
                seed=seed,
                out=Path(folder) / "run",
                env_kwargs=GAME,
                validation=0,  # the others train on all rows before those held out
                gamma=0.5,
                **LIKE_THE_EXAMPLES[trainer],
            )
            team = run.policies

        def play(observations: dict[str, Any]) -> dict[str, int]:
            return {
                agent: int(team[agent].act(obs, deterministic=True).action)
                for agent, obs in observations.items()
            }

        return play

    return learn


def version(name: str) -> str:
    package = PACKAGES.get(name, "stable-baselines3" if name == "sb3_ppo" else name)
    return f"{package} {metadata.version(package)}"


def row(name: str, learn: Any) -> dict[str, Any]:
    """Train for longer and longer, until random play is beaten; the last attempt is what counts."""
    for steps in STEPS:
        verdict = judge(learn, steps, SEED)
        print(f"{name}: {steps:,} env steps, {verdict}", file=sys.stderr)
        if verdict.beats_random:
            break
    return {
        "version": version(name),
        "beats_random": verdict.beats_random,
        "env_steps": steps,
        "seconds": round(verdict.seconds, 1),
        "env_steps_per_s": round(steps / verdict.seconds),
        "return_learned": round(verdict.learned, 3),
        "return_random": round(verdict.random, 3),
        "random_low": round(verdict.random_low, 3),
        "random_high": round(verdict.random_high, 3),
        "illegal_actions": 0,  # one would have raised
        "machine": machine("torch"),
    }


def examples() -> dict[str, Any]:
    """``learn`` of each example that imports here, by name; the others are named on stderr."""
    found = {}
    for path in sorted(EXAMPLES.glob("*_example.py")):
        name = path.stem.removesuffix("_example")
        try:
            module = example(name)
        except ImportError as error:
            print(f"{name}: left out, {error}", file=sys.stderr)
            continue
        if hasattr(module, "learn"):
            found[name] = module.learn
    return found


def own() -> dict[str, Any]:
    """``learn`` of our own trainers that can run here, by name."""
    return {name: trained(name) for name, needs in OWN.items() if find_spec(needs) is not None}


def table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Frameworks: how soon random play is beaten",
        "",
        "dfaas_v0 on edge3, three agents, trained on the first 70 % of the rows; mean team return "
        "of the greedy team over 20 held-out windows of 48 steps. Each row is one training, seed "
        f"{SEED}, of the fewest env steps of {', '.join(f'{steps:,}' for steps in STEPS)} that "
        "gave a mean above random's 95 % interval. Illegal actions would have raised.",
        "",
        "| framework | version | env steps | seconds | env steps/s | return | random, 95 % "
        "| illegal |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, r in sorted(rows.items(), key=lambda item: item[1]["seconds"]):
        steps = f"{r['env_steps']:,}" if r["beats_random"] else f"not in {r['env_steps']:,}"
        interval = f"{r['return_random']:.2f} ({r['random_low']:.2f} to {r['random_high']:.2f})"
        lines.append(
            f"| {name} | {r['version']} | {steps} | {r['seconds']:.1f} | "
            f"{r['env_steps_per_s']:,} | {r['return_learned']:.2f} | {interval} | "
            f"{r['illegal_actions']} |"
        )
    lines += ["", "Rows are measured one by one, in virtual environments of their own:", ""]
    for name, r in rows.items():
        about = ", ".join(f"{key} {value}" for key, value in r["machine"].items())
        lines.append(f"- {name}: {about}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="one framework, or mappo or sb3_ppo")
    only = parser.parse_args().only

    learners = {**examples(), **own()}
    if only is not None:
        if only not in learners:
            raise SystemExit(f"--only {only}: not importable here; {', '.join(learners)} are")
        learners = {only: learners[only]}
    path = RESULTS / "frameworks.json"
    for name, learn in learners.items():
        measured = row(name, learn)
        rows = json.loads(path.read_text()) if path.exists() else {}  # others may have come
        rows[name] = measured
        path.write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "frameworks.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
