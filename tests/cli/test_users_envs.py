"""corral train, evaluate, watch and check in a class of a user's file, and in CartPole."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import make_zoo_batch
from corral.adapters.sources import rules_of
from support.command import within

SMALL = ("--steps", "64", "--num-envs", "2", "--n-steps", "16", "--n-epochs", "1")
CLASS = """
from gymnasium.spaces import Discrete, MultiDiscrete
import numpy as np
from corral.adapters import MultiAgentEnv

print("imported")

class Pair(MultiAgentEnv):
    def __init__(self, config=None):
        self.limit = (config or {}).get("ts", 5)
        self.observation_space = MultiDiscrete([9, 2])
        self.action_space = Discrete(2)

    def reset(self):
        self.t = 0
        return self.seen()

    def seen(self):
        return {"a": np.array([self.t, 0]), "b": np.array([self.t, 1])}

    def step(self, action_dict):
        self.t += 1
        paid = {agent: float(action) for agent, action in action_dict.items()}
        return self.seen(), paid, {"__all__": self.t >= self.limit}, {}

    def render(self, mode=None):
        print("t =", self.t)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    path = tmp_path / "pair_for_tests.py"
    path.write_text(CLASS)
    yield path
    for name in set(sys.modules) - before:
        if name.startswith("pair_for_tests"):
            del sys.modules[name]


def test_a_class_of_a_file_is_trained_judged_and_shown(tmp_path: Path, file: Path) -> None:
    run, text = tmp_path / "run", f"{file}:Pair"
    within("train", text, *SMALL, "--arg", "ts=4", "--out", run)
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["source"], config["env_kwargs"]) == ("Pair", text, {"ts": 4})
    sys.modules.pop("pair_for_tests")
    told = within("evaluate", run, code=2)  # nothing is imported because a file names it
    assert "--env" in told
    assert "pair_for_tests" not in sys.modules
    shown(within("evaluate", run, "--env", text, "--episodes", "4"), "mappo, greedy")
    shown(within("watch", run, "--ansi", "--env", text), "t = 4")
    shown(within("train", text, "--resume", run, "--steps", "128"), 128)
    shown(within("check", text, "--no-processes", "--seconds", "0.5"), "Pair", 0)


def test_a_class_of_a_file_runs_in_workers_by_its_file_alone(tmp_path: Path, file: Path) -> None:
    """Also one whose file has the name of another that was loaded before it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / file.name).write_text(CLASS.replace("class Pair", "class Twin"))
    for text in (f"{file}:Pair", f"{other / file.name}:Twin"):
        with make_zoo_batch(rules_of(text), 2, seed=0, workers=1) as batch:
            assert sorted(batch.reset()) == ["a", "b"]


def test_python_takes_the_class_itself(tmp_path: Path) -> None:
    from support.rllib_envs import TupleObservations

    small = {"num_envs": 2, "n_steps": 16, "steps": 64}
    for trainer in ("mappo", "ippo", "sb3_ppo"):
        if trainer == "sb3_ppo":
            pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
        run = corral.train(TupleObservations, trainer=trainer, out=tmp_path / trainer, **small)
        table = corral.evaluate(run, TupleObservations, episodes=2).to_dataframe()
        assert table["return_team"].between(0, 10).all()


def test_cartpole_is_one_word(tmp_path: Path) -> None:
    run = tmp_path / "run"
    within("train", "CartPole-v1", *SMALL, "--out", run)
    shown(within("evaluate", run, "--env", "CartPole-v1", "--episodes", "2"), "mappo, greedy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("missing_for_tests.py:Pair", "file missing_for_tests.py"),
        ("pair_for_tests.py", "give pair_for_tests.py:NAME"),
        ("{file}:Pear", "did you mean 'Pair'"),
        ("Cartpole-v1", "did you mean 'CartPole-v1'"),
    ],
)
def test_what_is_not_there_is_named(text: str, said: str, file: Path) -> None:
    told = within("train", text.format(file=file), code=2)
    assert said in " ".join(told.split())


def test_a_file_that_is_no_python_is_told_with_its_line(file: Path) -> None:
    file.write_text("x = 1\nclass Pair(\n")
    told = within("train", f"{file}:Pair", code=1).splitlines()[-1]
    assert told.startswith(f"corral: SyntaxError in {file}:2: '(' was never closed")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import gym", "imports gym, which is not installed: write `import gymnasium as gym`"),
        ("from gym.spaces import Box", "write `import gymnasium as gym`"),
        (
            "from ray.rllib.env.multi_agent_env import MultiAgentEnv",
            "imports ray, which is not installed: write `from corral.adapters import "
            "MultiAgentEnv` (docs/environments.md)",
        ),
    ],
)
def test_an_import_of_the_old_gym_or_of_ray_is_one_line(
    monkeypatch: pytest.MonkeyPatch, file: Path, line: str, told: str
) -> None:
    monkeypatch.setitem(sys.modules, line.split()[1].partition(".")[0], None)  # not installed
    file.write_text(f"import sys\n{line}\n{CLASS}")
    for command in ("train", "check"):
        seen = within(command, f"{file}:Pair", code=2)
        assert told in seen
        assert f"{file.name}:2 imports" in seen
        assert "Traceback" not in seen


CORRIDOR = CLASS.replace('(config or {}).get("ts", 5)', 'config["length"]')
KEYWORD = CLASS.replace("config=None", "*, length").replace('(config or {}).get("ts", 5)', "length")


@pytest.mark.parametrize(
    "text", [CORRIDOR, CORRIDOR.replace("config[", "(config or {})["), KEYWORD]
)
def test_an_argument_that_a_class_reads_and_nobody_gave_is_asked_for(file: Path, text: str) -> None:
    file.write_text(text)
    for command in ("train", "check"):
        seen = within(command, f"{file}:Pair", code=2)
        shown(seen, "--arg length=VALUE")
        assert "Traceback" not in seen
    shown(
        within("check", f"{file}:Pair", "--no-processes", "--seconds", "0.5", "--arg", "length=4"),
        0,
    )


def test_another_key_that_a_class_lacks_keeps_its_traceback(file: Path) -> None:
    file.write_text(CORRIDOR.replace('config["length"]', "{}[('a', 1)]"))
    assert "Traceback" in within("train", f"{file}:Pair", code=1)


def test_a_refusal_names_the_command_with_the_text_that_was_typed(
    tmp_path: Path, file: Path
) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    of_b = CLASS.replace("return self.seen(), paid", 'return {"b": self.seen()["b"]}, paid')
    file.write_text(of_b.replace('{"__all__"', '{"a": True, "__all__"'))
    text = f"{file}:Pair"
    seen = within("train", text, "--trainer", "sb3_ppo", "--out", tmp_path / "run", code=2)
    shown(seen, "Pair", "a", f"corral train {text} --trainer mappo")
    assert "homogenize" not in seen


def test_a_clip_asks_sdl_for_no_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="needs the extra render")
    monkeypatch.setenv("SDL_VIDEODRIVER", "")
    monkeypatch.delenv("SDL_VIDEODRIVER")
    within("watch", "CartPole-v1", "--steps", "2", "--out", tmp_path / "a.gif")
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
