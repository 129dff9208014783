"""``corral doctor``: verdict first, exit status, JSON, 80 columns, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from support.command import run as command
from support.command import stdout_of, within
from support.loads import small_trace

QUICK = ("--no-audit", "--no-clone", "--no-check")
SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 2, "n_minibatches": 2, "steps": 640},
    **{"net_arch": (16,), "progress": False, "device": "cpu"},
}
OWN = """
import numpy as np
from corral import algorithms as alg

def advantages(trajectories, settings):
    found = alg.gae(trajectories, settings)
    return alg.Advantages(np.zeros_like(found.advantage), found.value_target)

zeroed = alg.mappo.but(name="own", advantages=advantages)
"""
LEARNER = """
import corral.envs.policy

def learn(make_env, steps, seed):
    print("training ...")
    agents = make_env().possible_agents
    return {agent: corral.envs.policy.RandomPolicy() for agent in agents}
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    env_kwargs = {"trace": small_trace(), "max_cycles": 12}
    out = tmp_path_factory.mktemp("runs") / "sound"
    given = {**SMALL, "env_kwargs": env_kwargs, "steps": 3_200}
    return Path(corral.train("dfaas_v0", trainer="mappo", out=out, **given).folder)


@pytest.fixture(scope="module")
def zeroed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run whose advantages are all 0, and the text that names its trainer."""
    folder = tmp_path_factory.mktemp("zeroed")
    (folder / "own_zeroed.py").write_text(OWN)
    named = f"{folder / 'own_zeroed.py'}:zeroed"
    env_kwargs = {"trace": small_trace(), "max_cycles": 12}
    out = folder / "run"
    corral.train("dfaas_v0", trainer=named, env_kwargs=env_kwargs, out=out, **SMALL)
    return out, named


def require_80_columns(text: str, *paths: Path) -> None:
    for line in text.splitlines():
        command_line = line.startswith("  corral ")  # on one line, to be pasted
        assert command_line or len(line) <= 80 or any(str(path) in line for path in paths), line


def test_a_sound_run_is_told_so_and_ends_with_0(sound: Path) -> None:
    text = command("doctor", sound, *QUICK)
    flat = " ".join(text.split())
    shown(flat, sound, "mappo", "dfaas_v0", "3,200", 50, "entropy", "overflow", "optimum")
    assert "truth" not in text
    require_80_columns(text, sound)


def test_what_is_wrong_comes_first_and_ends_with_1(zeroed: tuple[Path, str]) -> None:
    run, named = zeroed
    text = within("doctor", run, "--trainer", named, *QUICK, code=1)
    assert text.strip().startswith(f"{run}: ")
    first = text.partition("\n1. ")[2].partition("\n\n")[0]
    shown(first, "advantages", "certain", 0)
    for label in ("measured", "expected", "to do"):
        assert f"\n   {label}" in first
    require_80_columns(text, run)


@pytest.mark.parametrize("columns", ["60", pytest.param("120", marks=pytest.mark.slow)])
def test_the_report_fits_the_terminal(sound: Path, columns: str) -> None:
    text = command("doctor", sound, "--no-clone", columns=columns)
    shown(text, "true returns")
    for line in text.splitlines():
        assert len(line) <= max(64, int(columns)) or str(sound) in line, line


def test_json_holds_all_of_it_and_nothing_else_is_printed(zeroed: tuple[Path, str]) -> None:
    run, named = zeroed
    found = json.loads(stdout_of("doctor", run, "--trainer", named, "--json", *QUICK, code=1))
    assert found["healthy"] is False
    assert found["findings"][0]["cause"] == "zero-advantages"
    assert set(found["findings"][0]) == {
        *("cause", "title", "measured", "expected", "todo", "certainty", "policy", "follows"),
        "place",
    }
    assert found["audit"] is None
    assert found["imitation"] is None


# --- Refusals ------------------------------------------------------------------------------------

REFUSED = (
    ([], "corral doctor runs/NAME"),
    (["no/such/run"], "is not a run: it does not exist"),
    (["dfaas_v0"], "corral check dfaas_v0 --learnable"),
    (["run", "--learner", "mappo"], "give run or --learner mappo, not both"),
    (["run", "--probes", "P4"], "--probes requires --learner"),
    (["run", "--budget", "2"], "--budget requires --learner"),
    (["--learner", "mappo", "--env", "x:y"], "--env applies to runs"),
    (["--learner", "mappo", "--arg", "a=1"], "--arg applies to runs"),
)


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_cannot_be_looked_at_is_said_plainly(words: list[str], said: str) -> None:
    text = within("doctor", *words, code=2)
    assert said in " ".join(text.split())


def test_a_trainer_of_ones_own_is_asked_for(zeroed: tuple[Path, str]) -> None:
    run, named = zeroed
    assert f"--trainer {named}" in within("doctor", run, code=2)


# --- Learners ------------------------------------------------------------------------------------


@pytest.fixture
def learner(tmp_path: Path) -> str:
    pytest.importorskip("corral.lab.doctor.examination")
    (tmp_path / "my_learner.py").write_text(LEARNER)
    return f"{tmp_path / 'my_learner.py'}:learn"


def test_a_learner_that_learns_nothing_fails(learner: str) -> None:
    text = within("doctor", "--learner", learner, "--probes", "P4,P7", code=1)
    assert "P4" in text
    assert "fails" in text
    require_80_columns(text, Path(learner.partition(":")[0]))


def test_an_examination_as_json_is_not_disturbed_by_what_a_learner_prints(learner: str) -> None:
    words = ("doctor", "--learner", learner, "--probes", "P4", "--json")
    found = json.loads(stdout_of(*words, code=1))
    assert found["passed"] is False
    assert [each["probe"] for each in found["probes"]] == ["probe_p04_v0"]


def test_a_trainer_of_corral_passes_a_probe(learner: str) -> None:
    text = within("doctor", "--learner", "mappo", "--probes", "P4")
    shown(text, "mappo", "P4", 1)
