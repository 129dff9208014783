"""corral watch of environments of others: their own pictures, through their own API."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pettingzoo
import pytest

from support.messages import refused, shown

pytest.importorskip("PIL", reason="needs the extra render")

from gymnasium import spaces
from pettingzoo import ParallelEnv
from PIL import Image

import corral
from corral.adapters.zoo.batch import zoo_rules
from corral.envs.policy import RandomPolicy
from corral.errors import EnvironmentFault, EnvNeededError, RunError, UnknownNameError
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.watch import watch
from support.command import within

FOUR, TICTACTOE = "classic/connect_four-v3", "classic/tictactoe-v3"
HERE = __name__


class Counting(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo ships no types
    """Both agents count; the episode ends after ``length`` steps, and pictures are as bright as it
    is late."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "counting_v0",
        "render_modes": ["human", "ansi", "rgb_array"],
        "render_fps": 7,
    }
    closed: ClassVar[list[str | None]] = []

    def __init__(self, length: int = 5, render_mode: str | None = None) -> None:
        self.possible_agents, self.length, self.render_mode = ["a", "b"], length, render_mode

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = ["a", "b"], 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        over = dict.fromkeys(self.agents, self.t == self.length)
        pay = {agent: float(action) + self.rng.random() for agent, action in actions.items()}
        never = dict.fromkeys(self.agents, False)
        step = (self._seen(), pay, over, never, {agent: {} for agent in self.agents})
        self.agents = [agent for agent in self.agents if not over[agent]]
        return step

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return f"step {self.t}"
        return np.full((24, 32, 3), 20 * self.t, np.uint8)

    def close(self) -> None:
        self.closed.append(self.render_mode)

    def _seen(self) -> dict[str, Any]:
        return {agent: np.full(1, self.t / self.length, np.float32) for agent in self.agents}


def counting(render_mode: str | None = None) -> Counting:
    return Counting(render_mode=render_mode)


def plain() -> Counting:
    return Counting()


def told(*game: Any, **kwargs: Any) -> tuple[Any, list[str]]:
    texts: list[str] = []
    return watch(*game, text=texts.append, **kwargs), texts


def frames_of(path: Path) -> list[np.ndarray]:
    image, frames = Image.open(io.BytesIO(path.read_bytes())), []
    for number in range(image.n_frames):
        image.seek(number)
        frames.append(np.asarray(image.convert("RGB")).astype(int))
    return frames


def four() -> Any:
    pytest.importorskip("pygame", reason="PettingZoo's classic games need it")
    if not hasattr(pettingzoo, "register"):
        pytest.skip("PettingZoo before 1.27 has no registry")
    from pettingzoo.classic.connect_four import connect_four

    return connect_four


# --- Pictures ------------------------------------------------------------------------------------


def test_a_clip_has_a_frame_for_the_start_and_every_step(tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    watched = watch(counting, out=path)
    assert (watched.env, watched.policies) == ("counting_v0", "random")
    assert (watched.steps, watched.frames) == (5, 6)
    assert (watched.over, watched.path) == (True, path)
    brightness = [round(frame.mean() / 20) for frame in frames_of(path)]
    assert brightness == [0, 1, 2, 3, 4, 5]  # the last one is of the end, not of a new episode


def test_text_is_the_environments(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(Counting)[1] == [f"step {t}" for t in range(6)]
    watched, texts = told(Counting, steps=2)
    assert (watched.steps, watched.over, texts) == (2, False, ["step 0", "step 1", "step 2"])
    assert told(Counting, length=3)[1][-1] == "step 3"  # arguments of the environment


@pytest.mark.parametrize("sampled", [False, True])
def test_the_episode_is_the_first_that_is_evaluated(sampled: bool) -> None:
    rules = zoo_rules(Counting)
    player = Player(dict.fromkeys(rules.agents, RandomPolicy()), not sampled)
    for seed in range(3):
        watched, _ = told(rules, policies=player, seed=seed)
        score = evaluate_team(rules, player, episodes=1, seed=seed)
        assert watched.returns == pytest.approx(score.returns)


def test_all_that_was_made_is_closed() -> None:
    Counting.closed.clear()
    told(Counting, steps=1)
    assert "ansi" in Counting.closed


def test_a_window_is_paced_as_the_environment_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from corral.envs.render.window import Window

    seen: list[float] = []

    def show(self: Window, image: np.ndarray) -> bool:
        seen.append(self.fps)
        return len(seen) < 3

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(Window, "show", show)
    monkeypatch.setattr(Window, "close", lambda self: None)
    assert (watch(Counting).over, seen) == (False, [7.0] * 3)


# --- PettingZoo's own games ----------------------------------------------------------------------


def test_connect_four_shows_the_winning_move(tmp_path: Path) -> None:
    game = four()

    def left(observation: Any) -> int:  # each fills a column of its own: four in a row
        return 0

    def right(observation: Any) -> int:
        return 6

    path = tmp_path / "four.gif"
    team = {"player_0": left, "player_1": right}
    for env in (FOUR, game, game.env, game.env(render_mode="rgb_array")):
        watched = watch(env, policies=team, out=path)
        assert (watched.steps, watched.over) == (7, True)
        assert watched.returns == {"player_0": 1.0, "player_1": -1.0}
    frames = frames_of(path)
    assert len(frames) == 8
    changed = np.abs(frames[-1] - frames[-2]).max(axis=2) > 60
    rows, columns = np.nonzero(changed)
    height, width = changed.shape
    assert columns.max() < width / 5  # the fourth piece in the first column, above the others
    assert height / 5 < rows.mean() < height / 1.8


def test_tictactoe_from_the_command_line(tmp_path: Path) -> None:
    four()
    path = tmp_path / "clip.gif"
    printed = within("watch", TICTACTOE, "--out", path, "--seed", "3")
    shown(printed, "tictactoe_v3", "random", "player_1")
    frames = frames_of(path)
    assert 6 <= len(frames) <= 10
    said = " ".join(within("watch", TICTACTOE, "--ansi", code=2).split())
    shown(said, "tictactoe_v3", "human", "rgb_array")
    within("watch", TICTACTOE, "--out", path, "--overwrite", "--arg", "screen_height=90")
    assert frames_of(path)[0].shape[0] == 90


# --- Runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch", reason="needs the extra mappo")
    folder = tmp_path_factory.mktemp("others") / "run"
    small: dict[str, Any] = {"num_envs": 2, "n_steps": 8, "n_epochs": 1, "seed": 0}
    return corral.train(f"{HERE}:Counting", trainer="mappo", steps=32, out=folder, **small)


def test_a_run_needs_its_environment_again(run: Any) -> None:
    with refused(EnvNeededError, f"--env {HERE}:Counting"):
        told(run.folder)
    watched, texts = told(run.folder, env=Counting)
    assert (watched.policies, len(texts)) == (f"mappo of {run.folder}", 6)
    assert told(run)[0] == watched
    assert told(Counting, policies=run.folder, env=Counting)[0].returns == watched.returns
    assert told(Counting, policies=run)[0].returns == watched.returns
    said = within("watch", run.folder, "--ansi", "--env", f"{HERE}:Counting", "--steps", "2")
    shown(said.splitlines()[-1], "counting_v0", 2)
    said = " ".join(within("watch", run.folder, "--ansi", code=2).split())
    assert f"--env {HERE}:Counting" in said
    other = ("--env", f"{HERE}:Counting", "--arg", "length=2")
    said = within("watch", run.folder, "--ansi", *other, code=2)
    shown(" ".join(said.split()), "length=2", "length=5")


# --- Mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_named(tmp_path: Path, run: Any) -> None:
    with refused(ValueError, "render_mode='rgb_array'", "counting_v0", "make_env"):
        watch(plain, out=tmp_path / "clip.gif")  # says which modes there are, and what to do
    with refused(ValueError, "render_mode='ansi'", "make_env"):
        told(Counting())
    with refused(ValueError, "env="):
        told("arena_v0", env=Counting)
    with refused(ValueError, "counting_v0", "arena_v0"):
        told("arena_v0", policies=run)
    with refused(UnknownNameError, "counting_v0", "'greedy'"):
        told(Counting, policies="greedy")
    if hasattr(pettingzoo, "register"):
        with pytest.raises(UnknownNameError, match="classic/connect_four-v3"):
            told("classic/conect_four-v3")
    with refused(RunError, "runs/mine"):
        told("runs/mine")


class Blank(Counting):
    metadata: ClassVar[dict[str, Any]] = {"name": "blank_v0", "render_modes": ["human"]}


class Broken(Counting):
    def render(self) -> Any:
        return None


def test_environments_that_cannot_be_shown(tmp_path: Path) -> None:
    for given in ({"out": tmp_path / "clip.gif"}, {"text": print}):
        with refused(ValueError, "blank_v0", "human"):
            watch(Blank, **given)
        with refused(EnvironmentFault, "counting_v0", "render()", "None"):
            watch(Broken, **given)
    assert not list(tmp_path.iterdir())


class Growing(Counting):
    def render(self) -> Any:
        self.drawn = getattr(self, "drawn", 39) + 1
        return np.zeros((self.drawn, 60, 3), dtype=np.uint8)


def test_pictures_of_several_sizes_are_no_clip(tmp_path: Path) -> None:
    with refused(ValueError, "60 x 40", "60 x 41"):
        watch(Growing, out=tmp_path / "clip.gif")
    assert not list(tmp_path.iterdir())
