"""Policies as ONNX graphs: what onnxruntime decides is what the policy itself decides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array
from corral.trainers.driver import train
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.onnx_inputs import Difference, difference, random_moments

torch = pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from corral.trainers.loads.export.onnx import export_onnx  # noqa: E402
from corral.trainers.loads.export.onnx_graph import Decider  # noqa: E402

SMALL = {"num_envs": 2, "n_steps": 8, "net_arch": (16,)}
LINE = {"node_0": ["node_1", "node_3"], "node_1": ["node_2"], "node_3": ["node_0"]}
"""Neighbours of four nodes, of which node_2 has none."""

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "shared": ("mappo", {}, {"policies": "shared"}),
    "units": ("ippo", {"max_level": 4, "queue": 3}, {"policies": "separate"}),
    "quantiles": (
        "mappo",
        {"amount": "quantile", "max_level": 5, "report_delay": 0, "neighbours": LINE},
        {"net_arch": (16, 16, 16), "activation": "tanh"},
    ),
    "list": (
        "policy_iteration",
        {"amount": [0, 1, 5, 12], "route": "spare"},
        {"lookahead": 2, "net_arch": (16, 16)},
    ),
    "choose": (
        "mappo",
        {"route": "choose", "neighbours": LINE, "report_delay": 2},
        {"memory": 8, "policies": "shared", "agent_id": False},
    ),
    "summary": ("mappo", {"observation": "summary", "queue": 2}, {}),
    "summary, choose": (
        "ippo",
        {"observation": "summary", "route": "choose", "neighbours": LINE, "max_level": 7},
        {"memory": 4},
    ),
    "sb3_ppo": ("sb3_ppo", {"queue": 3}, {"policies": "shared", "batch_size": 8}),
    "sb3_dqn": ("sb3_dqn", {}, {"learning_starts": 4}),
    "sb3_maskable_ppo": ("sb3_maskable_ppo", {"route": "choose"}, {"batch_size": 8}),
    "sb3_a2c": ("sb3_a2c", {"observation": "summary"}, {}),
}


WRITTEN = ("choose", "summary")
"""Those whose graphs are written by default: it takes seconds."""


@cache
def run_of(name: str, folder: Path) -> Run:
    """Return a run whose networks are random, and far from indifferent."""
    trainer, env_kwargs, settings = CONFIGURATIONS[name]
    trace = small_trace(nodes=4, steps=60)
    given = {**SMALL, **settings}
    if trainer == "sb3_dqn":
        given.pop("n_steps")
    env_kwargs = {"trace": trace, "max_cycles": 5, **env_kwargs}
    run = train(
        "dfaas_v0",
        trainer=trainer,
        env_kwargs=env_kwargs,
        steps=16,
        out=folder / name.replace(", ", "-"),
        preset="none",
        **given,
    )
    generator = torch.Generator().manual_seed(4)
    networks = {id(each.network): each.network for each in run.policies.values()}  # type: ignore[attr-defined]
    with torch.no_grad():
        for network in networks.values():
            for values in network.parameters():
                values.copy_(torch.randn(values.shape, generator=generator) * 0.7)
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def played(run: Run) -> dict[str, dict[int, Any]]:
    """Return the policies by name and number of the node."""
    found: dict[str, dict[int, Any]] = {}
    for number, agent in enumerate(run.policies):
        found.setdefault(run.config.policies[agent], {})[number] = run.policies[agent]
    return found


def compared(run: Run, decide: Mapping[str, Any], rows: int, seed: int) -> Difference:
    """Return how what ``decide`` says, by the name of the policy, differs from the run."""
    moments = random_moments(run, rows, seed)
    total = Difference()
    for name, policies in played(run).items():
        for number, policy in policies.items():
            inputs = moments.inputs(run, number)
            state = None
            if policy.memory:
                rng = np.random.default_rng(seed)
                state = rng.uniform(-1, 1, (rows, policy.memory)).astype(np.float32)
                inputs["state"] = state
            total.add(difference(moments, number, policy, state, decide[name](inputs)))
    return total


def as_modules(run: Run) -> dict[str, Any]:
    """Return what the modules decide before they are exported."""

    def decider(policies: dict[int, Any]) -> Any:
        module = Decider(run.config.env_config.rules(), policies)  # type: ignore[arg-type]

        def decide(inputs: dict[str, Array]) -> dict[str, Array]:
            assert list(inputs) == list(module.inputs)
            with torch.no_grad():
                found = module({key: torch.from_numpy(each) for key, each in inputs.items()})
            return {key: each.numpy() for key, each in zip(module.outputs, found, strict=True)}

        return decide

    return {name: decider(policies) for name, policies in played(run).items()}


def as_graphs(paths: list[Path]) -> dict[str, Any]:
    """Return what onnxruntime decides by the files."""

    def graph(path: Path) -> Any:
        session = ort.InferenceSession(path)
        names = [each.name for each in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))

    return {path.stem: graph(path) for path in paths}


def require_equal(found: Difference, decisions: int) -> None:
    assert found.decisions == decisions
    assert found.logits < 1e-5
    assert found.closest < 1e-5  # where another action was chosen, both are as good
    assert found.states < 1e-5
    assert (found.illegal, found.masks, found.amounts) == (0, 0, 0)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_modules_decide_as_the_policies_do(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    require_equal(compared(run, as_modules(run), 200, seed=1), 4 * 200)


def require_equal_graphs(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    graphs = as_graphs(export_onnx(run, folder / f"onnx-{name}"))
    assert list(graphs) == list(played(run))  # one of each policy
    require_equal(compared(run, graphs, 200, seed=2), 4 * 200)
    require_equal(compared(run, graphs, 1, seed=3), 4)  # of any number of rows


@pytest.mark.parametrize("name", WRITTEN)
def test_graphs_decide_as_the_policies_do(name: str, folder: Path) -> None:
    require_equal_graphs(name, folder)


@pytest.mark.slow  # each is traced and written, which takes seconds
@pytest.mark.parametrize(
    "name", [each for each in CONFIGURATIONS if each not in ("choose", "summary")]
)
def test_all_graphs_decide_as_the_policies_do(name: str, folder: Path) -> None:
    require_equal_graphs(name, folder)
