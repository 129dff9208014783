"""The exported folder needs NumPy alone, and decides as the run does."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains networks")

import corral
from corral.envs.dfaas_v0 import network, routes
from corral.errors import ArgumentError, RunError
from corral.loads.export.numpy_folder import PARTS, network_actor, odd_actions
from corral.loads.from_rule.recommend import Recommendation
from corral.trainers.runs.run import load_run
from support.command import within
from support.deciding import assert_same, carried_out, moment_of, presented
from support.loads import days, small_trace
from support.messages import refused, shown
from support.thinned import fast_every

RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "shared": ("mappo", {}, {"queue": 3, "forward_cost": 0.1}),
    "separate": ("ippo", {"policies": "separate", "activation": "tanh"}, {"report_delay": 3}),
    "some": (
        "mappo",
        {"policies": {"node_0": "a", "node_1": "b", "node_2": "a"}},
        {"link_limit": 2},
    ),
    "recurrent": ("mappo", {"memory": 8}, {"report_delay": 0, "route": "shortest"}),
    "own memories": ("ippo", {"memory": 5, "policies": "separate"}, {"route": "two"}),
    "choose": (
        "mappo",
        {"net_arch": ()},
        {"route": "choose", "amount": "quantile", "max_level": 5},
    ),
    "summary": ("mappo", {"net_arch": (16, 8)}, {"observation": "summary", "route": "spare"}),
    "neighborhood": ("mappo", {}, {"observation": "neighborhood", "queue": 2}),
    "neighborhood residual": (
        "mappo",
        {},
        {
            **{"observation": "neighborhood", "arrivals": "unknown", "queue": 5},
            **{"residual": "backlog=0.75/least", "offsets": 2},
        },
    ),
    "summary choose": ("a2c", {}, {"observation": "summary", "route": "choose", "max_level": 10}),
    "list": ("mappo", {}, {"amount": [0, 1, 4, 9, 12], "route": "capacity"}),
    "neighbours": ("mappo", {}, {"neighbours": {"site-0": ["site-1"], "site-2": ["site-0"]}}),
    "augmented": ("mappo", {}, {"augment": {"scale": 0.2, "noise": 0.1}}),
    "keep": ("mappo", {}, {"amount": "keep", "queue": 5, "link_limit": 3, "route": "least"}),
    "unknown": (
        "mappo",
        {},
        {"arrivals": "unknown", "amount": "keep", "queue": 5, "link_limit": 3},
    ),
    "unknown share": (
        "ippo",
        {"memory": 5},
        {"arrivals": "unknown", "amount": "share", "last_counts": 3, "route": "two-choices"},
    ),
    "unknown choose": (
        "mappo",
        {},
        {"arrivals": "unknown", "route": "choose", "max_level": 4, "report_delay": 3},
    ),
    "unknown quantile": (
        "mappo",
        {"policies": "separate"},
        {"arrivals": "unknown", "amount": "quantile", "route": "all-to-two", "daily_mean": True},
    ),
    "unknown summary": (
        "mappo",
        {},
        {"arrivals": "unknown", "observation": "summary", "route": "weighted", "link_limit": 4},
    ),
    "offsets": ("mappo", {}, {"residual": "capacity=0.7/least", "offsets": 2, "queue": 4}),
    "unknown offsets": (
        "ippo",
        {"memory": 5},
        {
            **{"residual": "backlog=0.5+margin=1/least", "offsets": 3, "queue": 5, "link_limit": 4},
            **{"arrivals": "unknown", "last_counts": 3, "beyond": "rule", "daily_mean": True},
        },
    ),
    "offsets beyond": (
        "mappo",
        {},
        {"residual": "patient-margin/two", "queue": 4, "beyond": "rule", "report_delay": 3},
    ),
    "offsets clipped": (
        "policy_iteration",
        {"n_steps": 10},
        {
            **{"residual": "local/fill", "queue": 4, "beyond": "clip", "arrivals": "unknown"},
            "max_level": 7,
        },
    ),
    "clipped": ("mappo", {}, {"beyond": "clip", "load_scale": 8, "capacity_scale": 8}),
    "iterated": ("policy_iteration", {"n_steps": 10}, {"queue": 2}),
    "sb3_ppo": ("sb3_ppo", {"n_steps": 16, "batch_size": 16}, {}),
    "sb3_maskable_ppo": ("sb3_maskable_ppo", {"policies": "separate", "batch_size": 16}, {}),
    "sb3_dqn": ("sb3_dqn", {}, {}),
}

FILES = ["policy.py", "about.json", "weights.npz", "manifest.json"]


def trained(folder: Path, name: str) -> Any:
    trainer, given, kwargs = RUNS[name]
    if trainer.startswith("sb3"):
        pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
        pytest.importorskip("sb3_contrib", reason="needs the extra sb3")
    own = {"num_envs": 2, "seed": 3, "net_arch": (12,)}
    if not trainer.startswith("sb3_dqn"):
        own["n_steps"] = 8
    if not trainer.startswith("sb3") and trainer != "a2c":
        own |= {"n_epochs": 1, "n_minibatches": 1}
    return corral.train(
        "dfaas_v0",
        trainer=trainer,
        steps=32,
        out=folder,
        env_kwargs={"trace": days(2) if "daily_mean" in kwargs else small_trace(), "max_cycles": 10}
        | kwargs,
        validation=0,
        preset="none",
        progress=False,
        **own | given,
    )


def loaded(folder: Path) -> Any:
    """The module policy.py of a folder."""
    name = f"policy_{abs(hash(folder))}"
    spec = importlib.util.spec_from_file_location(name, folder / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def played(run: Any, decider: Any, steps: int = 10) -> list[dict[str, dict[str, int]]]:
    """What ``decider`` decides in an episode of the environment, where the run's policies play."""
    env_config = run.config.env_config
    rules = env_config.rules(augment=None, start=0)
    state, memory = rules.start([np.random.default_rng(4)]), decider.start(4)
    hidden = {agent: run.policies[agent].initial_state(1) for agent in rules.agents}
    previous, found = None, []
    names = rules.trace.nodes

    for _ in range(steps):
        given, time = moment_of(rules, state, names)
        found.append(decider.decide(given, previous, memory, **time))
        seen = rules.observe(state)
        actions = np.zeros((1, len(names)), dtype=np.int64)
        for i, agent in enumerate(rules.agents):
            decision = run.policies[agent].act(seen[agent], hidden[agent], deterministic=True)
            actions[0, i], hidden[agent] = decision.action[0], decision.state
        before = copy.deepcopy(state)
        outcome = rules.step(state, actions)
        state = outcome.state
        if rules.arrivals == "unknown":
            assert_same(carried_out(rules, before, found[-1]), outcome)
        else:
            forwarded = [sum(found[-1][name].values()) for name in names]
            assert forwarded == outcome.info["forwarded"][0].tolist()
        previous = presented(names, spare=state.spare[0], lost=state.lost[0])
    return found


@pytest.mark.parametrize("name", fast_every(3, RUNS))
def test_run_and_folder_play_as_the_policies_do_in_the_environment(
    tmp_path: Path, name: str
) -> None:
    trained(tmp_path / "run", name)
    run = load_run(tmp_path / "run")
    paths = run.export("numpy")
    assert [path.name for path in paths] == FILES
    assert paths[0].parent == run.folder / "export" / "numpy"
    module = loaded(paths[0].parent)
    exported = module.Decider()
    ours = played(run, run.decider)
    assert any(any(row.values()) for row in ours)
    assert played(run, exported) == ours
    assert odd_actions(run.decider, network_actor(run.decider), 1_500) == 0
    # Weights that are a little wrong would be told.
    wrong = network_actor(run.decider)
    for part in wrong.parts:
        part.head_bias = part.head_bias + np.linspace(0, 3, len(part.head_bias), dtype=np.float32)
    assert odd_actions(run.decider, wrong, 300) > 0
    # A rule for the same nodes comes along.
    rules = run.config.env_config.rules()
    now: dict[str, Any] = {"arrivals": 400, "capacity": 7}
    if rules.arrivals == "unknown":
        now = {"last_arrivals": [400, 2], "capacity": 7}
    nodes = dict.fromkeys(run.decider.nodes, now)
    rule = "patient-margin/capacity"
    by_rule = run.decider.by_rule(rule)
    assert exported.by_rule(rule).decide(nodes) == by_rule.decide(nodes)
    if rules.arrivals == "unknown":
        assert exported.by_rule(rule).decide(nodes)["site-0"]["keep"] == 7 + rules.queue
    equal_on_random_inputs(run, exported)
    with refused(module.DecisionError, "site-0, site-1, site-2 missing", field="nodes"):
        exported.decide({})


def equal_on_random_inputs(run: Any, exported: Any, count: int = 60) -> None:
    """Decisions on numbers of a gateway are equal, whatever they are."""
    rng, rules = np.random.default_rng(1), run.config.env_config.rules()
    limits, names = run.decider.limits, run.decider.nodes
    most = 30 if rules.beyond else 12  # above the scales
    loads, capacities = min(limits["arrivals"], most), min(limits["capacity"], most)
    states = exported.start(2), run.start(2)
    for _ in range(count):
        nodes, previous = {}, {}
        for name in names:
            capacity, queue = rng.integers([capacities + 1, rules.queue + 1]).tolist()
            nodes[name] = {"capacity": capacity, "queue": queue}
            if rules.arrivals == "known":
                nodes[name]["arrivals"] = int(rng.integers(loads + 1))
            if rules.last_counts:
                some = int(rng.integers(rules.last_counts + 1))
                nodes[name]["last_arrivals"] = rng.integers(loads + 1, size=some).tolist()
            spare, lost = rng.integers([capacities + 1, loads + 1]).tolist()
            previous[name] = {"spare": spare, "lost": lost}
        time = {} if rules.daily_mean is None else {"time": f"2026-01-01T{rng.integers(24):02}:30Z"}
        found, expected = (
            decide(nodes, previous, state, **time)
            for decide, state in zip((exported.decide, run.decide), states, strict=True)
        )
        assert found == expected


ALONE = """
import json, sys
before = {name.partition(".")[0] for name in sys.modules}
sys.path.insert(0, sys.argv[1])
from policy import Decider
decider = Decider()
nodes = {name: {"arrivals": 9, "capacity": 5} for name in decider.nodes}
found = decider.decide(nodes)
loaded = {name.partition(".")[0] for name in sys.modules} - before - set(sys.stdlib_module_names)
print(json.dumps([sorted(loaded), found]))
"""


def test_the_folder_needs_numpy_alone(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "shared")
    run.export("numpy", tmp_path / "gateway")
    command = [sys.executable, "-I", "-c", ALONE, str(tmp_path / "gateway")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    packages, found = json.loads(done.stdout)
    assert set(packages) <= {"policy", "numpy", "cython_runtime", "_cython_3_0_11"} | {
        name for name in packages if name.startswith("_cython")
    }
    assert found == run.decide({name: {"arrivals": 9, "capacity": 5} for name in run.decider.nodes})


def test_the_folder_has_the_source_that_corral_runs(tmp_path: Path) -> None:
    paths = trained(tmp_path / "run", "shared").export("numpy", tmp_path / "out")
    text = paths[0].read_text(encoding="utf-8")
    for module, part in ((network, "    def offered("), (routes, "def water_fill(")):
        source = Path(module.__file__).read_text(encoding="utf-8")
        body = re.split(r"\n(?:    )?def ", source[source.index(part) + 4 :])[0].rstrip()
        assert body in text
    assert not re.search(r"\b(import|from)\s+corral\b", text)
    defined = {name for parts in PARTS.values() for name in parts}
    assert all(f" {name}" in text or f"\n{name}" in text for name in defined)
    # No name is used that is not there.
    tree = ast.parse(text)
    bound = set(dir(builtins)) | {"__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used - bound == set()


@pytest.mark.slow  # 100,000 observations of torch and of NumPy, one moment at a time
@pytest.mark.parametrize("name", ["shared", "separate", "recurrent", "sb3_ppo"])
def test_actions_are_equal_on_100_000_observations(tmp_path: Path, name: str) -> None:
    run = trained(tmp_path / "run", name)
    assert odd_actions(run.decider, network_actor(run.decider), 100_000) == 0


# --- What is refused -----------------------------------------------------------------------------


def test_a_format_comes_first(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "shared")
    for given in (tmp_path / "out", str(tmp_path / "out"), "sb3"):
        with refused(
            ArgumentError,
            f"format={str(given)!r}",
            "'numpy', 'onnx', 'weights'",
            'run.export("numpy", "gateway")',
        ):
            run.export(given)
    assert not (tmp_path / "out").exists()
    names = [path.name for path in run.export("weights", tmp_path / "weights")]
    assert names == ["shared.safetensors", "shared.json", "manifest.json"]
    with refused(
        FileExistsError, tmp_path / "weights" / "manifest.json", "--overwrite", "overwrite=True"
    ):
        run.export("numpy", tmp_path / "weights")  # one manifest is of one export
    assert not (tmp_path / "weights" / "policy.py").exists()
    run.export("numpy", tmp_path / "out")
    with refused(FileExistsError, tmp_path / "out" / "policy.py", "--overwrite", "overwrite=True"):
        run.export("numpy", tmp_path / "out")
    run.export("numpy", tmp_path / "out", overwrite=True)


def test_a_run_of_another_environment_decides_nothing(tmp_path: Path) -> None:
    run = corral.train(
        "rps_v0", trainer="ippo", steps=32, num_envs=2, n_steps=8, out=tmp_path / "run"
    )
    for ask in (lambda: run.decide({}), run.start, lambda: run.export("numpy", tmp_path / "out")):
        with refused(RunError, run.folder, "rps_v0", "dfaas_v0", "run.policies"):
            ask()
    assert not (tmp_path / "out").exists()


def test_a_network_of_ones_own_decides_and_is_not_exported(tmp_path: Path) -> None:
    import torch

    class Own(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layer, self.out_features = torch.nn.Linear(width, 4), 4

        def forward(self, observation: Any) -> Any:
            return self.layer(observation).sin()

    def make(space: Any, *, role: str) -> Any:
        return Own(space["observation"].shape[0] if hasattr(space, "spaces") else space.shape[0])

    kwargs = {"trace": small_trace(), "max_cycles": 10}
    settings = {"num_envs": 2, "n_steps": 8, "model": make, "validation": 0}
    out = tmp_path / "run"
    run = corral.train("dfaas_v0", trainer="ippo", steps=32, env_kwargs=kwargs, out=out, **settings)
    played(run, run.decider)
    with refused(RunError, "node_0", "Model", "NumPy", "run.decide"):
        run.export("numpy", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_seat_of_a_rule_decides_and_is_not_exported(tmp_path: Path) -> None:
    kwargs = {"trace": small_trace(), "max_cycles": 10}
    settings = {"num_envs": 2, "n_steps": 8, "opponents": {"node_1": "overflow"}, "validation": 0}
    out = tmp_path / "run"
    run = corral.train("dfaas_v0", trainer="ippo", steps=32, env_kwargs=kwargs, out=out, **settings)
    nodes = {name: {"arrivals": 9, "capacity": 5} for name in run.decider.nodes}
    assert sum(run.decide(nodes)["site-1"].values()) == 4
    with refused(RunError, "node_1", "Baseline", "NumPy", "run.decide"):
        run.export("numpy", tmp_path / "out")


# --- A recommendation, and the command -----------------------------------------------------------


def test_a_recommended_rule_is_put_to_work_in_the_same_way(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "shared")
    assert run.recommendation is None
    rule = Recommendation("rule", "overflow/capacity", None, why="too few", windows=1, compared=0)
    rule.write(run.folder)
    found = run.recommendation
    nodes = {
        name: {"arrivals": 900 * (i == 0), "capacity": 50 * i}
        for i, name in enumerate(run.decider.nodes)
    }
    expected = {"site-0": {"site-1": 300, "site-2": 600}, "site-1": {}, "site-2": {}}
    assert found.decide(nodes, None, found.start()) == expected
    paths = found.export("numpy", tmp_path / "rule")
    assert loaded(paths[0].parent).Decider().decide(nodes) == expected
    shown(paths[0].read_text(encoding="utf-8"), "overflow/capacity")
    with refused(ArgumentError, "overflow/capacity", "format='numpy'"):
        found.export("onnx", tmp_path / "other")
    with refused(
        ArgumentError,
        "format='zip'",
        "'numpy', 'onnx', 'weights'",
        'run.export("numpy", "gateway")',
    ):
        found.export("zip", tmp_path / "other")
    with refused(RunError, "corral.load_run(...).recommendation"):
        rule.decide(nodes)
    team = dataclasses.replace(found, play="team")
    few = {name: {"arrivals": 9, "capacity": 5} for name in nodes}
    assert team.decide(few) == load_run(f"{run.folder}@best").decide(few)


def test_the_command_writes_a_folder(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "shared")
    printed = within("export", run.folder, "--out", tmp_path / "out")
    names = [Path(line).name for line in printed.split()]
    assert names == FILES
    taken = within("export", run.folder, "--out", tmp_path / "out", code=2)
    shown(" ".join(taken.split()), "--overwrite")
    within("export", run.folder, "--out", tmp_path / "out", "--overwrite")
    nothing = within("export", run.folder, "--recommended", code=2)
    shown(" ".join(nothing.split()), "--recommended")
    wrong = within("export", run.folder, "--format", "zip", code=2)
    shown(" ".join(wrong.split()), "'numpy', 'onnx', 'weights'")
