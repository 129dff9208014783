"""corral watch: clips with a frame for every step, the colours of the pictures, helpful errors."""

from __future__ import annotations

import functools
import io
import re
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL", reason="needs the extra render")

from PIL import Image
from typer.testing import CliRunner

import corral
from corral.cli.app import app
from corral.data import Trace
from corral.envs import make, make_rules
from corral.envs.arena_v0 import ArenaRules
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.render import LOAD, LOST, OTHERS, OWN, WAITING
from corral.envs.policy import RandomPolicy
from corral.envs.reference import reference_team
from corral.envs.render.video import gif, shrunk, write_video
from corral.envs.render.window import Window
from corral.errors import CorralError, MissingExtraError, RunError, UnknownNameError
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.watch import watch
from support.command import run as command
from support.loads import small_trace
from support.messages import refused, shown
from support.runs import small_run
from support.turn_rules import MortalRules, PileRules

SMALL: dict[str, Any] = {"width": 4, "height": 3, "max_cycles": 6}


def frames_of(path: Path | bytes) -> list[np.ndarray]:
    image = Image.open(io.BytesIO(path if isinstance(path, bytes) else path.read_bytes()))
    frames = []
    for number in range(image.n_frames):
        image.seek(number)
        frames.append(np.asarray(image.convert("RGB")).astype(int))
    return frames


def within(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], terminal_width=80)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


# --- Clips ---------------------------------------------------------------------------------------


def test_a_gif_shows_every_step_as_the_environment_draws_it(tmp_path: Path) -> None:
    watched = watch(
        "arena_v0", policies="nearest/chase", out=tmp_path / "clip.gif", pixels=960, **SMALL
    )
    assert (watched.steps, watched.frames, watched.over) == (6, 7, True)
    env = make("arena_v0", render_mode="rgb_array", **SMALL)
    team = reference_team("nearest/chase", env.rules)
    memory = {agent: team[agent].initial_state(1) for agent in team}
    observations, _ = env.reset(seed=0)
    pictures, returns = [env.render()], dict.fromkeys(team, 0.0)
    while env.agents:
        actions = {}
        for agent in env.agents:
            seen = {key: value[None] for key, value in observations[agent].items()}
            decision = team[agent].act(seen, memory[agent])
            actions[agent], memory[agent] = int(decision.action[0]), decision.state
        observations, rewards, *_ = env.step(actions)
        returns = {agent: returns[agent] + rewards[agent] for agent in team}
        pictures.append(env.render())
    assert watched.returns == pytest.approx(returns)
    frames = frames_of(tmp_path / "clip.gif")
    assert len(frames) == len(pictures) == 7
    for frame, picture in zip(frames, pictures, strict=True):
        off = np.abs(frame - picture)
        assert off.mean() < 1  # of 255; edges of letters may be further off
        assert (off.max(axis=2) <= 6).mean() > 0.97
    # Other steps are other pictures, by far more than that.
    assert all(np.abs(a - b).mean() > 0.2 for a, b in zip(frames[1:], pictures, strict=False))


@pytest.mark.slow
def test_a_clip_of_the_default_game_is_small_and_paced(tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    watched = watch("arena_v0", policies="nearest/random", out=path, steps=30, fps=8)
    assert (watched.steps, watched.over) == (30, False)
    image = Image.open(io.BytesIO(path.read_bytes()))
    assert (image.size, image.n_frames, image.info["loop"]) == ((480, 320), 31, 0)
    durations = []
    for number in range(31):
        image.seek(number)
        durations.append(image.info["duration"])
    assert set(durations[:-1]) == {120}  # hundredths of a second
    assert durations[-1] > 1500
    assert path.stat().st_size < 250_000


def test_frames_that_are_alike_stay_frames() -> None:
    red = np.full((4, 6, 3), (200, 10, 10), dtype=np.uint8)
    blue = np.full((4, 6, 3), (10, 10, 200), dtype=np.uint8)
    both = red.copy()
    both[1:3, 2:5] = blue[0, 0]
    wanted = [red, red, both, both, blue, red]
    for frame, picture in zip(frames_of(gif(wanted, 4)), wanted, strict=True):
        assert frame.tolist() == picture.tolist()


def test_many_colours_are_shown_by_near_ones() -> None:
    ramp = np.zeros((64, 64, 3), dtype=np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(64) * 4, np.arange(64)[:, None] * 4
    for frame, picture in zip(
        frames_of(gif([ramp, ramp[::-1]], 4)), [ramp, ramp[::-1]], strict=True
    ):
        assert np.abs(frame - picture).mean() < 12


@pytest.mark.parametrize(("policies", "queue"), [("local", 0), ("overflow", 0), ("local", 20)])
def test_a_clip_keeps_every_colour_of_its_legend(tmp_path: Path, policies: str, queue: int) -> None:
    path = tmp_path / "clip.gif"
    watch("dfaas_v0", policies=policies, queue=queue, steps=5, out=path)
    colours = [OWN, OTHERS, LOST, LOAD] + [WAITING] * bool(queue)
    for frame in frames_of(path):
        legend = frame[-20:]  # its squares are 9 by 6 pixels, with smooth edges
        for colour in colours:
            wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
            near = np.abs(legend - wanted).max(axis=2) <= 6
            assert near.sum() >= 12, colour


def test_pictures_shrink_and_never_grow() -> None:
    picture = np.zeros((40, 60, 3), dtype=np.uint8)
    assert shrunk(picture, 30).shape == (20, 30, 3)
    assert shrunk(picture, 60) is picture
    assert shrunk(picture, 90) is picture


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
def test_a_video_goes_through_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that keeps what it was given: whole raw frames, size and rate named."""
    tool = tmp_path / "ffmpeg"
    tool.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "open(sys.argv[-1], 'wb').write(sys.stdin.buffer.read())\n"
        "open(sys.argv[-1] + '.words', 'w').write(' '.join(sys.argv[1:]))\n"
        "sys.exit('no room' if 'full' in sys.argv[-1] else 0)\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path))
    watched = watch("arena_v0", out=tmp_path / "clip.mp4", pixels=96, fps=2, **SMALL)
    frame = 96 * 64 * 3
    assert (tmp_path / "clip.mp4").stat().st_size == frame * (watched.frames + 4)  # 2 s more
    words = (tmp_path / "clip.mp4.words").read_text()
    shown(words, "-f rawvideo -pix_fmt rgb24 -s 96x64 -r 2 -i -")
    with refused(CorralError, "full.mp4", "no room"):
        watch("arena_v0", out=tmp_path / "full.mp4", pixels=96, **SMALL)


def test_without_an_encoder_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with refused(MissingExtraError, "clip.mp4", "pip install imageio-ffmpeg"):
        watch("arena_v0", out=tmp_path / "clip.mp4")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with refused(MissingExtraError, "PIL", "pip install '.[render]'"):
        watch("arena_v0", out=tmp_path / "clip.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("count", "fps"), [(0, 4), (1, 0)])
def test_nothing_is_no_clip(tmp_path: Path, count: int, fps: float) -> None:
    picture = np.zeros((2, 2, 3), dtype=np.uint8)
    with refused(ValueError, count, f"fps={fps}"):
        write_video(tmp_path / "clip.gif", [picture] * count, fps)


# --- Who plays -----------------------------------------------------------------------------------


def told(*game: Any, **kwargs: Any) -> tuple[Any, list[str]]:
    texts: list[str] = []
    return watch(*game, text=texts.append, **kwargs), texts


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        functools.partial(ArenaRules, 4, 3, max_cycles=9, illegal="raise"),
        functools.partial(PileRules, illegal="raise", gift=0.25, last_move=1),
        functools.partial(MortalRules, (4, 4), lives=(2, 5), illegal="raise"),
    ],
    ids=["at once", "in turns", "mortal"],
)
def test_the_episode_is_the_first_that_is_evaluated(rules: Any, sampled: bool) -> None:
    player = Player(dict.fromkeys(rules().agents, RandomPolicy()), not sampled)
    for seed in range(3):
        watched, texts = told(rules(), policies=player, seed=seed)
        score = evaluate_team(rules(), player, episodes=1, seed=seed)
        assert watched.returns == pytest.approx(score.returns)
        assert watched.steps == score.mean_length
        assert (len(texts), watched.over) == (watched.steps + 1, True)


def test_the_text_is_the_environments() -> None:
    watched, texts = told("arena_v0", policies="nearest/still", steps=2, **SMALL)
    env = make("arena_v0", render_mode="ansi", **SMALL)
    env.reset(seed=0)
    assert texts[0] == env.render()
    assert texts[2].startswith("step 2 of 6: the explorer finds a new field")
    assert (watched.steps, watched.over, watched.path) == (2, False, None)
    assert watched.policies == "nearest/still"


def test_a_pair_of_dfaas_names_amount_and_route() -> None:
    load = {"trace": small_trace(), "max_cycles": 8, "second_offer": False}
    assert told("dfaas_v0", policies="overflow/shortest", **load)[0].steps == 8
    with refused(ValueError, "overflow/equal", "route='two'", "route='equal'"):
        told("dfaas_v0", policies="overflow/equal", route="two", **load)


def test_a_policy_a_team_or_a_player_may_play() -> None:
    one = RandomPolicy()
    team = dict.fromkeys(("agent_1", "agent_2"), one)
    watched = [
        told("arena_v0", policies=p, **SMALL)[0] for p in ("random", one, team, Player(team))
    ]
    assert len({tuple(each.returns.values()) for each in watched}) == 1
    with refused(ValueError, 1, 2, "agent_2"):
        told("arena_v0", policies={"agent_1": one})


def test_a_run_shows_its_own_team(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    run = corral.train(
        "arena_v0",
        trainer="ippo",
        steps=64,
        seed=0,
        env_kwargs={**SMALL, "walls": "mask"},
        out=tmp_path / "run",
        num_envs=8,
        n_steps=4,
    )
    watched, _ = told(run.folder)
    player = Player(run.policies, True)
    score = evaluate_team(run.config.env_config.rules(), player, episodes=1, seed=0)
    assert watched.returns == pytest.approx(score.returns)
    assert watched.policies == f"ippo of {run.folder}"
    sampled = [told(run, sampled=True, seed=seed)[0].returns for seed in range(4)]
    assert any(returns != watched.returns for returns in sampled)
    # Also as policies in an environment, where they fit it; and beside others in its own.
    assert told("arena_v0", policies=run.folder, **SMALL, walls="mask")[0] == watched
    assert told(run, policies="nearest/still")[0].policies == "nearest/still"
    with refused(ValueError, run.folder, "agent_1"):
        told("arena_v0", policies=run.folder)
    with refused(ValueError, run.folder, "arena_v0", "two_step_v0"):
        told("two_step_v0", policies=run.folder)
    for checkpoint in (run.folder / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / f"gone-{checkpoint.name}")
    printed = within("watch", run.folder, "--ansi", code=2)
    shown(printed, run.folder / "checkpoints")


# --- Windows -------------------------------------------------------------------------------------


def test_a_window_shows_the_pictures_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    closed: list[Window] = []

    def show(self: Window, image: np.ndarray) -> bool:
        assert (self.title, self.fps) == ("arena_v0", 50.0)
        seen.append(image)
        return len(seen) < 4

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(Window, "show", show)
    monkeypatch.setattr(Window, "close", lambda self: closed.append(self))
    watched = watch("arena_v0", fps=50, **SMALL)
    assert (len(seen), len(closed), watched.steps, watched.over) == (4, 1, 3, False)
    rules = make_rules("arena_v0", **SMALL)
    state = rules.start([generator(0, "env")])
    assert (seen[0] == rules.render(state, rules.info(state), "rgb_array")).all()


def test_a_real_window_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="needs the extra render")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert watch("arena_v0", fps=1000, steps=2, **SMALL).frames == 3
    assert Window._shown is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="displays of Linux")
def test_without_a_display_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with refused(CorralError, "out=clip.gif", "--ansi"):
        watch("arena_v0")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setitem(sys.modules, "pygame", None)
    with refused(MissingExtraError, "pygame", "pip install '.[render]'", "out=clip.gif"):
        watch("arena_v0")


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "error", "named"),
    [
        ({"game": "arena_v1"}, UnknownNameError, ("'arena_v0'",)),
        ({"game": "runs/none"}, RunError, ("runs/none",)),
        ({"policies": "nearest/stil"}, UnknownNameError, ("'nearest/still'",)),
        ({"steps": 0}, ValueError, ("steps=0", "1")),
        ({"fps": 0}, ValueError, ("fps=0", "0")),
        ({"pixels": 3}, ValueError, ("pixels=3", "16")),
        ({"out": "clip.avi"}, ValueError, ("out=clip.avi", ".gif", ".mp4")),
        ({"out": "nowhere/clip.gif"}, ValueError, ("out=nowhere/clip.gif",)),
        ({"out": "clip.gif", "text": print}, ValueError, ("out=", "text=")),
        ({"game": "probe_p01_v0"}, ValueError, ("probe_p01_v0", "ansi")),
        ({"game": ArenaRules(), "width": 3}, ValueError, ("env_kwargs={'width': 3}",)),
    ],
)
def test_mistakes_are_named(
    kwargs: dict[str, Any], error: type[Exception], named: tuple[object, ...], tmp_path: Path
) -> None:
    with refused(error, *named):
        watch(**{"game": "arena_v0", **kwargs})


def test_folders_that_hold_no_run_are_named(tmp_path: Path) -> None:
    for given in ({"game": tmp_path}, {"game": "arena_v0", "policies": str(tmp_path)}):
        with refused(RunError, tmp_path):
            watch(**given)  # type: ignore[arg-type]


# --- The command ---------------------------------------------------------------------------------


def test_the_command_writes_a_clip(tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    words = ["watch", "arena_v0", "--policies", "nearest/still", "--steps", "3", "--out", path]
    printed = within(*words, "--width", "3", "--height", "2", "--pixels", "120")
    shown(printed, "arena_v0", "nearest/still", 3, 2.7, "agent_1", "agent_2", -0.3, path, 4)
    assert frames_of(path)[0].shape == (80, 120, 3)
    shown(within(*words, code=2), "--overwrite")
    within(*words, "--overwrite", "--height", "2")


def test_the_command_prints_text() -> None:
    printed = within("watch", "arena_v0", "--ansi", "--steps", "1", "--height", "1", "--width=4")
    drawn = [line for line in printed.splitlines() if set(line) == set("E .B")]
    assert len(drawn) == 2
    assert drawn[0] == "E . . B"
    shown(printed, 100)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["arena"], "did you mean 'arena_v0'"),
        (["arena_v0", "--heigth", "3"], "no option named '--heigth'; did you mean '--height'"),
        (["arena_v0", "--height", "0"], "--height 0: give a whole number, 1 or more"),
        (["arena_v0", "--ansi", "--out", "a.gif"], "give --out or --ansi, not both"),
        (["arena_v0", "--out", "a.png"], "give a name that ends in .gif or .mp4"),
        (["arena_v0", "--ansi", "--fps", "0"], "--fps 0.0: pass a number above 0"),
    ],
)
def test_the_command_names_mistakes(words: list[str], message: str) -> None:
    assert message in " ".join(within("watch", *words, code=2).split())


def test_the_command_speaks_of_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    shown(within("watch", "arena_v0", code=2), "--out clip.gif", "--ansi")
    (tmp_path / "nocap.csv").write_text("time,node,arrivals\n0,a,1\n1,a,2\n")
    words = ["watch", "dfaas_v0", "--ansi", "--trace", tmp_path / "nocap.csv"]
    shown(within(*words, code=2), "nocap", "--capacity", "'1.25x'")


@pytest.mark.slow
def test_watching_needs_no_torch() -> None:
    shown(command("watch", "--help"), "corral watch")
    code = (
        "import sys\n"
        "for name in ('torch', 'stable_baselines3', 'supersuit'): sys.modules[name] = None\n"
        "import corral\n"
        "corral.watch('arena_v0', text=lambda text: None, steps=1)\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- Pictures say what happened ------------------------------------------------------------------


def overloaded() -> Trace:
    """a has 9 requests and serves 5; b takes 3 of the 4 that it forwards, and one is lost."""
    loads = np.array([[9, 2]] * 4), np.array([[5, 5]] * 4)
    return Trace(("a", "b"), *loads, np.arange(4), name="overloaded")


def beside_the_arrow(text: str) -> list[int]:
    """Return the numbers of the line that tells what is sent."""
    (line,) = (line for line in text.splitlines() if "->" in line)
    return [int(number) for number in re.findall(r"\d+", line)]


def test_text_shows_who_served_what_was_forwarded(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    texts: list[str] = []
    watch("dfaas_v0", policies="overflow", text=texts.append, steps=1, trace=overloaded())
    assert beside_the_arrow(texts[1]) == [1, 3, 1]  # to node_1 3, and no room for 1
    run = small_run(tmp_path / "run", updates=1)  # training keeps no record of who served whom
    watched: list[str] = []
    watch(run, text=watched.append, policies="overflow", steps=12)
    sent = [line for step in watched for line in step.splitlines() if "->" in line]
    assert any("node_" in line for line in sent)


def test_a_clip_draws_the_arrows_of_its_legend(tmp_path: Path) -> None:
    watch("dfaas_v0", policies="overflow", out=tmp_path / "c.gif", steps=2, trace=overloaded())
    env = make("dfaas_v0", render_mode="rgb_array", trace=overloaded())
    env.reset(seed=0)
    env.step({"node_0": 4, "node_1": 0})
    frames, picture = frames_of(tmp_path / "c.gif"), shrunk(env.render(), 480)
    assert np.abs(frames[1] - picture).mean() < 1
    rules = DfaasRules(overloaded())  # which keep no record: no arrow, and none in the legend
    state = rules.start([generator(0, "env")])
    outcome = rules.step(state, np.array([[4, 0]]))
    bare = rules.render(outcome.state, outcome.info, "rgb_array")
    assert np.abs(shrunk(bare, 480).astype(int) - picture).mean() > 0.2
    text = rules.render(outcome.state, outcome.info, "ansi")
    assert beside_the_arrow(text) == [4]  # sent, and nothing of where


def test_the_command_adds_up_no_returns_that_cancel() -> None:
    printed = within("watch", "rps_v0", "--policies", "random", "--ansi", "--steps", "3")
    said = printed.splitlines()[-1]
    shown(said, "rps_v0", "random", 3, "player_0", "player_1")
    assert "team" not in said
    many = within(
        *("watch", "dfaas_v0", "--policies", "local", "--ansi", "--steps", "1", "--trace", "edge8"),
        *("--capacity", "0", "--load-scale", "200"),
    )
    said = many.splitlines()[-1]
    shown(said, "dfaas_v0", "local", 1, 8)
    assert "node_3" not in said
