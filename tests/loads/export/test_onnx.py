"""Policies as ONNX graphs: what onnxruntime decides is what the policy itself decides."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import warnings
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.envs import make_rules
from corral.envs.core import Array
from corral.errors import MissingExtraError, RunError
from support.loads import small_trace
from support.messages import refused

torch = pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from corral.adapters.networks import MaskedActorCritic  # noqa: E402
from corral.loads.export.manifest import ExportError, read_graph  # noqa: E402
from corral.loads.export.onnx import export_onnx, networks_of  # noqa: E402
from corral.loads.export.onnx_graph import TAG, DecisionGraph  # noqa: E402
from corral.trainers.driver import train  # noqa: E402
from corral.trainers.on_policy.buffer import make_groups  # noqa: E402
from corral.trainers.policies import mlp_policy, rllib_policy  # noqa: E402
from corral.trainers.runs.run import Run  # noqa: E402
from support.onnx_runs import (  # noqa: E402
    CONFIGURATIONS,
    Difference,
    as_graphs,
    compared,
    hostile_inputs,
    illegal_decisions,
    played,
    random_inputs,
    trained,
)
from support.own_networks import made_of  # noqa: E402
from support.thinned import fast_every  # noqa: E402

SMALL = {"num_envs": 2, "n_steps": 8, "net_arch": (16,)}

SLOWLY_WRITTEN = ("summary, choose", "unknown")
WRITTEN = ("list", *SLOWLY_WRITTEN)
"""Those that get whatever is given: to write a graph takes seconds, and its memory more."""


@functools.cache
def run_of(name: str, folder: Path) -> Run:
    """Return a run whose networks are random, and far from indifferent."""
    run = trained(name, folder, steps=16, **SMALL)
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


@functools.cache
def files_of(name: str, folder: Path) -> list[Path]:
    """Return the graphs of a run."""
    return export_onnx(run_of(name, folder), folder / f"onnx-{name}")


def require_equal(found: Difference, decisions: int) -> None:
    assert found.decisions == decisions
    assert found.logits < 1e-5
    assert found.closest < 1e-5  # where another action was chosen, both are as good
    assert found.states < 1e-5
    assert (found.illegal, found.masks, found.amounts) == (0, 0, 0)


@pytest.mark.parametrize("name", fast_every(3, CONFIGURATIONS))
def test_modules_decide_as_the_policies_do(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    require_equal(compared(run, as_modules(run), 200, seed=1), 4 * 200)


@pytest.mark.parametrize("network", ["rllib_ppo", "benchmarl", "benchmarl, values"])
def test_networks_of_other_frameworks_decide_as_their_policies_do(network: str) -> None:
    """Their frameworks are not needed, where nothing is trained."""
    make = functools.partial(make_rules, "dfaas_v0")
    rules: Any = make(trace=small_trace(nodes=4, steps=60), queue=2)
    names = dict.fromkeys(rules.agents, "shared")
    (group,) = make_groups(rules, names, agent_id=True)
    policies = {}
    if network == "rllib_ppo":
        entries = dict(rules.observation_space("node_0").spaces)
        entries["agent"] = spaces.Box(0.0, 1.0, (4,), np.float32)
        made = MaskedActorCritic(spaces.Dict(entries), rules.action_space("node_0"))
        for agent, identity in zip(rules.agents, np.eye(4, dtype=np.float32), strict=True):
            policies[agent] = rllib_policy(made, group, agent, identity)
    else:
        layers = torch.nn.Sequential(torch.nn.Linear(9 + 4, 8), torch.nn.Linear(8, rules.levels))
        values = network.endswith("values")
        policies = {a: mlp_policy(layers, group, a, greedy=values) for a in rules.agents}
    config = SimpleNamespace(policies=names, env_config=SimpleNamespace(rules=make))
    run: Any = SimpleNamespace(config=config, policies=policies)
    config.env_config.rules = functools.partial(make, trace=rules.trace, queue=2)
    require_equal(compared(run, as_modules(run), 200, seed=1), 4 * 200)


def require_equal_graphs(name: str, folder: Path) -> None:
    run = run_of(name, folder)
    graphs = as_graphs(files_of(name, folder))
    assert list(graphs) == list(played(run))  # one of each policy
    require_equal(compared(run, graphs, 200, seed=2), 4 * 200)
    require_equal(compared(run, graphs, 1, seed=3), 4)  # of any number of rows


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_graphs_decide_as_the_policies_do(name: str, folder: Path) -> None:
    require_equal_graphs(name, folder)


@pytest.mark.slow  # each is traced and written, which takes seconds
@pytest.mark.parametrize(
    "name", [each for each in CONFIGURATIONS if each not in ("choose", "summary", *WRITTEN)]
)
def test_all_graphs_decide_as_the_policies_do(name: str, folder: Path) -> None:
    require_equal_graphs(name, folder)


# --- Inputs that are none ------------------------------------------------------------------------


def graph_of(name: str, folder: Path) -> Any:
    (decide,) = as_graphs(files_of(name, folder)).values()
    return decide


@pytest.mark.parametrize(
    "name", ["list", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOWLY_WRITTEN)]
)
def test_whatever_is_given_the_decision_is_legal(name: str, folder: Path) -> None:
    run, decide = run_of(name, folder), graph_of(name, folder)
    rng = np.random.default_rng(5)
    for number in range(4):
        given = hostile_inputs(random_inputs(run, 500, number, number), rng)
        found = decide(given)
        assert not illegal_decisions(run, given, found, number).any()
        assert 0 < found["in_range"].sum() < 500


def test_numbers_out_of_range_are_read_as_the_nearest_in_it(folder: Path) -> None:
    run, decide = run_of("list", folder), graph_of("list", folder)
    given = random_inputs(run, 40, seed=6)
    rules: Any = run.config.env_config.rules()
    largest = {"arrivals": int(rules.load_scale), "lost": int(rules.load_scale)}
    largest |= dict.fromkeys(("capacity", "spare"), int(rules.capacity_scale))
    for name, most in {**largest, "queue": 0}.items():
        for odd, nearest in ((-1, 0), (most + 1, most)):
            there, here = dict(given), dict(given)
            there[name], here[name] = (
                np.full_like(given[name], odd),
                np.full_like(given[name], nearest),
            )
            found, expected = decide(there), decide(here)
            assert expected.pop("in_range").all()
            assert not found.pop("in_range").any(), name
            for key, each in expected.items():
                np.testing.assert_array_equal(found[key], each, err_msg=name)


def test_a_node_of_another_policy_is_told(folder: Path) -> None:
    decide = graph_of("list", folder)
    given = random_inputs(run_of("list", folder), 4, seed=6)
    given["node"] = np.array([0, 3, 4, -1])
    assert decide(given)["in_range"].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spare": np.zeros((4, 3), dtype=np.int64)}, "spare"),
        ({"arrivals": np.zeros((4, 1), dtype=np.int64)}, "arrivals"),
        ({"arrivals": np.zeros(4)}, r"expected.*int64"),
        ({"capacity": np.zeros(3, dtype=np.int64)}, "3"),
        ({"node": np.zeros(3, dtype=np.int64)}, "3"),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(
    change: dict[str, Array], said: str, folder: Path
) -> None:
    decide = graph_of("list", folder)
    with pytest.raises(Exception, match=said):  # of classes that onnxruntime makes
        decide({**random_inputs(run_of("list", folder), 4, seed=6), **change})


@pytest.mark.slow
def test_a_summary_takes_any_number_of_neighbours(folder: Path) -> None:
    """Also none, and in one batch more and fewer; nobody is marked by a spare of -1."""
    name = "summary, choose"
    decide = graph_of(name, folder)
    rows = 60
    given = random_inputs(run_of(name, folder), rows, seed=7)
    rng = np.random.default_rng(7)
    for count in (1, 2, 3, 200):
        more = rng.integers(0, 5, (2, rows, count))  # many are equal
        given |= {"neighbours_spare": more[0], "neighbours_lost": more[1]}
        plain = decide(given)
        padded = dict(given)
        for key, nobody in (("neighbours_spare", -1), ("neighbours_lost", 3)):
            padded[key] = np.concatenate([given[key], np.full((rows, 2), nobody)], axis=1)
        for key, each in decide(padded).items():
            np.testing.assert_array_equal(each, plain[key], err_msg=f"{key}, {count}")
        assert plain["target"].max() > 0 or count == 1
    given |= dict.fromkeys(("neighbours_spare", "neighbours_lost"), np.zeros((rows, 0), np.int64))
    alone = decide(given)
    assert not alone["amount"].any()
    assert (alone["target"] == -1).all()
    assert alone["in_range"].all()


# --- States --------------------------------------------------------------------------------------


def require_own_states(decide: Any, other: Any, given: dict[str, Array]) -> None:
    """A state of another graph begins anew, and the graph says so; a start is in range."""
    rows = len(given["state"])
    fresh = decide(given)
    assert fresh["in_range"].all()
    own, theirs = fresh["next_state"], other(given)["next_state"]
    assert np.abs(own[:, -TAG:] - theirs[:, -TAG:]).max() > 0
    after = decide({**given, "state": own})
    assert after["in_range"].all()
    assert not np.array_equal(after["logits"], fresh["logits"])
    odd = own.copy()
    odd[:, 0] = 1.5  # read as 0, as the rest is not
    nan = np.full_like(own, np.nan)
    for state, as_fresh in ((theirs, True), (nan, True), (own * 1e18, True), (odd, False)):
        found = decide({**given, "state": state})
        assert found["in_range"].tolist() == [False] * rows
        assert np.array_equal(found["logits"], fresh["logits"]) == as_fresh
        np.testing.assert_array_equal(found["next_state"][:, -TAG:], own[:, -TAG:])


def test_a_module_knows_the_states_of_its_own(folder: Path) -> None:
    run = run_of("choose", folder)
    decide = as_modules(run)["shared"]
    with torch.no_grad():
        weights = next(iter(run.policies.values())).network.parameters()  # type: ignore[attr-defined]
        last = [*weights][-1]
        last += 0.01  # as if it had been trained again
        other = as_modules(run)["shared"]
        last -= 0.01
    require_own_states(decide, other, random_inputs(run, 20, seed=9))


@pytest.mark.slow  # two graphs are written
def test_a_graph_knows_the_states_of_its_own(folder: Path) -> None:
    name = "unknown, counts"
    decide = as_graphs(files_of(name, folder))
    given = random_inputs(run_of(name, folder), 20, seed=9)
    require_own_states(decide["node_0"], decide["node_1"], given)


# --- Files ---------------------------------------------------------------------------------------


def test_a_damaged_graph_is_refused(folder: Path, tmp_path: Path) -> None:
    (path,) = files_of("list", folder)
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    assert read_graph(path) == whole
    about = {each.key: each.value for each in onnx.load(path).metadata_props}
    zeros = whole.replace(about["sha256"].encode(), b"0" * 64)
    assert about["sha256"] == hashlib.sha256(zeros).hexdigest()
    damaged = tmp_path / "shared.onnx"
    for place in rng.integers(8 * len(whole), size=150).tolist():
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        damaged.write_bytes(flipped)
        with pytest.raises(ExportError):
            read_graph(damaged)
    for data in (b"", whole[:-1], whole + b" ", whole * 2, zeros):
        damaged.write_bytes(data)
        with pytest.raises(ExportError):
            read_graph(damaged)


@pytest.mark.parametrize("change", ["nodes", "negated", "NaN"])
def test_an_edited_graph_is_refused(folder: Path, tmp_path: Path, change: str) -> None:
    (path,) = files_of("list", folder)
    model = onnx.load(path)
    if change == "nodes":
        (entry,) = [each for each in model.metadata_props if each.key == "nodes"]
        entry.value = json.dumps([*reversed(json.loads(entry.value))])
    else:
        weights = [each for each in model.graph.initializer if each.data_type == 1]
        assert weights
        for each in weights:
            values = onnx.numpy_helper.to_array(each)
            values = -values if change == "negated" else values * np.nan
            each.CopyFrom(onnx.numpy_helper.from_array(values, each.name))
    onnx.save(model, tmp_path / "shared.onnx")
    with pytest.raises(ExportError):
        read_graph(tmp_path / "shared.onnx")


def test_weights_that_are_not_finite_are_not_written(folder: Path, tmp_path: Path) -> None:
    run = run_of("list", folder)
    (last,) = {[*each.network.parameters()][-1] for each in run.policies.values()}  # type: ignore[attr-defined]
    kept = last[0].item()
    with torch.no_grad():
        last[0] = float("nan")
        try:
            with pytest.raises(RunError):
                export_onnx(run, tmp_path)
        finally:
            last[0] = kept
    assert not list(tmp_path.iterdir())


def test_a_graph_says_what_it_is(folder: Path) -> None:
    (path,) = files_of("list", folder)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [each.version for each in model.opset_import] == [18]
    about = {each.key: each.value for each in model.metadata_props}
    assert about["run"] == "list"
    assert about["corral"] == metadata.version("corral")
    assert len(about["checkpoint_sha256"]) == 64
    assert json.loads(about["nodes"]) == [f"site-{i}" for i in range(4)]
    assert json.loads(about["plays"]) == json.loads(about["nodes"])
    assert json.loads(about["requests"]) == [0, 1, 5, 12]
    assert json.loads(about["neighbours"])["site-2"] == ["site-3", "site-0", "site-1"]
    assert json.loads(about["inputs"])["spare"] == ["batch", 4]
    assert list(json.loads(about["inputs"])) == [each.name for each in model.graph.input]
    assert json.loads(about["outputs"]) == [each.name for each in model.graph.output]
    assert b"/" + b"trainers" not in path.read_bytes()  # no paths of this machine


@pytest.mark.slow
def test_a_graph_of_unknown_arrivals_says_what_it_takes(folder: Path) -> None:
    (path,) = files_of("unknown", folder)
    about = {each.key: each.value for each in onnx.load(path).metadata_props}
    assert about["format"] == "corral dfaas_v0 2"
    assert (about["arrivals"], about["last_counts"], about["unit"]) == ("unknown", "1", "3")
    assert json.loads(about["caps"]) is None
    assert list(json.loads(about["inputs"])) == [
        *("node", "last_arrivals", "capacity", "queue", "spare", "lost")
    ]
    assert json.loads(about["outputs"]) == ["keep", "action", "logits", "in_range"]
    assert {"requests", "shares"}.isdisjoint(about)


@pytest.mark.slow
def test_a_graph_knows_the_time_of_day(folder: Path) -> None:
    name = "unknown, counts"
    run = run_of(name, folder)
    decide = as_graphs(files_of(name, folder))["node_0"]
    given = {key: each[:1] for key, each in random_inputs(run, 2, seed=7).items()}
    at = {hour: {**given, "time": np.array([hour * 3600])} for hour in (5, 6, 29, -1, 2**50)}
    logits = {hour: decide(each)["logits"].tolist() for hour, each in at.items()}
    assert logits[5] == logits[29] != logits[6]
    in_range = [decide(each)["in_range"][0] for each in at.values()]
    assert in_range == [True, True, True, False, False]


@pytest.mark.slow  # another graph is written
def test_the_exporter_is_quiet(
    folder: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = run_of("list", folder)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = run.export("onnx", tmp_path / "new" / "folder")
    names = "shared.onnx", "manifest.json"
    assert paths == [tmp_path / "new" / "folder" / name for name in names]
    assert all(path.is_file() for path in paths)
    assert capfd.readouterr() == ("", "")


def test_the_run_goes_on_playing(folder: Path) -> None:
    """Its networks are not those that were traced."""
    run = run_of("list", folder)
    network = run.policies["node_0"].network  # type: ignore[attr-defined]
    files_of("list", folder)
    assert all(each.requires_grad for each in network.parameters())
    assert network is run.policies["node_0"].network  # type: ignore[attr-defined]


def test_fixed_opponents_are_left_out(tmp_path: Path) -> None:
    run = train(
        "dfaas_v0",
        trainer="mappo",
        env_kwargs={"trace": small_trace(nodes=4, steps=60), "max_cycles": 5},
        opponents={"node_1": "overflow"},
        steps=16,
        out=tmp_path / "run",
        preset="none",
        policies="shared",
        **SMALL,
    )
    found = networks_of(run, run.config.env_config.rules())  # type: ignore[arg-type]
    assert {name: list(played) for name, played in found.items()} == {"shared": [0, 2, 3]}
    graph = DecisionGraph(run.config.env_config.rules(), found["shared"])  # type: ignore[arg-type]
    given = {key: torch.zeros([4, *shape[1:]], dtype=int) for key, shape in graph.inputs.items()}
    in_range = graph({**given, "node": torch.arange(4)})[graph.outputs.index("in_range")]
    assert in_range.tolist() == [True, False, True, True]


@pytest.mark.slow  # the exporter tries in several ways
def test_a_network_that_cannot_be_traced_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def forward(self: Any, obs: Any) -> Any:
        features = self.layer(self.join(obs))
        return features if features.sum() > 0 else -features

    monkeypatch.setitem(CONFIGURATIONS, "own network", ("ippo", {}, {"model": made_of(forward)}))
    run = trained("own network", tmp_path, steps=16, **SMALL)
    with refused(
        RunError, "own network", "policy shared", "ONNX", "torch.export", "data-dependent"
    ):
        export_onnx(run, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_runs_of_other_environments_are_refused(tmp_path: Path) -> None:
    run = train("rps_v0", trainer="ippo", steps=16, out=tmp_path / "run", preset="none", **SMALL)
    with refused(RunError, "rps_v0", 'export("onnx")', "dfaas_v0"):
        export_onnx(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with refused(MissingExtraError, "onnxscript", 'export("onnx")', "pip install '.[onnx]'"):
        export_onnx(run_of("list", folder), tmp_path)
