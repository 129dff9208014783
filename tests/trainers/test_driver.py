"""Training and going on: the same seed, the same weights; a stop or a kill changes nothing."""

from __future__ import annotations

import random
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

import torch

from corral.errors import (
    CheckpointError,
    RunError,
)
from corral.trainers import driver as training
from corral.trainers import session
from corral.trainers.driver import resume
from corral.trainers.runs.run import load_run
from support.command import run as command
from support.runs import (
    OPTIONS,
    ROLLOUT,
    SMALL,
    alone,
    everything,
    kept,
    rows,
    small_run,
    start,
    trace_file,
    wait_for_rows,
    weights,
)
from support.thinned import fast_every

TRAINERS = ("sb3_ppo", "sb3_maskable_ppo")
POLICIES = {
    "shared": "shared",
    "separate": "separate",
    "mapped": {"node_0": "edge", "node_1": "core", "node_2": "edge"},
}


# --- Seeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policies", fast_every(3, POLICIES))
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_seed_decides_the_weights(tmp_path: Path, trainer: str, policies: str) -> None:
    given: dict[str, Any] = {"trainer": trainer, "updates": 2, "policies": POLICIES[policies]}
    one = small_run(tmp_path / "one", seed=1, **given)
    again = small_run(tmp_path / "again", seed=1, **given)
    other = small_run(tmp_path / "other", seed=2, **given)
    assert everything(one) == everything(again)
    assert rows(one) == rows(again)
    assert not set(weights(one).values()) & {
        value for key, value in weights(other).items() if key.endswith("weight")
    }


def test_separate_policies_begin_with_weights_of_their_own(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=1, policies="separate", policies_to_train=["node_0"])
    found = weights(run)
    name = next(
        key for key in found if key.startswith("policy_node_1") and "policy_net.0.weight" in key
    )
    assert found[name] != found[name.replace("node_1", "node_2")]


def test_global_generators_neither_matter_nor_move(tmp_path: Path) -> None:
    small_run(tmp_path / "one", updates=2, seed=1)
    random.seed(99)
    np.random.seed(98)  # noqa: NPY002
    torch.manual_seed(97)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    run = small_run(tmp_path / "again", updates=2, seed=1)
    run.policies["node_0"]
    resume(run.folder, steps=3 * ROLLOUT)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    assert torch.equal(before[2], after[2])
    rerun = small_run(tmp_path / "once more", updates=2, seed=1)
    assert everything(tmp_path / "one") == everything(rerun)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_batch_and_supersuit_learn_the_same_bit_for_bit(tmp_path: Path, trainer: str) -> None:
    given: dict[str, Any] = {"trainer": trainer, "policies": POLICIES["mapped"]}
    batch = small_run(tmp_path / "batch", **given)
    suit = small_run(tmp_path / "suit", vec_env="supersuit", **given)
    assert weights(batch) == weights(suit)
    returns = [name for name in rows(batch)[-1] if name.startswith("return_")]
    assert len(returns) == 1 + 3 + 2
    assert [rows(batch)[-1][name] for name in returns] == [rows(suit)[-1][name] for name in returns]


# --- Going on ------------------------------------------------------------------------------------


def stop_at(monkeypatch: pytest.MonkeyPatch, env_steps: int, number: int = signal.SIGINT) -> None:
    """Raise a signal when so many env steps are done."""
    show = session.Bar.show

    def and_stop(bar: Any, row: Any, *shown: Any) -> None:
        show(bar, row, *shown)
        if row["env_steps"] == env_steps:
            signal.raise_signal(number)

    monkeypatch.setattr(session.Bar, "show", and_stop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates without a stop; every one ends within an episode."""
    run = small_run(
        tmp_path_factory.mktemp("runs") / "whole", updates=6, policies=POLICIES["mapped"]
    )
    assert run.config.env_config.rules().max_cycles == 30  # a rollout is 16 steps
    return run.folder


@pytest.mark.parametrize(
    "stops", [*(pytest.param((n,), marks=pytest.mark.slow) for n in (1, 3, 5)), (1, 2, 4)]
)
def test_a_run_that_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, whole: Path, stops: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for place, stop in enumerate(stops):
        with monkeypatch.context() as patched:
            stop_at(patched, stop * ROLLOUT)
            begin = partial(small_run, updates=6, policies=POLICIES["mapped"])
            with pytest.raises(KeyboardInterrupt):
                (resume if place else begin)(folder)
        assert len(rows(folder)) == stop
        assert everything(folder) != everything(whole)
    resume(folder)
    assert everything(folder) == everything(whole)
    assert rows(folder) == rows(whole)


def test_sigterm_ends_the_process_once_the_run_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, ROLLOUT, signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        small_run(tmp_path / "run", updates=3)
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(rows(tmp_path / "run")) == 1
    monkeypatch.undo()
    resume(tmp_path / "run")
    assert everything(tmp_path / "run") == everything(small_run(tmp_path / "whole", updates=3))


def test_a_stop_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(monkeypatch, ROLLOUT)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as stopped:
        small_run(folder, updates=3)
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    modules = [each.frame.f_globals["__name__"] for each in stopped.traceback]
    assert not [name for name in modules if name.startswith("corral.trainers")]
    said = capsys.readouterr().err
    assert f"{folder}: stopped at 64 of 192 env steps, and saved" in said
    assert f"corral train --resume {folder}" in said
    assert "corral.resume" not in said


def test_a_stop_in_a_notebook_gives_the_call_that_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(monkeypatch, ROLLOUT)
    monkeypatch.setattr(session, "in_notebook", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path / "run", updates=3)
    assert f'corral.resume("{tmp_path / "run"}")' in capsys.readouterr().err


def test_a_loop_over_seeds_ends_at_the_first_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, ROLLOUT)

    def loop() -> None:
        for seed in range(3):
            small_run(tmp_path / str(seed), seed=seed, updates=3)

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    monkeypatch.undo()
    resume(tmp_path / "0")
    whole = small_run(tmp_path / "whole", seed=0, updates=3)
    assert everything(tmp_path / "0") == everything(whole)


@pytest.mark.slow
def test_a_run_goes_on_in_a_fresh_process(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, 2 * ROLLOUT)
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path / "run", updates=6, policies=POLICIES["mapped"])
    command("train", "--resume", tmp_path / "run")
    assert everything(tmp_path / "run") == everything(whole)
    assert rows(tmp_path / "run") == rows(whole)


def test_over_supersuit_episodes_begin_anew_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, ROLLOUT)
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path / "run", updates=3, vec_env="supersuit")
    capsys.readouterr()
    run = resume(tmp_path / "run")
    shown(capsys.readouterr().err, "episodes")
    assert [row["env_steps"] for row in rows(run)] == ["64", "128", "192"]


def test_resuming_a_finished_run_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path / "run")
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    resume(run.folder)
    shown(capsys.readouterr().err, 192, "--steps", "steps=")
    for path, content in files.items():
        assert path.read_bytes() == content
    assert {path for path in run.folder.rglob("*") if path.is_file()} == set(files)


def test_steps_can_be_raised(tmp_path: Path) -> None:
    whole = small_run(tmp_path / "whole", updates=4, anneal=False)
    run = small_run(tmp_path / "run", updates=2, anneal=False)
    assert resume(run.folder, steps=4 * ROLLOUT).config.steps == 4 * ROLLOUT
    assert everything(run) == everything(whole)
    assert rows(run) == rows(whole)
    assert load_run(run.folder).config.steps == 4 * ROLLOUT


def test_a_resume_that_fails_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    before = (run.folder / "config.json").read_bytes()
    for given in ({"steps": 0}, {"keep": 0}, {"checkpoint_every": 0}):
        name = next(iter(given))
        with refused(ValueError, f"{name}=0", 1):
            resume(run.folder, **given)
    (run.folder / "checkpoints" / "latest").write_text("step_000000000192 " + 64 * "0" + "\n")
    with pytest.raises(CheckpointError, match="damaged"):
        resume(run.folder, steps=9 * ROLLOUT)
    assert (run.folder / "config.json").read_bytes() == before


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    trace = trace_file(tmp_path)
    never = small_run(
        tmp_path / "never", updates=20, env_kwargs={"trace": trace}, seed=4, checkpoint_every=1
    )
    seen = alone(
        "kill_training",
        folder=str(tmp_path / "killed"),
        trace=str(trace),
        updates=20,
        kills=8,
        seed=5,
    )
    assert seen["end"] == 0, seen
    assert seen["killed"] >= 6, seen  # a run may be done before the last
    assert seen["before any checkpoint"] <= 3, seen  # the others struck later
    assert seen["updates before the end"] >= 6, seen
    assert everything(tmp_path / "killed") == everything(never), seen
    assert rows(tmp_path / "killed") == rows(never)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    never = small_run(tmp_path / "never")
    run = small_run(tmp_path / "run")
    shutil.rmtree(run.folder / "checkpoints")
    lines = (run.folder / "progress.csv").read_text().splitlines(keepends=True)
    (run.folder / "progress.csv").write_text("".join(lines[:2]) + lines[2][:20])
    resume(run.folder)
    shown(capsys.readouterr().err, "checkpoint")
    assert everything(run) == everything(never)
    assert rows(run) == rows(never)


def test_a_run_killed_while_it_wrote_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    never = small_run(tmp_path / "never")
    run = small_run(tmp_path / "run")
    checkpoint = next((run.folder / "checkpoints").glob("step_*"))
    unfinished = checkpoint.with_name(f".writing-1-{checkpoint.name}")
    shutil.move(checkpoint, unfinished)
    (unfinished / "manifest.json").unlink()
    for left in (run.folder / "checkpoints").iterdir():
        if left != unfinished:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    resume(run.folder)
    assert everything(run) == everything(never)


@pytest.mark.slow
def test_two_processes_do_not_train_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(
        *("train", "dfaas_v0", "--trace", trace_file(tmp_path), *OPTIONS),
        *("--steps", "1000000", "--out", folder),
    )
    wait_for_rows(folder, 2, process)
    try:
        with refused(RunError, folder, process.pid):
            resume(folder)
    finally:
        process.kill()
        process.communicate()
    resume(folder, steps=len(rows(folder)) * ROLLOUT + ROLLOUT)  # the lock went with the process


# --- Checkpoints ---------------------------------------------------------------------------------


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.name.split("_")[1]) for path in (folder / "checkpoints").glob("step_*"))


def test_checkpoints_come_as_often_as_told_and_the_last_ones_stay(tmp_path: Path) -> None:
    run = small_run(tmp_path / "one", updates=5, checkpoint_every=2 * ROLLOUT, keep=9)
    assert checkpoints(run.folder) == [128, 256, 320]
    run = small_run(tmp_path / "two", updates=5, checkpoint_every=1, keep=2)
    best = (run.folder / "checkpoints" / "best").read_text()
    team = [float(row["return_team"] or -np.inf) for row in rows(run)]
    best_step = int(best[5:17])
    # The best of all so far at the time; the first of equals.
    assert best_step == ROLLOUT * (1 + int(np.argmax(team)))
    assert checkpoints(run.folder) == sorted({256, 320, best_step})


# --- Who learns ----------------------------------------------------------------------------------


def test_policies_that_do_not_train_stay_as_they_are_and_play(tmp_path: Path) -> None:
    given: dict[str, Any] = {"policies": "separate", "seed": 3}
    all_train = small_run(tmp_path / "all", updates=1, **given)
    one = small_run(tmp_path / "one", updates=1, policies_to_train=["node_1"], **given)
    longer = small_run(tmp_path / "longer", updates=3, policies_to_train=["node_1"], **given)
    begun = weights(one)
    for name, value in weights(longer).items():
        assert (value == begun[name]) != name.startswith("policy_node_1")
    assert kept(longer).arrays["optimizer_node_0"] == {}
    moved = {key for key, value in weights(all_train).items() if value != begun[key]}
    assert {name.partition(".")[0] for name in moved} >= {"policy_node_0", "policy_node_2"}
    # They play: each of the three forwards, so the team's numbers are of all three.
    last = rows(longer)[-1]
    assert float(last["return_node_0"]) != 0
    seen = {"observation": np.zeros((1, 7), np.float32), "action_mask": np.ones((1, 13), np.int8)}
    mean = longer.policies["node_0"].act(seen, deterministic=True).extra["probabilities"]
    assert np.ptp(mean) > 0
    again = small_run(tmp_path / "again", updates=1, **given)
    assert weights(again) == weights(all_train)


def test_resumed_policies_that_do_not_train_stay_as_they_are(tmp_path: Path) -> None:
    given: dict[str, Any] = {"policies": "separate", "policies_to_train": ["node_2"]}
    whole = small_run(tmp_path / "whole", updates=4, anneal=False, **given)
    run = small_run(tmp_path / "run", updates=2, anneal=False, **given)
    resume(run.folder, steps=4 * ROLLOUT)
    assert everything(run) == everything(whole)


def test_a_run_is_not_resumed_to_fewer_steps_than_it_has(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=3)
    before = everything(run.folder), (run.folder / "config.json").read_bytes()
    with refused(RunError, "steps=100", 192):
        resume(run.folder, steps=100)
    assert (everything(run.folder), (run.folder / "config.json").read_bytes()) == before


# --- Numbers -------------------------------------------------------------------------------------


def of_arena(out: Path, **given: Any) -> Any:
    return training.train("arena_v0", trainer="sb3_ppo", out=out, **{**SMALL, **given})


def test_whole_rollouts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = of_arena(tmp_path / "run", steps=ROLLOUT * 2 - 1)
    told = capsys.readouterr().err
    shown(told, 64, 127, "num_envs", "n_steps")
    resume(run.folder)
    told = capsys.readouterr().err
    shown(told, 64, 127, "--steps", "steps=")
    resume(run.folder, steps=ROLLOUT * 4 + 1)
    told = capsys.readouterr().err
    shown(told, 256, 257, "num_envs", "n_steps")
    of_arena(tmp_path / "whole", steps=ROLLOUT)
    assert "n_steps" not in capsys.readouterr().err


def test_numbers_of_numpy_and_whole_floats(tmp_path: Path) -> None:
    given = {"steps": np.int64(64), "seed": np.int32(3), "gamma": np.float32(0.5)}
    given |= {"net_arch": (np.int64(16),), "num_envs": np.int16(4), "keep": np.int64(2)}
    run = of_arena(tmp_path / "run", **given, env_kwargs={"width": np.int64(4)})
    again = load_run(run.folder).config
    assert (again.steps, again.seed, again.keep, again.settings["gamma"]) == (64, 3, 2, 0.5)
    assert again.env_config.env_kwargs["width"] == 4
    resume(run.folder, steps=128.0, keep=np.int64(1))  # type: ignore[arg-type]
    assert load_run(run.folder).config.steps == 128
