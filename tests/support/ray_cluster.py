"""A Ray cluster of two nodes on this machine: loopback addresses alone, with a token."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

LOOPBACK = "127.0.0.1"
START = (
    "from ray._private import ray_constants, services; from ray.scripts.scripts import main; "
    "ray_constants.ENABLE_RAY_CLUSTER = True; "  # a second node, all the same
    "services.get_node_ip_address = lambda address=None: '127.0.0.1'; main()"
)
"""``ray`` that keeps to the loopback interface."""
STORE = 100 * 2**20
"""Bytes of shared memory per node."""


class Cluster:
    """A head and a second node, each ``ray start --block`` with one core."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        self.port, self.dashboard = _free_port(), _free_port()
        self.address = f"{LOOPBACK}:{self.port}"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            # As on systems where Ray keeps to the loopback interface. Elsewhere it takes 127.0.0.1
            # for a mistake, and listens on the machine's own address.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_health_check_period_ms": "1000",  # notice soon that a node is gone
            "RAY_health_check_failure_threshold": "3",
            "RAY_worker_niceness": "0",  # 15 by itself: on a busy machine they would starve
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        self.seen: dict[int, psutil.Process] = {}  # all processes that belonged to it
        self.head = self._start(
            "--head",
            f"--port={self.port}",
            "--include-dashboard=true",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard}",
            f"--temp-dir={folder / 'ray'}",
        )
        wait_for(lambda: _answers(self.port), 60, "the head does not answer")
        self.second = self._start(f"--address={self.address}")

    def _start(self, *arguments: str) -> psutil.Process:
        log = (self.folder / f"node{len(self.seen)}.log").open("w")
        command = [
            sys.executable,
            "-c",
            START,
            "start",
            "--block",
            f"--node-ip-address={LOOPBACK}",
            "--num-cpus=1",
        ]
        started = subprocess.Popen(
            [*command, f"--object-store-memory={STORE}", *arguments],
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        node = psutil.Process(started.pid)
        self.seen[node.pid] = node
        return node

    def processes(self, node: psutil.Process) -> list[psutil.Process]:
        """The node's own, down to its workers."""
        try:
            found = [node, *node.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self.seen |= {process.pid: process for process in found}
        return found

    def listening(self) -> set[str]:
        """The addresses on which anything of the cluster listens."""
        found = set()
        for process in [*self.processes(self.head), *self.processes(self.second)]:
            with contextlib.suppress(psutil.Error):
                for each in process.net_connections("inet"):
                    if each.status == psutil.CONN_LISTEN:
                        found.add(each.laddr.ip.removeprefix("::ffff:"))
        return found

    def runners(self, node: psutil.Process) -> list[psutil.Process]:
        """RLlib's env runners on a node."""
        return [process for process in self.processes(node) if "EnvRunner" in title(process)]

    def kill(self, processes: list[psutil.Process]) -> None:
        """With SIGKILL, all of them at once."""
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def left_over(self) -> list[str]:
        """Those that ever belonged to the cluster and still run."""
        running = []
        for process in self.seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(title(process))
        return running

    def close(self) -> None:
        """End both nodes: politely, then not."""
        nodes = (self.second, self.head)
        for node in nodes:
            self.processes(node)
            with contextlib.suppress(psutil.NoSuchProcess):
                node.terminate()
        psutil.wait_procs(list(nodes), timeout=15)
        self.kill(list(self.seen.values()))
        psutil.wait_procs(list(self.seen.values()), timeout=15)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))  # Unix sockets have short names
    started = Cluster(folder)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


def title(process: psutil.Process) -> str:
    """What a process calls itself; "" where it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_for(condition: Callable[[], Any], seconds: float, otherwise: str) -> Any:
    """What ``condition`` gives once it gives something; AssertionError after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{otherwise}, after {seconds:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
