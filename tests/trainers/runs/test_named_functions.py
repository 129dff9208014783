"""Functions that are arguments of an environment: a run keeps their name, and imports nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs.core import generator
from corral.errors import RunError
from corral.trainers import load_run, resume
from corral.trainers.evaluation.judge import evaluate
from corral.trainers.runs.env_config import EnvConfig
from support.loads import small_trace
from support.messages import refused, shown
from support.runs import small_run

SOURCE = """
import numpy as np

def equal(info, rules):
    return np.full(info["lost"].shape, -info["lost"].mean(), dtype=np.float32)
"""


def test_a_run_asks_for_its_reward_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("rewards_of_a_run.py")
    file.write_text(SOURCE)
    name = f"{file}:equal"
    run = small_run(tmp_path / "run", updates=2, env_kwargs={"reward_fn": name})
    saved = json.loads((run.folder / "config.json").read_text())["env_kwargs"]["reward_fn"]
    assert (saved["type"], saved["name"]) == ("function", name)

    # What is judged is the game, which needs no such function; and no file is imported.
    file.unlink()
    read = load_run(run.folder)
    found = evaluate(read, references=["local"], optimum_windows=0, out=tmp_path / "out")
    assert "cost" in found.to_dataframe()
    rules = read.config.env_config.rules()
    state = rules.start([generator(0, "env")])
    with refused(RunError, f"--arg reward_fn={name}"):
        rules.step(state, np.zeros((1, len(rules.agents)), dtype=np.int64))
    assert f"--arg reward_fn={name}" in read.config.named(run.folder)

    # Given again, the run goes on; where the source is another, that is said.
    file.write_text(SOURCE + "\n# later\n")
    steps = run.config.steps * 2
    further = resume(run.folder, steps=steps, env_kwargs={"reward_fn": name}, stretch=True)
    assert further.config.env_config.env_kwargs["reward_fn"].name == name
    shown(capsys.readouterr().err, "reward_fn", name)
    with refused(ValueError, "env_kwargs={'queue': 3}", "dfaas_v0"):
        load_run(run.folder, env_kwargs={"queue": 3})


def test_a_function_without_a_name_of_its_own_is_refused() -> None:
    def inside(info: dict[str, Any], rules: Any) -> Any:
        return np.zeros(info["lost"].shape, np.float32)

    kwargs: dict[str, Any] = {"trace": small_trace(), "max_cycles": 5}
    for function in (inside, lambda info, rules: inside(info, rules)):
        with refused(ValueError, "reward_fn", "<locals>"):
            EnvConfig.of("dfaas_v0", {**kwargs, "reward_fn": function})
