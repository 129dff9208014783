"""The sinks of docs/callbacks: as short as is said, and right where their libraries are there."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

EXAMPLES = Path(__file__).parents[3] / "docs" / "callbacks"
TRAIN = (
    *("train", "arena_v0", "--steps", "192", "--num-envs", "4", "--n-steps", "16", "--out", "run"),
    *("--n-epochs", "1", "--net-arch", "16", "--max-cycles", "10", "--metric", "paid=paid.py:f"),
)
READ = {
    "mlflow": """
import json, mlflow
client = mlflow.MlflowClient("sqlite:///run/mlflow.db")
(run,) = client.search_runs(["0"])
found = {n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)]
         for n in run.data.metrics}
print(json.dumps({"rows": found, "status": run.info.status, "env": run.data.params["env"]}))
""",
    "wandb": """
import glob, json
from wandb.proto import wandb_internal_pb2
(file,) = glob.glob("run/wandb/offline-run-*/run-*.wandb")
data, at, part, found, env, status = open(file, "rb").read(), 7, b"", {}, None, None
while at < len(data):  # a log of LevelDB's: parts of records, in blocks of 32 KiB
    left = 32768 - at % 32768
    if left < 7:
        at += left
        continue
    end, kind = at + 7 + int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
    part, at = part + data[at + 7 : end], end
    if kind not in (1, 4):  # not whole yet
        continue
    record = wandb_internal_pb2.Record()
    record.ParseFromString(part)
    part = b""
    for item in record.run.config.update:
        env = json.loads(item.value_json) if item.key == "env" else env
    status = "FINISHED" if record.WhichOneof("record_type") == "exit" else status
    for item in record.history.item:
        name, value = item.key or "/".join(item.nested_key), json.loads(item.value_json)
        found.setdefault(name, []).append((record.history.step.num, value))
print(json.dumps({"rows": found, "status": status, "env": env}))
""",
}


@pytest.mark.parametrize("library", READ)
def test_an_example_has_15_lines(library: str) -> None:
    """Lines of code: without the docstring and blank lines."""
    text = (EXAMPLES / f"{library}_sink.py").read_text(encoding="utf-8")
    docstring = ast.parse(text).body[0]
    code = [line for line in text.splitlines()[docstring.end_lineno :] if line.strip()]
    assert 5 < len(code) <= 15
    assert max(map(len, code)) <= 100


@pytest.mark.parametrize(("library", "name"), [("wandb", "WandB"), ("mlflow", "MLflow")])
def test_an_example_holds_what_progress_holds(tmp_path: Path, library: str, name: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (tmp_path / "paid.py").write_text("def f(episode): return episode.rewards.sum()\n")
    env = {**os.environ, "WANDB_SILENT": "true", "WANDB_MODE": "offline"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "corral", *TRAIN, "--sink", f"{EXAMPLES / f'{library}_sink.py'}:{name}")
    found = json.loads(run("-c", READ[library]).splitlines()[-1])
    assert (found["status"], found["env"]) == ("FINISHED", "arena_v0")
    columns = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    header = columns[0].split(",")
    rows = [dict(zip(header, line.split(","), strict=True)) for line in columns[1:]]
    assert len(rows) == 3
    for column in ("return_team", "policy_loss", "paid_mean", "updates"):
        expected = [(int(row["env_steps"]), float(row[column])) for row in rows if row[column]]
        assert [tuple(each) for each in found["rows"][column]] == expected, column
