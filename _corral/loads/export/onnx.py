"""Policies of dfaas_v0 as ONNX graphs from whole numbers to a decision.

A graph includes scaling, masking, the choice of an action, and its conversion into requests. Its
``metadata_props`` describe the inputs, the outputs and the nodes; docs/gateway.md explains them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import corral
from corral.data.trace import MAX_VALUE
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.amounts import Amounts, Keeps
from corral.envs.dfaas_v0.residual import Residual
from corral.errors import RunError
from corral.extras import require
from corral.files import write_file
from corral.loads.export.manifest import UNSIGNED, ExportError, with_digest
from corral.loads.export.onnx_graph import DecisionGraph
from corral.text import shortened
from corral.trainers.cloning.teachers import checkpoint_digest
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.run import Run

__all__ = ["OPSET", "export_onnx", "networks_of"]

OPSET = 18
"""The oldest operator set that torch's exporter supports: of ONNX 1.13, December 2022."""

IR_VERSION = 8
"""File format of ONNX 1.13: the exporter sets a later one, which older runtimes refuse."""

SIZES = {"batch": 7, "neighbours": 5}
"""Sizes of the traced inputs; the graph accepts any size."""

FORMAT = "corral dfaas_v0 1"
NEWER = "corral dfaas_v0 2"
"""Format of graphs with unknown arrivals, past counts, the time, or levels of requests to keep."""

OF_OFFSETS = "corral dfaas_v0 3"
"""Format of graphs whose actions are offsets to a rule, or whose inputs may exceed the scales."""

REALS = {"state": torch.float32, "daily_mean": torch.float64}
"""Dtypes of inputs other than int64."""

DESCRIPTION = (
    "The number of requests that a node forwards or keeps, by a policy of corral: see "
    "metadata_props and the page gateway.md of corral's documentation"
)


def export_onnx(run: Run, folder: str | Path) -> list[Path]:
    """Write a graph for each trained policy, <policy>.onnx, and return their paths.

    Raises MissingExtraError without the extra ``onnx``, RunError for a run of another environment
    and for policies without a network.
    """
    for module in ("onnx", "onnxscript"):
        require(module, extra="onnx", purpose='export("onnx")')
    rules = run.config.env_config.rules()
    if not isinstance(rules, DfaasRules):
        raise RunError(
            f'{run.name} was trained in {run.config.env_config.env}: export("onnx") supports only '
            "dfaas_v0"
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return [
        _write(run, rules, name, played, target / f"{name}.onnx")
        for name, played in networks_of(run, rules).items()
    ]


def networks_of(run: Run, rules: DfaasRules) -> dict[str, dict[int, NetworkPolicy]]:
    """Return the networks by policy name and node number, without fixed opponents. Raises RunError
    for a policy that cannot be traced."""
    networks: dict[str, dict[int, NetworkPolicy]] = {}
    for number, agent in enumerate(rules.agents):
        if agent in run.config.opponents:
            continue
        policy = run.policies[agent]
        if not isinstance(policy, NetworkPolicy) or not hasattr(policy.forward, "outputs"):
            raise RunError(
                f"{run.name}: {agent} is played by {type(policy).__name__} of trainer "
                f'{run.config.trainer}, which export("onnx") cannot trace; use export("numpy") or '
                "run.decide"
            )
        networks.setdefault(run.config.policies[agent], {})[number] = policy
    return networks


def _write(
    run: Run, rules: DfaasRules, name: str, played: dict[int, NetworkPolicy], path: Path
) -> Path:
    # A copy: the graph is traced on the CPU, and the run's networks may be on another device.
    graph = DecisionGraph(rules, copy.deepcopy(played)).cpu().eval()
    _require_finite(run, name, graph)
    axes = {key: _axes(shape) for key, shape in graph.inputs.items()}
    given = {
        key: torch.zeros(
            [SIZES[size] if isinstance(size, str) else size for size in shape],
            dtype=REALS.get(key, torch.int64),
        )
        for key, shape in graph.inputs.items()
    }
    try:
        with _quiet():
            program = torch.onnx.export(
                graph,
                kwargs={"given": given},  # in args the exporter would misread a mapping
                dynamic_shapes={"given": axes},
                input_names=list(graph.inputs),
                output_names=graph.outputs,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise RunError(
            f"{run.name}: the network of policy {name} cannot be written as ONNX: torch.export "
            f"reports {shortened(reason, 200)!r}"
        ) from error
    assert program is not None
    _describe(program.model, _about(run, rules, name, played, graph))
    program.save(str(path))
    try:
        return write_file(path, with_digest(path.read_bytes()))
    except ExportError as error:
        raise RunError(f"{run.name}: {error}") from error


def _require_finite(run: Run, name: str, graph: DecisionGraph) -> None:
    for key, values in graph.state_dict().items():
        if not torch.isfinite(values).all():
            raise RunError(f"{run.name}: policy {name}: {key} has values that are not finite")


def _axes(shape: tuple[int | str, ...]) -> dict[int, str]:
    """Return the names of the axes with variable size."""
    return {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's logs and warnings."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# --- Metadata of a graph -------------------------------------------------------------------------


def _about(
    run: Run,
    rules: DfaasRules,
    name: str,
    played: Mapping[int, NetworkPolicy],
    graph: DecisionGraph,
) -> dict[str, Any]:
    """Return the metadata as JSON values: see the table in docs/gateway.md."""
    nodes = rules.trace.nodes
    links = rules.network.links
    every = rules.observation == "every"
    levels = rules.levels_of
    bounded = every and rules.beyond is None
    about: dict[str, Any] = {
        "format": FORMAT,
        "sha256": UNSIGNED,  # replaced when the file is written
        "corral": corral.__version__,
        "run": run.folder.name + run.suffix,
        "checkpoint": run.source(),
        "checkpoint_sha256": checkpoint_digest(run) or "",
        "policy": name,
        "trainer": run.config.trainer,
        "plays": [nodes[number] for number in played],
        "nodes": list(nodes),
        "neighbours": {
            node: [nodes[j] for j in _cyclic(links[i], i)] for i, node in enumerate(nodes)
        },
        "inputs": {key: list(shape) for key, shape in graph.inputs.items()},
        "outputs": graph.outputs,
        "logits": "values of actions" if graph.forward_of.values else "log-probabilities",  # type: ignore[attr-defined]
        "observation": rules.observation,
        "route": rules.route,
        "report_delay": rules.report_delay,
        "queue": rules.queue,
        "largest": {
            "arrivals": int(rules.load_scale) if bounded else MAX_VALUE,
            "capacity": int(rules.capacity_scale) if bounded else MAX_VALUE,
            "queue": rules.queue if every or rules.residual is not None else MAX_VALUE,
        },
    }
    if isinstance(levels, Amounts):
        about["requests"] = levels.requests.tolist()
    elif isinstance(levels, Keeps):
        about["unit"] = levels.unit
    elif isinstance(levels, Residual):
        about["residual"] = str(levels.rule)
        about["offsets"] = (levels.offsets * (1 if levels.relative else levels.unit)).tolist()
        about["max_level"] = levels.max_level if levels.relative else None
        about["link_limit"] = rules.link_limit
    else:
        about["shares"] = levels.count - 1
    newer = isinstance(levels, Keeps | Residual) or rules.caps is not None
    if newer or rules.arrivals == "unknown" or rules.last_counts or rules.daily_mean is not None:
        about |= {"format": NEWER, "arrivals": rules.arrivals, "last_counts": rules.last_counts}
        about["caps"] = rules.caps
        if rules.daily_mean is not None:
            about["daily_mean"] = rules.daily_mean.tolist()
    if rules.residual is not None or rules.beyond is not None:
        about |= {"format": OF_OFFSETS, "beyond": rules.beyond}
    return about


def _cyclic(linked: Any, node: int) -> list[int]:
    """Return the neighbors of a node in cyclic order, by their numbers."""
    count = len(linked)
    return [j % count for j in range(node + 1, node + count) if linked[j % count]]


def _describe(model: Any, about: Mapping[str, Any]) -> None:
    """Replace the exporter's data about the sources in a model's metadata by ``about``."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.ir_version = IR_VERSION
    model.graph.name, model.doc_string = "decision", DESCRIPTION
    model.metadata_props.clear()
    for key, value in about.items():
        model.metadata_props[key] = value if isinstance(value, str) else json.dumps(value)
