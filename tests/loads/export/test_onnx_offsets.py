"""ONNX graphs of offsets to a rule: what they decide is what the run decides, to the request."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array
from support.loads import days, small_trace

torch = pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import corral  # noqa: E402
from corral.loads.export.onnx import export_onnx  # noqa: E402
from corral.loads.export.onnx_graph import TAG, DecisionGraph  # noqa: E402
from corral.trainers.runs.run import Run  # noqa: E402
from support.onnx_runs import LINE, TWO, as_graphs, played  # noqa: E402
from support.thinned import fast_every  # noqa: E402

CONFIGURATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "known": ({"residual": "overflow/least", "queue": 5}, {}),
    "known, margins": (
        {"residual": "backlog=0.7+margin=0.7/least", "queue": 9, "link_limit": 4},
        {"policies": TWO},
    ),
    "known, most": ({"residual": "margin/fill", "queue": 5, "neighbours": LINE}, {}),
    "known, links": (
        {"residual": "capacity=1.5/spare", "queue": 3, "link_limit": 2, "beyond": "rule"},
        {"policies": TWO},
    ),
    "known, summary": (
        {"residual": "capacity=0.8+margin=1.5/least", "observation": "summary", "queue": 4},
        {},
    ),
    "unknown": (
        {"residual": "backlog=0.75/least", "arrivals": "unknown", "queue": 7, "max_level": 7},
        {"policies": "shared"},
    ),
    "unknown, beyond": (
        {
            **{"residual": "threshold/weighted", "arrivals": "unknown", "beyond": "rule"},
            **{"last_counts": 3, "neighbours": LINE, "queue": 4, "daily_mean": True},
        },
        {"policies": "shared", "memory": 4},
    ),
    "unknown, clip": (
        {"residual": "local/equal", "arrivals": "unknown", "beyond": "clip", "queue": 4},
        {},
    ),
    "unknown, patient": (
        {"residual": "patient-margin/two", "arrivals": "unknown", "beyond": "rule", "queue": 4},
        {"policies": TWO},
    ),
    "unknown, summary": (
        {
            **{"residual": "capacity=0.7/equal", "arrivals": "unknown", "observation": "summary"},
            **{"beyond": "rule", "queue": 3, "neighbours": LINE, "last_counts": 2},
        },
        {},
    ),
    "unknown, neighborhood": (
        {
            **{"residual": "backlog=0.7/least", "arrivals": "unknown", "queue": 7, "max_level": 3},
            **{"observation": "neighborhood", "neighbours": LINE},
        },
        {},
    ),
    "clipped shares": ({"beyond": "clip", "amount": "share", "max_level": 7}, {}),
    "clipped amounts": ({"beyond": "clip", "load_scale": 8, "capacity_scale": 9}, {}),
}
BEYOND = [name for name, (env_kwargs, _) in CONFIGURATIONS.items() if "beyond" in env_kwargs]
LARGEST = 2**31


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@functools.cache
def run_of(name: str, folder: Path) -> Run:
    """Return a run of four nodes whose networks are random, and far from indifferent."""
    env_kwargs, settings = CONFIGURATIONS[name]
    reach = {"offsets": 3} if "residual" in env_kwargs else {}
    trace = days(3, 4) if "daily_mean" in env_kwargs else small_trace(nodes=4, steps=60)
    run = corral.train(
        "dfaas_v0", trainer="mappo", steps=16, out=folder / name.replace(", ", "-"),
        env_kwargs={"trace": trace, "max_cycles": 5, **reach, **env_kwargs},
        num_envs=2, n_steps=8, net_arch=(16,), preset="none", progress=False, **settings,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(4)
    networks = {id(each.network): each.network for each in run.policies.values()}  # type: ignore[attr-defined]
    with torch.no_grad():
        for network in networks.values():
            for values in network.parameters():
                values.copy_(torch.randn(values.shape, generator=generator) * 0.7)
    return run


def as_modules(run: Run) -> dict[str, Any]:
    """Return what the modules decide before they are exported."""

    def decider(policies: dict[int, Any]) -> Any:
        module = DecisionGraph(run.config.env_config.rules(), policies)  # type: ignore[arg-type]

        def decide(inputs: dict[str, Array]) -> dict[str, Array]:
            assert list(inputs) == list(module.inputs)
            with torch.no_grad():
                found = module({key: torch.from_numpy(each) for key, each in inputs.items()})
            return {key: each.numpy() for key, each in zip(module.outputs, found, strict=True)}

        return decide

    return {name: decider(policies) for name, policies in played(run).items()}


def drawn(rng: np.random.Generator, rules: Any, rows: int) -> dict[str, Array]:
    """Random numbers of all nodes: int64 [rows, N], counts [rows, N, K], and the time [rows]."""
    shape = rows, len(rules.agents)
    loads, capacities = int(rules.load_scale), int(rules.capacity_scale)
    counts = max(1, rules.last_counts)
    most = {"arrivals": loads, "capacity": capacities, "queue": rules.queue}
    most |= {"spare": capacities, "lost": loads}
    found = {}
    for key, largest in most.items():
        values = rng.integers(largest + 1, size=shape)
        values = np.where(rng.random(shape) < 0.3, rng.choice([0, largest], shape), values)
        if rules.beyond is not None and key != "queue":  # few rows have a number above its scale
            odd = rng.choice([largest + 1, 2 * largest, LARGEST], shape)
            values = np.where(rng.random(shape) < 0.02, odd, values)
        found[key] = values
    found["counts"] = rng.integers(loads + 1, size=(*shape, counts))
    if rules.beyond is not None:
        odd = rng.random(found["counts"].shape) < 0.02
        found["counts"][odd] = loads + 1
    found["time"] = rng.integers(10 * 86_400, size=rows)
    return found


def decided(run: Run, rules: Any, numbers: dict[str, Array], row: int) -> Any:
    """What the run decides about a row."""
    nodes: dict[str, dict[str, Any]] = {}
    previous = {}
    for i, name in enumerate(rules.trace.nodes):
        nodes[name] = {key: int(numbers[key][row, i]) for key in ("capacity", "queue")}
        if rules.arrivals == "known":
            nodes[name]["arrivals"] = int(numbers["arrivals"][row, i])
        if rules.last_counts:
            nodes[name]["last_arrivals"] = numbers["counts"][row, i].tolist()
        previous[name] = {key: int(numbers[key][row, i]) for key in ("spare", "lost")}
    time = {}
    if rules.daily_mean is not None:
        time = {"time": str(np.datetime64(int(numbers["time"][row]), "s"))}
    return run.decider.decide(nodes, previous, run.start(), **time)


def inputs_of(run: Run, numbers: dict[str, Array], number: int, memory: int) -> dict[str, Array]:
    """What the graph of a node takes."""
    rules: Any = run.config.env_config.rules()
    agents, policies = list(rules.agents), run.config.policies
    rows = len(numbers["queue"])
    given: dict[str, Array] = {}
    alike = [agent for agent in agents if policies[agent] == policies[agents[number]]]
    if len(alike) > 1 and rules.observation == "every":
        given["node"] = np.full(rows, number)
    if rules.arrivals == "known":
        given["arrivals"] = numbers["arrivals"][:, number]
    if rules.last_counts:
        counts = numbers["counts"][:, number]
        given["last_arrivals"] = counts[:, 0].copy() if rules.last_counts == 1 else counts
    given |= {key: numbers[key][:, number] for key in ("capacity", "queue")}
    if rules.daily_mean is not None:
        given["time"] = numbers["time"]
    if rules.observation == "every":
        given |= {key: numbers[key] for key in ("spare", "lost")}
    else:
        near = rules.network.others[number][rules.network.linked[number]]
        given |= {key: numbers[key][:, number] for key in ("spare", "lost")}
        given |= {f"neighbours_{key}": numbers[key][:, near] for key in ("spare", "lost")}
    if memory:
        given["state"] = np.zeros((rows, memory + TAG), dtype=np.float32)
    return given


def require_equal(run: Run, decide: dict[str, Any], rows: int, seed: int) -> None:
    rules: Any = run.config.env_config.rules()
    numbers = drawn(np.random.default_rng(seed), rules, rows)
    found = {}
    for name, policies in played(run).items():
        for number, policy in policies.items():
            found[number] = decide[name](inputs_of(run, numbers, number, policy.memory))
            assert found[number]["in_range"].all()
    above = np.zeros(rows, dtype=bool)
    for each in found.values():
        above |= each.get("above", False)
    met = {"deviates": 0, "above": int(above.sum()), "others": 0}
    by_rule = None
    if rules.residual is not None:
        by_rule = run.decider.by_rule(str(rules.residual.rule))
    key = "keep" if rules.arrivals == "unknown" else "amount"
    for row in range(rows):
        expected = decided(run, rules, numbers, row)
        for number, name in enumerate(rules.trace.nodes):
            outputs = {output: values[row] for output, values in found[number].items()}
            ours = outputs["rule"] if above[row] else outputs[key]
            if key == "amount":
                assert ours == sum(expected[name].values())
            else:
                assert ours == (-1 if expected[name]["keep"] is None else expected[name]["keep"])
            if by_rule is None:
                continue
            unit = rules.unit
            if rules.observation != "every":  # the node's own
                limit = int(numbers["capacity"][row, number]) + rules.queue
                unit = max(1, -(-limit // rules.max_level))
            offset = rules.residual.offsets[outputs["action"]] * unit
            assert outputs["offset"] == offset
            met["deviates"] += outputs[key] != outputs["rule"]
            met["others"] += bool(above[row]) and not outputs["above"]
            if outputs["action"] == 0:
                assert outputs[key] == outputs["rule"]
            if outputs.get("above", False):
                assert outputs["action"] == 0
    if by_rule is not None:
        assert met["deviates"] > rows / 40
    if rules.beyond == "rule" and rules.observation == "every":
        assert min(met.values()) > rows / 40
        assert met["above"] < rows * 0.9
    else:
        assert met["above"] == 0


@pytest.mark.parametrize("name", fast_every(3, CONFIGURATIONS))
def test_modules_decide_as_the_run_does(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    require_equal(run, as_modules(run), 80, seed=1)


@functools.cache
def files_of(name: str, folder: Path) -> list[Path]:
    return export_onnx(run_of(name, folder), folder / f"onnx-{name}")


@pytest.mark.slow  # each is traced and written, which takes seconds
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_graphs_decide_as_the_run_does(name: str, folder: Path) -> None:
    require_equal(run_of(name, folder), as_graphs(files_of(name, folder)), 100, seed=2)


def test_whatever_is_given_the_decision_is_legal(folder: Path) -> None:
    """Numbers of nobody: a node keeps what it has room for, or what the rule keeps."""
    odd = np.array([-(2**63), -1, 0, 1, 7, LARGEST, LARGEST + 1, 2**63 - 1])
    for name in CONFIGURATIONS:
        run = run_of(name, folder)
        rules: Any = run.config.env_config.rules()
        rng = np.random.default_rng(3)
        for policy, decide in as_modules(run).items():
            number, one = next(iter(played(run)[policy].items()))
            given = inputs_of(run, drawn(rng, rules, 300), number, one.memory)
            for key, values in given.items():
                if values.dtype == np.int64:
                    changed = rng.random(values.shape) < 0.2
                    given[key] = np.where(changed, rng.choice(odd, values.shape), values)
            found = decide(given)
            assert 0 < found["in_range"].sum() < 300
            every = np.arange(300)
            assert np.isfinite(found["logits"][every, found["action"]]).all()
            if "keep" in found:
                assert found["keep"].min() >= -1
                assert found["keep"].max() <= 2 * LARGEST
            else:
                assert found["amount"].min() >= 0
                assert (found["amount"] <= np.maximum(given["arrivals"], 0)).all()


@pytest.mark.parametrize("name", BEYOND)
def test_numbers_up_to_the_largest_are_in_range(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    rules: Any = run.config.env_config.rules()
    for policy, decide in as_modules(run).items():
        number, one = next(iter(played(run)[policy].items()))
        numbers = drawn(np.random.default_rng(0), rules, 4)
        for key in ("arrivals", "capacity", "spare", "lost", "counts"):
            numbers[key] = np.full_like(numbers[key], LARGEST)
        found = decide(inputs_of(run, numbers, number, one.memory))
        assert found["in_range"].all()
        if "above" in found:
            assert found["above"].all()
            assert not found["action"].any()
        numbers["capacity"] += 1
        assert not decide(inputs_of(run, numbers, number, one.memory))["in_range"].any()


@pytest.mark.slow
def test_a_graph_of_offsets_says_so(folder: Path) -> None:
    name = "unknown, beyond"
    (path,) = files_of(name, folder)
    about = {each.key: each.value for each in onnx.load(path).metadata_props}
    rules: Any = run_of(name, folder).config.env_config.rules()
    assert about["format"] == "corral dfaas_v0 3"
    assert about["residual"] == "threshold/weighted"
    assert about["beyond"] == "rule"
    assert json.loads(about["offsets"]) == (rules.residual.offsets * rules.unit).tolist()
    assert json.loads(about["link_limit"]) is None
    assert json.loads(about["largest"]) == {"arrivals": LARGEST, "capacity": LARGEST, "queue": 4}
    assert json.loads(about["outputs"]) == [
        *("keep", "offset", "rule", "above", "action", "logits", "in_range", "next_state")
    ]
    assert {"requests", "shares", "unit"}.isdisjoint(about)
