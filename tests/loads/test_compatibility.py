"""What a released version wrote is opened by this one, and answers as it did: tests/fixtures.

docs/compatibility.md promises it. The folders are never made again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import read_trace
from corral.envs.dfaas_v0.plans import Plan
from corral.loads.export.manifest import read_graph
from corral.loads.export.standalone import Decider
from corral.loads.serve.service import service_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if (path / "answers.json").is_file())
pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def folder(version: str, tmp_path: Path) -> Path:
    """A copy of what a version wrote: opening a run may write into it."""
    return Path(shutil.copytree(FIXTURES / version, tmp_path / version))


@pytest.fixture
def answers(folder: Path) -> Any:
    return json.loads((folder / "answers.json").read_text(encoding="utf-8"))


def run_of(folder: Path, name: str = "run") -> Any:
    pytest.importorskip("torch", reason="plays networks")
    import corral

    return corral.load_run(folder / name)


def require_same_decisions(decider: Any, answers: Any) -> None:
    state, plans = decider.start(), []
    for step in answers["decisions"]:
        plans.append(decider.decide(*step["asked"][:2], state, step["asked"][2]))
    assert plans == [step["plans"] for step in answers["decisions"]]
    assert len({str(plan) for plan in plans}) > 3  # the answers differ among themselves


def test_the_first_version_is_among_them(version: str) -> None:
    assert "0.1" in VERSIONS
    files = [path for path in (FIXTURES / version).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000


def test_a_run_decides_as_it_did(folder: Path, answers: Any) -> None:
    require_same_decisions(run_of(folder).decider, answers)
    for name in ("run@best", "run@latest"):
        assert run_of(folder, name).decider.nodes == run_of(folder).decider.nodes


def test_a_run_is_evaluated_as_it_was(folder: Path, answers: Any) -> None:
    run = run_of(folder)
    import corral

    references = tuple(name for name in answers["evaluation"] if "/" in name)
    found = {
        score.policy: score.cost
        for score in corral.evaluate(run, references=references, optimum_windows=0)
    }
    for policy, cost in answers["evaluation"].items():
        assert found[policy] == pytest.approx(cost, abs=1e-9)
    assert len(run.progress) == run.config.steps // (24 * 2)
    assert len(read_trace(run.folder / "trace.csv.gz")) == 144


def test_a_run_goes_on(folder: Path) -> None:
    run_of(folder)
    import corral

    steps = 48 + json.loads((folder / "run" / "config.json").read_text())["steps"]
    resumed = corral.resume(folder / "run", steps=steps, progress=False)
    assert resumed.progress["env_steps"].iloc[-1] == steps


def test_an_export_decides_as_it_did(folder: Path, answers: Any) -> None:
    require_same_decisions(Decider(folder / "numpy"), answers)
    assert service_of(folder / "numpy").deciding == "team"


ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from policy import Decider
decider, plans = Decider(), []
state = decider.start()
for step in json.load(open(sys.argv[2], encoding="utf-8"))["decisions"]:
    plans.append(decider.decide(*step["asked"][:2], state, step["asked"][2]))
print(json.dumps(plans))
"""


def test_an_export_decides_by_its_own_code_as_it_did(folder: Path, answers: Any) -> None:
    command = [sys.executable, "-I", "-c", ALONE, str(folder / "numpy"), folder / "answers.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [step["plans"] for step in answers["decisions"]]


def test_a_graph_decides_as_it_did(folder: Path, answers: Any) -> None:
    ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    graph = ort.InferenceSession(read_graph(folder / "onnx" / "shared.onnx"))
    given = {
        each.name: np.array(
            answers["graph"]["inputs"][each.name],
            dtype=np.int64 if "int64" in each.type else np.float32,
        )
        for each in graph.get_inputs()
    }
    names = [each.name for each in graph.get_outputs()]
    found = dict(zip(names, graph.run(None, given), strict=True))
    expected = answers["graph"]["outputs"]
    assert found.keys() == expected.keys()
    for name in ("keep", "action", "in_range"):
        assert found[name].tolist() == expected[name]
    np.testing.assert_allclose(found["next_state"], expected["next_state"], atol=1e-5)
    logits = np.maximum(found["logits"][:4], -1e9)
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)


def test_an_advice_is_served_as_it_was(folder: Path, answers: Any) -> None:
    service = service_of(folder / "advice")
    assert service.deciding == "rule"
    plans = [
        service.decide(*step["asked"][:2]).plan
        for step in answers["decisions"]  # they were asked the same
    ]
    assert plans == answers["served"]
    assert all(isinstance(Plan(**plan), Plan) for each in plans for plan in each.values())


@pytest.mark.parametrize("name", ["run", "numpy"])
def test_the_memory_of_a_server_goes_on(folder: Path, answers: Any, name: str) -> None:
    service = service_of(run_of(folder) if name == "run" else folder / name)
    assert service.memory is not None
    state = service.memory.read(answers["state"], begins=False)
    assert state is not None
    assert state.t == len(answers["decisions"])
    nodes = {each: {"last_arrivals": [3], "capacity": 14} for each in service.nodes}
    ended = {each: {"spare": 1, "lost": 0} for each in service.nodes}
    answer = service.decide(nodes, ended, state, "2026-03-01T12:00:00Z")
    assert (answer.by, answer.state.restarted) == ("team", False)
