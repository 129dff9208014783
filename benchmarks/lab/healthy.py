"""Healthy runs, examined by the doctor: false alarms, missing verdicts, CPU seconds.

    OMP_NUM_THREADS=1 python benchmarks/lab/healthy.py run [--only TEXT] [--parallel 2]
    python benchmarks/lab/healthy.py report

Needs ``pip install --no-deps mpe2 lbforaging rlcard termcolor``, and a C compiler. Each run is a
line of results/healthy.jsonl, and is not repeated. A false alarm is a finding above a note; the
verdict "no fault" is wrong if the run beats random play.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from common import RESULTS, append_row, kept_rows, machine
from parallel import cpu_seconds, play

import corral
from corral.envs import ENVIRONMENTS, PROBES

ROOT = Path(__file__).parents[2]
FILE = RESULTS / "healthy.jsonl"
NIM = Path(tempfile.gettempdir()) / "corral-nim"

ALARM = 2
"""Certainty of a finding from which it is no note."""


# --- Games of other people -----------------------------------------------------------------------


def nim() -> Any:
    """Return Nim with its state in a C library."""
    from support.nim_c import Nim, compiled

    NIM.mkdir(exist_ok=True)
    library = NIM / "nim.so"
    return Nim(library if library.exists() else compiled(NIM))


def depots() -> Any:
    from faults.sound import Depots

    return Depots()


def pictured() -> Any:
    from faults.sound import Pictured

    return Pictured()


def masked_bits() -> Any:
    from support.bits_env import BitsEnv

    return BitsEnv(mask="observation")


def numbers() -> Any:
    from support.bits_env import BitsEnv

    return BitsEnv(kind="box")


def several_choices() -> Any:
    from support.bits_env import BitsEnv

    return BitsEnv(kind="bits")


def foraging() -> Any:
    """Return lbforaging, which has lists of agents, as a PettingZoo environment."""
    import gymnasium
    import lbforaging  # noqa: F401  # registers its ids
    from pettingzoo import ParallelEnv

    class Foraging(ParallelEnv):  # type: ignore[misc,type-arg]
        metadata = {"name": "foraging"}  # noqa: RUF012
        render_mode = None

        def __init__(self) -> None:
            self.env = gymnasium.make("Foraging-5x5-2p-2f-v3", disable_env_checker=True)
            self.possible_agents = ["one", "two"]

        def observation_space(self, agent: str) -> Any:
            return self.env.observation_space[self.possible_agents.index(agent)]

        def action_space(self, agent: str) -> Any:
            return self.env.action_space[self.possible_agents.index(agent)]

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents = list(self.possible_agents)
            views, _ = self.env.reset(seed=seed)
            return self.of(views), {agent: {} for agent in self.agents}

        def step(self, actions: Any) -> Any:
            chosen = tuple(int(actions[agent]) for agent in self.possible_agents)
            views, rewards, ended, cut, _ = self.env.step(chosen)
            found = self.of(views), self.of(map(float, rewards)), self.of([ended] * 2)
            infos = {agent: {} for agent in self.agents}
            self.agents = [] if ended or cut else self.agents
            return *found, self.of([cut] * 2), infos

        def of(self, values: Any) -> dict[str, Any]:
            return dict(zip(self.possible_agents, values, strict=True))

    return Foraging()


def own(name: str) -> str:
    return f"{Path(__file__).resolve()}:{name}"


# --- Runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Healthy:
    env: str
    trainer: str
    steps: int
    given: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a name, which is also the key of its row."""
        env = self.env.rpartition(":")[2]
        given = "".join(f", {key}={value}" for key, value in self.given.items())
        return f"{env}, {self.trainer}, {self.steps}{given}"


ARENA = f"{ROOT}/docs/environments/multi_agent_arena.py:MultiAgentArena"
POOL = "past=0.5,every=2048,keep=5,best=2"
DQN = {"learning_starts": 500}

RUNS = (
    Healthy("CartPole-v1", "mappo", 30_000),
    Healthy("dfaas_v0", "mappo", 30_000),
    Healthy("arena_v0", "mappo", 30_000),
    Healthy("dfaas_v0", "ippo", 20_000),
    Healthy("dfaas_v0", "ppo_kl", 20_000),
    Healthy("dfaas_v0", "a2c", 40_000),
    Healthy("dfaas_v0", "pg", 40_000),
    Healthy("dfaas_v0", "policy_iteration", 20_000),
    Healthy("dfaas_v0", "sb3_ppo", 20_000),
    Healthy("dfaas_v0", "sb3_maskable_ppo", 20_000),
    Healthy("dfaas_v0", "sb3_a2c", 20_000),
    Healthy("dfaas_v0", "sb3_dqn", 10_000, DQN),
    Healthy("dfaas_v0", "mappo", 4_096),
    Healthy("dfaas_v0", "mappo", 20_000, {"memory": 16}),
    Healthy("dfaas_v0", "ippo", 20_000, {"policies": "separate"}),
    Healthy("dfaas_v0", "mappo", 20_000, {"env_kwargs": {"queue": 50, "link_limit": 20}}),
    Healthy(
        "dfaas_v0",
        "mappo",
        20_000,
        {"env_kwargs": {"report_delay": 3, "forward_cost": 0.3, "route": "least"}},
    ),
    Healthy("dfaas_v0", "mappo", 20_000, {"env_kwargs": {"arrivals": "unknown"}}),
    Healthy("dfaas_v0", "mappo", 20_000, {"env_kwargs": {"observation": "summary"}}),
    Healthy("dfaas_v0", "mappo", 20_000, {"env_kwargs": {"trace": "edge8", "amount": "keep"}}),
    Healthy("arena_v0", "ippo", 30_000),
    Healthy("arena_v0", "a2c", 40_000),
    Healthy("arena_v0", "sb3_ppo", 20_000),
    Healthy("arena_v0", "mappo", 20_000, {"memory": 16}),
    Healthy("arena_v0", "mappo", 4_096),
    Healthy("tictactoe_v0", "mappo", 40_000),
    Healthy("tictactoe_v0", "ippo", 20_000, {"opponents": {"player_2": "random"}}),
    Healthy("tictactoe_v0", "mappo", 40_000, {"self_play": POOL}),
    Healthy("rps_v0", "mappo", 10_000),
    Healthy("rps_v0", "a2c", 10_000),
    Healthy("tiles_v0", "mappo", 20_000),
    Healthy("two_step_v0", "mappo", 10_000),
    Healthy("two_step_v0", "sb3_dqn", 5_000, DQN),
    Healthy("probe_p01_v0", "mappo", 5_000),
    Healthy("probe_p05_v0", "pg", 10_000),
    Healthy("probe_p07_v0", "ippo", 10_000),
    Healthy("mpe2.simple_spread_v3", "mappo", 40_000),
    Healthy("classic/connect_four-v3", "ippo", 15_000),
    Healthy("classic/tictactoe-v3", "mappo", 15_000),
    Healthy("classic/leduc_holdem-v4", "mappo", 10_000),
    Healthy("CartPole-v1", "a2c", 30_000),
    Healthy("CartPole-v1", "sb3_ppo", 20_000),
    Healthy("CartPole-v1", "sb3_dqn", 15_000, DQN),
    Healthy("CartPole-v1", "mappo", 4_096),
    Healthy("Pendulum-v1", "mappo", 60_000),
    Healthy("Pendulum-v1", "sb3_ppo", 30_000),
    Healthy("Acrobot-v1", "mappo", 40_000),
    Healthy(own("nim"), "mappo", 20_000),
    Healthy(own("depots"), "mappo", 20_000),
    Healthy(own("pictured"), "ippo", 10_000),
    Healthy(own("masked_bits"), "mappo", 5_000),
    Healthy(own("numbers"), "mappo", 10_000),
    Healthy(own("several_choices"), "ippo", 5_000),
    Healthy(own("foraging"), "mappo", 30_000),
    Healthy(ARENA, "mappo", 20_000),
)

MIXED = tuple(run for first in range(5) for run in RUNS[first::5])
"""The order of play: an unfinished benchmark has runs of all kinds."""


def examined(run: Healthy, folder: Path) -> dict[str, Any]:
    """Train a run, examine it, and return its line."""
    place = folder / str(RUNS.index(run))
    given = {"trainer": run.trainer, "steps": run.steps, "progress": False, **run.given}
    corral.train(run.env, out=place, **given)
    trained = cpu_seconds()
    named = [] if run.env in (*ENVIRONMENTS, *PROBES) else ["--env", run.env]
    done = subprocess.run(
        [sys.executable, "-m", "corral", "doctor", str(place), "--json", *named],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    result = json.loads(done.stdout)
    over_random = [
        lead
        for lead in (result["learning"] or {"leads": []})["leads"]
        if (lead["over"], lead["of"]) == ("random", "team") and lead["low"] is not None
    ]
    best = max(over_random, key=lambda lead: lead["low"], default=None)
    return {
        "name": str(run),
        "exit": done.returncode,
        "verdict": result["verdict"],
        "alarms": [
            [finding["cause"], finding["certainty"], finding["title"], finding["measured"]]
            for finding in result["findings"]
            if finding["certainty"] >= ALARM
        ],
        "lead": best and {key: best[key] for key in ("mode", "data", "mean", "low", "high")},
        "training_cpu": trained,
        "doctor_cpu": round(cpu_seconds() - trained, 1),
        "about": machine("torch"),
    }


def beats_random(row: dict[str, Any]) -> bool:
    return bool(row["lead"]) and row["lead"]["low"] > 0


def report(rows: list[dict[str, Any]]) -> None:
    """Write the counts and a table."""
    names = [str(run) for run in RUNS]
    rows = sorted(
        (row for row in rows if row["name"] in names), key=lambda r: names.index(r["name"])
    )
    beating = [row for row in rows if beats_random(row)]
    missed = [row for row in beating if row["verdict"] == "no fault"]
    alarms = [row for row in rows if row["alarms"]]
    lines = [
        "# Healthy runs, examined by the doctor",
        "",
        f"{len(rows)} of {len(RUNS)} runs. {len(alarms)} have an alarm above a note. "
        f'{len(beating)} beat random play; {len(missed)} of these get the verdict "no fault". '
        f"A diagnosis takes {max(row['doctor_cpu'] for row in rows):.0f} CPU s at most.",
        "",
        "| run | verdict | exit | alarms | lead over random play, 95 % interval "
        "| CPU s of training | CPU s of the doctor |",
        "|---|---|--:|---|---|--:|--:|",
    ]
    for row in rows:
        lead = row["lead"]
        text = f"{lead['low']:.3g} to {lead['high']:.3g} ({lead['mode']})" if lead else "unknown"
        found = ", ".join(cause for cause, *_ in row["alarms"]) or "none"
        lines.append(
            f"| {row['name']} | {row['verdict']} | {row['exit']} | {found} | {text} "
            f"| {row['training_cpu']:.0f} | {row['doctor_cpu']:.0f} |"
        )
    text = "\n".join(lines) + "\n"
    (RESULTS / "healthy.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--only", default="", metavar="TEXT", help="runs with TEXT in their name")
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--minutes", type=float, help="tasks that run longer are dropped")
    args = parser.parse_args()
    rows = kept_rows(FILE)
    if args.what == "report":
        report(rows)
        return
    done = {row["name"] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        failed = play(
            [run for run in MIXED if str(run) not in done and args.only in str(run)],
            functools.partial(examined, folder=Path(folder)),
            functools.partial(append_row, FILE),
            parallel=args.parallel,
            minutes=args.minutes,
        )
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
