"""Training on a Ray cluster of two nodes, of which a runner and then a node are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("ray")

import corral
from support.ray_cluster import Cluster, cluster, wait_for

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]

BATCH, UPDATES = 512, 24


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    with cluster() as started:
        yield started
    assert started.left_over() == []


def rows(run: Path) -> int:
    """Updates so far."""
    file = run / "progress.csv"
    return len(file.read_text().splitlines()) - 1 if file.exists() else 0


def test_a_cluster_outlives_a_killed_runner_and_a_killed_node(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    log = (tmp_path / "log").open("w")
    command = [sys.executable, "-m", "corral", "train", "dfaas_v0", "--trainer", "rllib_ppo"]
    command += ["--address", two_nodes.address, "--runners", "2", "--envs-per-runner", "8"]
    command += ["--train-batch-size", str(BATCH), "--batch-size", "256", "--n-epochs", "2"]
    command += ["--trace", "edge3", "--max-cycles", "48", "--steps", str(BATCH * UPDATES)]
    command += ["--patience", "90", "--out", str(run)]
    driver = subprocess.Popen(
        command, env=two_nodes.environment, stdout=log, stderr=subprocess.STDOUT
    )
    driver_seen = psutil.Process(driver.pid)

    def past(updates: int) -> None:
        """Wait for so many more updates."""
        wanted, end = rows(run) + updates, time.monotonic() + 240
        while rows(run) < wanted and driver.poll() is None:
            assert time.monotonic() < end, f"no update: {(tmp_path / 'log').read_text()[-4000:]}"
            time.sleep(0.2)

    def alive() -> None:
        assert driver.poll() is None, (tmp_path / "log").read_text()[-4000:]

    try:
        past(2)
        alive()
        first, second = two_nodes.runners(two_nodes.head), two_nodes.runners(two_nodes.second)
        assert len(first) == len(second) == 1  # Ray put one on each node
        assert two_nodes.listening() == {"127.0.0.1"}

        two_nodes.kill(first)
        past(2)
        alive()
        again = wait_for(
            lambda: two_nodes.runners(two_nodes.head), 60, "the killed runner did not come back"
        )
        assert again[0].pid != first[0].pid
        past(1)
        alive()

        at_kill = rows(run)
        two_nodes.kill(two_nodes.processes(two_nodes.second))
        driver.wait(timeout=400)
    finally:
        children = driver_seen.children(recursive=True) if driver.poll() is None else []
        two_nodes.kill(children)
        driver.kill()
        driver.wait()
        log.close()

    assert driver.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    assert at_kill < UPDATES - 2, "the node was killed too late to tell anything"
    loaded = corral.load_run(run)
    steps = loaded.progress["env_steps"]
    assert steps.iloc[-1] >= BATCH * UPDATES
    assert steps.is_monotonic_increasing
    assert np.isfinite(loaded.progress["policy_loss"]).all()
    assert len(loaded.progress) > at_kill + 2
    env = corral.make("dfaas_v0", trace="edge3", illegal="raise")
    seen, _ = env.reset(seed=0)
    env.step({a: int(loaded.policies[a].act(seen[a], deterministic=True).action) for a in seen})


def test_without_the_token_nobody_joins(two_nodes: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    environment = {**two_nodes.environment, "RAY_AUTH_TOKEN_PATH": str(wrong)}
    environment |= {"RAY_gcs_rpc_server_connect_timeout_s": "1"}
    code = f"import ray; ray.init(address={two_nodes.address!r}); print('joined')"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "joined" not in done.stdout
    assert "token" in done.stderr.lower()
    assert time.monotonic() - began < 90
