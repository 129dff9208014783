"""Small training runs, what is compared of them, and rules whose values are known."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import write_trace
from corral.envs.core import Array, Observation, Outcome
from corral.trainers.driver import resume, train
from corral.trainers.runs.checkpoint import Content, latest_checkpoint, load_checkpoint
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.steady_rules import SteadyRules, SteadyState

TESTS = Path(__file__).parents[1]
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "net_arch": (16,),
}
ROLLOUT = 64
"""Env steps of an update under ``SMALL``."""

OPTIONS = (
    *(
        "--trainer",
        "sb3_ppo",
        "--num-envs",
        "4",
        "--n-steps",
        "16",
        "--batch-size",
        "64",
        "--n-epochs",
        "2",
    ),
    *("--net-arch", "16", "--max-cycles", "30"),
)
"""``SMALL`` on the command line."""

TIMES = ("wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning")


def small_run(folder: Path, trainer: str = "sb3_ppo", updates: int = 3, **changes: Any) -> Run:
    """A run of a few updates; of dfaas_v0 on ``small_trace`` unless told otherwise."""
    given: dict[str, Any] = {"env": "dfaas_v0", **SMALL, **changes}
    if given["env"] == "dfaas_v0":
        given["env_kwargs"] = {
            "trace": small_trace(),
            "max_cycles": 30,
            **given.get("env_kwargs", {}),
        }
    return train(trainer=trainer, steps=updates * ROLLOUT, out=folder, **given)


def kept(run: Run | Path) -> Content:
    """What the latest checkpoint holds."""
    folder = run.folder if isinstance(run, Run) else run
    return load_checkpoint(latest_checkpoint(folder / "checkpoints"))


def weights(run: Run | Path) -> dict[str, bytes]:
    """The weights of all policies, bit for bit."""
    return {
        f"{file}.{name}": array.tobytes()
        for file, arrays in kept(run).arrays.items()
        if file.startswith("policy_")
        for name, array in arrays.items()
    }


def everything(run: Run | Path) -> dict[str, Any]:
    """All that a checkpoint holds but clocks: weights, optimiser, generators, environment, ..."""
    content = kept(run)
    told = {name: value for name, value in content.documents.items() if name != "progress"}
    told["configuration"] = {k: v for k, v in told["configuration"].items() if k != "horizon"}
    statistics = dict(content.documents["progress"])
    for name in ("wall_s", "best", "best_by"):  # a stop is one more look at what is best
        del statistics[name]
    arrays = {
        f"{file}.{name}": (array.dtype.str, array.shape, array.tobytes())
        for file, found in content.arrays.items()
        for name, array in found.items()
    }
    return {**told, "progress": statistics, **arrays}


def rows(run: Run | Path) -> list[dict[str, str]]:
    """progress.csv as it stands there, but for times."""
    folder = run.folder if isinstance(run, Run) else run
    with (folder / "progress.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if name not in TIMES} for row in read]


def observations(run: Run, count: int = 32, seed: int = 3) -> dict[str, Observation]:
    """What the agents of ``run`` see after some random steps, [count, ...] each."""
    from corral.adapters import Batch

    batch = Batch(run.config.env_config.rules(), count, seed)
    seen = batch.reset()
    rng = np.random.default_rng(seed)
    for _ in range(5):
        seen = batch.step(batch.sample_actions(rng)).observations
    return seen


# --- Processes -----------------------------------------------------------------------------------

ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """``corral ARGUMENTS`` in a process, and a process group, of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "corral", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )


def wait_for_rows(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until progress.csv holds so many rows."""
    deadline = time.monotonic() + 600
    path = folder / "progress.csv"
    while not (path.exists() and path.read_text().count("\n") > count):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"no {count} updates: {process.communicate()[0]}")
        time.sleep(0.01)


def trace_file(folder: Path) -> Path:
    path = folder / "small.csv"
    write_trace(small_trace(), path)
    return path


def kill_training(folder: str, trace: str, updates: int, kills: int, seed: int) -> dict[str, int]:
    """SIGKILL a training ``kills`` times at random moments, going on after each; how it was.

    Runs in a process of its own, see ``alone`` of ``support.checkpoints``: it forks.
    """
    place = Path(folder)
    rng = random.Random(seed)
    warm_up(place.with_name("warm"), trace)
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        go_on(place.with_name("timed"), trace, updates)
    os.waitpid(child, 0)
    update = (time.perf_counter() - began) / updates
    killed = before_any_checkpoint = 0
    for kill in range(kills):
        known = updates_logged(place)
        child = os.fork()
        if child == 0:
            go_on(place, trace, updates)
        if kill % 4:  # in the midst of updates and of checkpoints
            wait_for_update(place, known, 300)
            wait_for_update(place, known + 1, rng.uniform(0.0, 2.0) * update)
        else:  # some meet the very beginning
            wait_for_update(place, known + 1, rng.uniform(0.0, 5.0) * update)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        before_any_checkpoint += not (place / "checkpoints" / "latest").exists()
    at = updates_logged(place)
    child = os.fork()
    if child == 0:
        go_on(place, trace, updates)
    _, status = os.waitpid(child, 0)
    return {
        "killed": killed,
        "before any checkpoint": before_any_checkpoint,
        "updates before the end": at,
        "end": os.waitstatus_to_exitcode(status),
    }


def wait_for_update(place: Path, known: int, seconds: float) -> None:
    """Wait so long, or until more than ``known`` updates are logged: a machine that is faster than
    it was does not get to the end."""
    deadline = time.monotonic() + seconds
    while updates_logged(place) <= known and time.monotonic() < deadline:
        time.sleep(0.002)


def updates_logged(place: Path) -> int:
    """Whole rows of progress.csv; 0 where there is none yet."""
    try:
        return max(0, (place / "progress.csv").read_text().count("\n") - 1)
    except FileNotFoundError:
        return 0


def go_on(place: Path, trace: str, updates: int) -> None:
    """Begin the run, or resume it; ends the process."""
    code = 1
    try:
        if (place / "config.json").exists():
            resume(place, checkpoint_every=1)
        else:
            # A kill while the folder was made left no run, and nothing that blocks the next.
            env = {"trace": trace, "max_cycles": 30}
            small_run(place, updates=updates, env_kwargs=env, seed=4, checkpoint_every=1)
        code = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def warm_up(place: Path, trace: str) -> None:
    """Import what training imports, without a thread of torch's that a fork would lose."""
    from torch.utils import tensorboard

    from corral.trainers.runs.env_config import EnvConfig
    from corral.trainers.runs.run_config import RunConfig

    assert tensorboard.SummaryWriter
    task = EnvConfig.of("dfaas_v0", {"trace": trace})
    everyone = dict.fromkeys(task.rules().agents, "shared")
    RunConfig(task, "sb3_ppo", {}, 0, 1, everyone, ("shared",), {}, 1).make_trainer()


def alone(call: str, **arguments: Any) -> Any:
    """What ``support.runs.<call>(**arguments)`` returns in a process of its own."""
    code = (
        f"import json, sys; from support.runs import {call}; "
        f"print(json.dumps({call}(**json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env={**ENVIRONMENT, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    found["said"] = done.stderr
    return found


# --- Rules ---------------------------------------------------------------------------------------


class PaidRules(SteadyRules):
    """SteadyRules with another constant pay for each of its two agents."""

    name = "paid_v0"

    def __init__(self, pay: tuple[float, float] = (1.0, -2.0), max_cycles: int = 4) -> None:
        super().__init__(max_cycles)
        self.pay = np.array(pay, dtype=np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> SteadyState:
        state = super().start(rngs)
        state.pay[...] = self.pay
        return state


class FaultyRules(PaidRules):
    """From step ``after`` on, counted over all copies together, one number is not finite.

    ``where``: "observation", "last observation" (of an episode alone) or "reward".
    """

    name = "faulty_v0"

    def __init__(self, where: str, after: int, value: float = np.nan) -> None:
        super().__init__()
        self.where = where
        self.after = after
        self.value = value
        self.steps = 0

    def observe(self, state: SteadyState) -> dict[str, Observation]:
        seen = {agent: dict(own) for agent, own in super().observe(state).items()}
        last = state.t[0] == self.max_cycles
        if self.steps >= self.after and (
            self.where == "observation" or (self.where == "last observation" and last)
        ):
            level: Array = seen["agent_1"]["observation"].copy()
            level[-1] = self.value
            seen["agent_1"]["observation"] = level
        return seen

    def step(self, state: SteadyState, action: Array) -> Outcome[SteadyState]:
        self.steps += 1
        outcome = super().step(state, action)
        if self.where == "reward" and self.steps >= self.after:
            outcome.reward = outcome.reward.copy()
            outcome.reward[-1, 1] = self.value
        return outcome
