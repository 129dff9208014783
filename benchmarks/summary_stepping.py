"""How fast dfaas_v0 steps when nodes observe a summary, beside every other node: 3, 20, 200 nodes.

    OMP_NUM_THREADS=1 python benchmarks/summary_stepping.py

64 environments, random legal actions, observations built; env steps per second of CPU time, where
an env step moves all nodes. Both are timed in turn, in several rounds.
"""

from __future__ import annotations

import statistics
import time

from common import env_steps_per_second, machine, random_batch, save

from corral.data import make_trace

NODES, ENVS = (3, 20, 200), 64
ROUNDS, SECONDS = 3, 2.0


def main() -> None:
    lines = ["| nodes | every | summary | ratio |", "|---|---|---|---|"]
    found = {}
    for nodes in NODES:
        trace = make_trace(nodes=nodes, days=2, seed=nodes)
        speeds = env_steps_per_second(
            {
                observation: random_batch("dfaas_v0", ENVS, trace=trace, observation=observation)
                for observation in ("every", "summary")
            },
            rounds=ROUNDS,
            seconds=SECONDS,
            clock=time.process_time,
        )
        found[nodes] = speeds
        every, summary = (statistics.median(own) for own in speeds.values())
        lines.append(f"| {nodes} | {every:,.0f} | {summary:,.0f} | {summary / every:.2f} |")
    text = f"Env steps/s of {ENVS} environments, CPU time\n\n" + "\n".join(lines) + "\n"
    save("summary_stepping", text, {"speeds": found}, machine())


if __name__ == "__main__":
    main()
