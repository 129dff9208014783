"""Do ONNX graphs decide as the policies they are made of? 100,000 observations of each kind of run.

    OMP_NUM_THREADS=1 python benchmarks/loads/onnx_equality.py [KIND ...]

With kinds ("unknown, counts"), these alone are measured; the others keep their last figures.
Runs are those of the tests (``tests/support/onnx_runs.py``) with the networks that their trainers
make by default, trained for a while; and two larger ones. Of each, random observations in range are
compared, three in ten of their numbers 0, 1 or the largest there are; then as many with numbers out
of range, of which decisions must still be legal. Last, decisions of one node are timed.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.data import make_trace
from corral.loads.export.onnx import export_onnx
from support.onnx_runs import (
    CONFIGURATIONS,
    Difference,
    as_graphs,
    compared,
    hostile_inputs,
    illegal_decisions,
    random_inputs,
    trained,
)

OBSERVATIONS, AT_ONCE = 100_000, 10_000
STEPS = 10_000
TIMED = 2_000

LARGER: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "100 quantiles": ("mappo", {"amount": "quantile", "queue": 500}, {"policies": "shared"}),
    "20 nodes, summary": ("mappo", {"observation": "summary"}, {}),
}
NODES = {"100 quantiles": 6, "20 nodes, summary": 20}


def main() -> None:
    CONFIGURATIONS.update(LARGER)
    for _, _, settings in CONFIGURATIONS.values():
        settings.pop("batch_size", None)  # that of the tests takes long
    path = RESULTS / "onnx_equality.json"
    found = json.loads(path.read_text())["runs"] if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or CONFIGURATIONS:
            found[name] = measured(name, Path(folder))
            print(name, found[name], flush=True)
    report({name: found[name] for name in CONFIGURATIONS if name in found})


def report(found: dict[str, dict[str, Any]]) -> None:
    """Write down the figures of runs by name."""
    head = "| run | trainer | logits, largest difference | other actions | their logits apart by "
    head += "| other amounts | illegal | out of range: illegal | KB | µs a decision |"
    lines = [head, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {name} | {CONFIGURATIONS[name][0]} | {row['logits']:.1e} | {row['actions']} "
        f"| {row['closest']:.1e} | {row['amounts']} | {row['illegal'] + row['masks']} "
        f"| {row['illegal out of range']} | {row['kilobytes']:.0f} | {row['microseconds']:.0f} |"
        for name, row in found.items()
    ]
    title = (
        f"ONNX graphs beside their policies, {OBSERVATIONS:,} observations in range of each, and "
    )
    title += f"{OBSERVATIONS:,} out of range"
    text = title + "\n\n" + "\n".join(lines) + "\n"
    save("onnx_equality", text, {"runs": found}, machine("torch", "onnx", "onnxruntime"))


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Return what tells the graphs of a run from its policies, their size and speed."""
    given: dict[str, Any] = {} if name.startswith("sb3") else {"num_envs": 8, "n_steps": 32}
    trace = None
    if name in NODES:
        trace = make_trace(nodes=NODES[name], days=4, seed=1)
    run = trained(name, folder, trace, steps=STEPS, **given)
    paths = export_onnx(run, folder / "onnx" / name.replace(", ", "-"))
    graphs = as_graphs(paths)
    nodes = len(run.policies)
    rows = AT_ONCE // nodes
    total, seed = Difference(), 0
    while total.decisions < OBSERVATIONS:
        seed += 1
        total.add(compared(run, graphs, rows, seed))
    rng = np.random.default_rng(0)
    illegal = count = 0
    while count < OBSERVATIONS:
        seed += 1
        number = seed % nodes
        decide = graphs[list(run.config.policies.values())[number]]
        odd = hostile_inputs(random_inputs(run, AT_ONCE, seed, number), rng)
        illegal += int(illegal_decisions(run, odd, decide(odd), number).sum())
        count += AT_ONCE
    return {
        **vars(total),
        "illegal out of range": illegal,
        "kilobytes": sum(path.stat().st_size for path in paths) / 1e3,
        "microseconds": 1e6 * seconds(decide, random_inputs(run, 1, 0, number)),
    }


def seconds(decide: Any, inputs: dict[str, Any]) -> float:
    """Return the median of the seconds that a decision of one node takes."""
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        decide(inputs)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
