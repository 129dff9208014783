"""``corral serve``: what it prints, a process that is killed and started again, mistakes."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")

from corral.trainers.driver import train
from corral.trainers.runs.run import Run
from support.command import ENVIRONMENT, within
from support.loads import small_trace

NODES = {name: {"arrivals": 6, "capacity": 4} for name in small_trace().nodes}
IDLE = {"arrivals": 0, "capacity": 4}
SMALL: dict[str, Any] = {"num_envs": 2, "n_steps": 16, "n_minibatches": 1, "n_epochs": 1}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Run:
    kwargs = {"trace": small_trace(), "max_cycles": 10}
    folder = tmp_path_factory.mktemp("team") / "run"
    return train("dfaas_v0", trainer="mappo", steps=32, out=folder, env_kwargs=kwargs, **SMALL)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A server in a process of its own, the port that it listens on, and what it said."""
    words = [sys.executable, "-m", "corral", "serve", str(folder), *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        said = ""
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if line.startswith("POST "):
                    break
            yield process, int(said.rpartition(":")[2].partition("/")[0]), said
        finally:
            process.kill()


def ask(port: int, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/decide", json.dumps(body))
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_server_that_is_killed_answers_as_before_when_it_is_back(team: Run) -> None:
    """A rule is served, which is there without the seconds that torch takes to be imported."""
    options, right = ["--rule", "overflow/capacity"], {"site-0": {"site-1": 1, "site-2": 1}}
    nodes = {**NODES, "site-1": IDLE, "site-2": IDLE}
    with serving(team.folder, "--port", "0", *options) as (process, port, said):
        assert said.startswith("The rule overflow/capacity decides.")
        assert said.endswith(f"POST http://127.0.0.1:{port}/decide\n")
        assert ask(port, {"nodes": nodes})["forward"]["site-0"] == right["site-0"]
        output = within("serve", team.folder, "--port", str(port), code=2)  # a second one
        said = f"port {port} of 127.0.0.1: Address already in use; --port takes another one"
        assert said in " ".join(output.split())
        with socket.socket() as other:  # it listens on loopback alone
            other.settimeout(2)
            with pytest.raises(OSError):
                other.connect(("127.0.0.2", port))
        process.send_signal(signal.SIGKILL)
    with serving(team.folder, "--port", str(port), *options) as (process, again, _):
        assert again == port
        assert ask(port, {"nodes": nodes})["forward"]["site-0"] == right["site-0"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)


def test_the_verdict_of_an_advice_is_served(tmp_path: Path) -> None:
    rule, nodes = {"rule": "overflow/capacity"}, {"nodes": list(NODES)}
    found = {"format": 1, "run": "rule", "rule": rule, "team": None, "trace": nodes}
    (tmp_path / "advice.json").write_text(json.dumps({**found, "settings": {}}))
    with serving(tmp_path, "--port", "0") as (_, port, said):
        assert said.startswith("The rule overflow/capacity decides: the verdict of ")
        asked = {**NODES, "site-1": IDLE, "site-2": IDLE}
        assert ask(port, {"nodes": asked})["forward"]["site-0"] == {"site-1": 1, "site-2": 1}


def test_a_rule_is_served_as_plans(team: Run) -> None:
    options = ["--rule", "backlog=0.5/least", "--arrivals", "unknown"]
    with serving(team.folder, "--port", "0", *options) as (_, port, said):
        assert said.startswith("The rule backlog=0.5/least decides.")
        assert "answers by plans" in said
        nodes = {name: {"last_arrivals": 6, "capacity": 4} for name in NODES}
        assert ask(port, {"nodes": nodes})["plan"]["site-0"]["keep"] == 4
        assert ask(port, {"nodes": NODES})["detail"][0]["field"].endswith("_arrivals")
    said = " ".join(within("serve", team.folder, "--arrivals", "unknown", code=2).split())
    assert "was trained with known arrivals; --rule serves a rule in its place" in said


@pytest.mark.slow  # torch is imported in a process of its own
def test_a_team_is_served(team: Run) -> None:
    with serving(team.folder, "--port", "0") as (_, port, said):
        assert f"The team of {team.folder} (checkpoint of 32 env steps) decides" in said
        assert ask(port, {"nodes": NODES})["forward"] == team.decide(NODES)


def test_what_is_no_run_of_servers_is_told(team: Run, tmp_path: Path) -> None:
    assert "name the folder of a run, as in: corral serve runs/NAME" in within("serve", code=2)
    assert "is no run" in within("serve", tmp_path, code=2)
    said = within("serve", "arena_v0", code=2)
    assert "corral train dfaas_v0 --trace loads.csv makes a run to serve" in " ".join(said.split())
    other = train("rps_v0", trainer="mappo", steps=32, out=tmp_path / "rps", **SMALL)
    said = " ".join(within("serve", other.folder, "--port", "0", code=2).split())
    assert "was trained in rps_v0: only runs of dfaas_v0 decide" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rule", "overflw"], "no reference policy named 'overflw'; did you mean 'overflow'?"),
        (["--rule", "random"], "random/equal: no rule to decide by"),
        (["--fallback", "overflow/nobody"], "no route named 'nobody'"),
        (["--margin", "-1"], "--margin -1.0: give a number, 0 or more"),
        (["--shadow", "/nowhere/log"], "No such file or directory: '/nowhere/log'"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid: no such address"),
        (["--port", "99999"], "--port 99999: give 1 to 65535, or 0 for a free one"),
    ],
)
def test_mistakes_are_told(team: Run, options: list[str], said: str) -> None:
    given = options if "--port" in options else ["--port", "0", *options]
    assert said in " ".join(within("serve", team.folder, *given, code=2).split())


def test_a_missing_extra_is_named(team: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = " ".join(within("serve", team.folder, code=2).split())
    assert "fastapi is needed to serve a run: pip install '.[serve]'" in said
