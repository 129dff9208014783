"""``corral serve``: what it prints, a process that is killed and started again, mistakes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.messages import shown

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


@pytest.fixture
def advice(tmp_path: Path) -> Path:
    """A verdict for a rule, which is served without torch."""
    rule, nodes = {"rule": "overflow/capacity"}, {"nodes": list(NODES)}
    found = {"format": 1, "run": "rule", "rule": rule, "team": None, "trace": nodes}
    (tmp_path / "advice.json").write_text(json.dumps({**found, "settings": {}}))
    return tmp_path


def ask(port: int, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/decide", json.dumps(body), {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


@pytest.mark.slow
def test_a_server_that_is_killed_answers_as_before_when_it_is_back(team: Run) -> None:
    """A rule is served, which is there without the seconds that torch takes to be imported."""
    options, right = ["--rule", "overflow/capacity"], {"site-0": {"site-1": 1, "site-2": 1}}
    nodes = {**NODES, "site-1": IDLE, "site-2": IDLE}
    with serving(team.folder, "--port", "0", *options) as (process, port, said):
        assert said.startswith("The rule overflow/capacity decides.")
        assert said.endswith(f"POST http://127.0.0.1:{port}/decide\n")
        assert ask(port, {"nodes": nodes})["forward"]["site-0"] == right["site-0"]
        output = within("serve", team.folder, "--port", str(port), code=2)  # a second one
        said = f"port {port} of 127.0.0.1: Address already in use; pass another --port"
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
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_the_verdict_of_an_advice_is_served(advice: Path) -> None:
    with serving(advice, "--port", "0") as (_, port, said):
        assert said.startswith("The rule overflow/capacity decides: the verdict of ")
        asked = {**NODES, "site-1": IDLE, "site-2": IDLE}
        assert ask(port, {"nodes": asked})["forward"]["site-0"] == {"site-1": 1, "site-2": 1}


def raw(port: int, request: bytes, *, end: bool = False) -> bytes:
    """What a server answers to these bytes; ``end``: no more of them follow."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while b"\r\n\r\n" not in answer and (part := connection.recv(65536)):
            answer += part
    return answer


def status_of(port: int, head: str, body: bytes, **options: bool) -> str:
    """The status that a post is answered by; ``head`` has its headers, one a line."""
    lines = ["POST /decide HTTP/1.1", *head.split("\n"), f"Content-Length: {len(body)}", "", ""]
    return raw(port, "\r\n".join(lines).encode() + body, **options)[9:12].decode()


OWN = "Host: localhost\nContent-Type: application/json"
BODY = json.dumps({"nodes": NODES}).encode()
TWICE = BODY[:-2] + b',"site-2":{"arrivals":0,"capacity":4}}}'


def test_who_may_ask_and_how(advice: Path) -> None:
    options = ["--allow-host", "gateway.internal", "--allow-origin", "https://ops.example.com"]
    with serving(advice, "--port", "0", *options) as (_, port, _):
        for head, status in (
            (OWN, "200"),
            (OWN.replace("localhost", f"127.0.0.1:{port}"), "200"),
            (OWN.replace("localhost", "[::1]:80"), "200"),
            (OWN.replace("localhost", "Gateway.Internal:8000"), "200"),
            (OWN.replace("localhost", "rebound.example.com"), "421"),
            (OWN.replace("localhost", "localhost.example.com"), "421"),
            (OWN.replace("localhost", "127.0.0.2"), "421"),
            (OWN.replace("localhost", "localhost@example.com"), "400"),
            (f"Host: rebound.example.com\n{OWN}", "400"),
            ("Content-Type: application/json", "400"),
            (f"Origin: https://ops.example.com\n{OWN}", "200"),
            (f"Origin: http://localhost\n{OWN}", "200"),  # a page of its own
            (f"Origin: http://localhost:3000\n{OWN}", "403"),
            (f"Origin: https://evil.example.com\n{OWN}", "403"),
            (f"Origin: null\n{OWN}", "403"),
            (OWN + "; charset=utf-8", "200"),
            ("Host: localhost", "415"),
            ("Host: localhost\nContent-Type: text/plain", "415"),
            ("Host: localhost\nContent-Type: application/x-www-form-urlencoded", "415"),
        ):
            assert (head, status_of(port, head, BODY)) == (head, status)
        health = b"GET /healthz HTTP/1.1\r\nHost: rebound.example.com\r\n\r\n"
        assert raw(port, health)[9:12] == b"421"
        metrics = counts(port)
        assert metrics['corral_limited_total{limit="host"}'] == 7
        assert metrics['corral_limited_total{limit="origin"}'] == 3
        assert metrics['corral_limited_total{limit="content_type"}'] == 3
        assert metrics['corral_refused_total{status="421"}'] == 4
        assert metrics['corral_decisions_total{by="rule"}'] == 7


def counts(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    pairs = (line.rpartition(" ") for line in lines if line[:1] != "#")
    return {name: float(value) for name, _, value in pairs}


def test_cut_bodies_and_keys_that_stand_twice_are_refused(advice: Path) -> None:
    with serving(advice, "--port", "0") as (_, port, _):
        assert status_of(port, OWN, TWICE) == "422"
        half = f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:40]
        head = f"POST /decide HTTP/1.1\r\n{OWN}\r\n".replace("\nC", "\r\nC").encode()
        assert raw(port, head + half, end=True)[9:12] == b"400"
        # A whole request, whose last chunk never comes.
        chunk = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY)
        assert raw(port, head + chunk, end=True)[9:12] == b"400"
        metrics = counts(port)
        assert metrics['corral_decisions_total{by="rule"}'] == 0
        assert metrics['corral_limited_total{limit="cut"}'] == 2


@pytest.mark.slow
def test_only_names_of_the_run_are_served_unless_it_is_told_otherwise(advice: Path) -> None:
    asked = {"nodes": {**NODES, "new": IDLE}}
    with serving(advice, "--port", "0") as (_, port, _):
        assert [fault["field"] for fault in ask(port, asked)["detail"]] == ["nodes.new"]
        some = {"nodes": {"site-0": NODES["site-0"]}}  # the others are down
        assert ask(port, some)["reason"] == "nodes"
    with serving(advice, "--port", "0", "--nodes", "other,new") as (_, port, _):
        assert ask(port, asked)["detail"] == "unknown: new"
        assert "detail" in ask(port, {"nodes": {**NODES, "newer": IDLE}})
    with serving(advice, "--port", "0", "--nodes", "any") as (_, port, _):
        assert ask(port, {"nodes": {"a": IDLE, "b": IDLE}})["forward"] == {"a": {}, "b": {}}


@pytest.mark.slow
def test_names_that_change_do_not_fill_the_memory(advice: Path) -> None:
    """66 requests with a thousand new names each took 2 GB."""
    psutil = pytest.importorskip("psutil")
    with serving(advice, "--port", "0", "--nodes", "any") as (process, port, _):
        ask(port, {"nodes": {f"first-{i}": IDLE for i in range(1000)}})
        before = psutil.Process(process.pid).memory_info().rss
        for k in range(66):
            found = ask(port, {"nodes": {f"{k}-{i}": IDLE for i in range(1000)}})
            assert len(found["forward"]) == 1000
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert grown < 50e6


def test_it_ends_soon_after_sigterm(advice: Path) -> None:
    """Also with connections that are idle, slow at their headers, a body, or an answer."""
    with serving(advice, "--port", "0", "--nodes", "any") as (process, port, _):
        many = json.dumps({"nodes": {f"n-{i}": IDLE for i in range(1000)}}).encode()
        length = f"Content-Length: {len(many)}\r\n\r\n"
        head = f"POST /decide HTTP/1.1\r\n{OWN}\r\n{length}".replace("\nC", "\r\nC").encode()
        begun = [b"", b"GET /healthz HT", head, head + many[:900], head + many, head + many]
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in begun]
        for client, part in zip(clients, begun, strict=True):
            client.sendall(part)
        assert ask(port, {"nodes": NODES})["by"] == "rule"
        process.send_signal(signal.SIGTERM)
        # A second on a machine with time for it; an idle connection would keep it for 15 minutes.
        assert process.wait(60) in (0, -signal.SIGTERM)
        for client in clients:
            client.close()


def test_a_rule_is_served_as_plans(team: Run) -> None:
    options = ["--rule", "backlog=0.5/least", "--arrivals", "unknown"]
    with serving(team.folder, "--port", "0", *options) as (_, port, said):
        shown(said, "backlog=0.5/least", "plans")
        nodes = {name: {"last_arrivals": 6, "capacity": 4} for name in NODES}
        assert ask(port, {"nodes": nodes})["plan"]["site-0"]["keep"] == 4
        assert ask(port, {"nodes": NODES})["detail"][0]["field"].endswith("_arrivals")
    said = " ".join(within("serve", team.folder, "--arrivals", "unknown", code=2).split())
    shown(said, "--rule")


@pytest.mark.slow  # torch is imported in a process of its own
def test_a_team_is_served(team: Run) -> None:
    with serving(team.folder, "--port", "0") as (_, port, said):
        assert f"The team of {team.folder} (checkpoint of 32 env steps) decides" in said
        assert ask(port, {"nodes": NODES})["forward"] == team.decide(NODES)


def test_what_is_no_run_of_servers_is_told(team: Run, tmp_path: Path) -> None:
    shown(within("serve", code=2), "corral serve runs/NAME")
    shown(within("serve", tmp_path, code=2).replace("\n", ""), tmp_path)
    said = within("serve", "arena_v0", code=2)
    shown(" ".join(said.split()), "corral train dfaas_v0 --trace loads.csv")
    other = train("rps_v0", trainer="mappo", steps=32, out=tmp_path / "rps", **SMALL)
    said = " ".join(within("serve", other.folder, "--port", "0", code=2).split())
    shown(said, "rps_v0", "dfaas_v0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rule", "overflw"], "no reference policy named 'overflw'; did you mean 'overflow'?"),
        (["--rule", "random"], "random/equal: not a rule for decisions"),
        (["--fallback", "overflow/nobody"], "no route named 'nobody'"),
        (["--nodes", "a,,b"], "--nodes ['a', '', 'b']: pass \"run\", \"any\", or a list of names"),
        (["--allow-host", "http://a"], "--allow-host 'http://a': pass a name or an address"),
        (["--allow-origin", "a.example"], "--allow-origin 'a.example': pass scheme and host"),
        (["--margin", "-1"], "--margin -1.0: pass a number, 0 or more"),
        (["--shadow", "/nowhere/log"], "No such file or directory: '/nowhere/log'"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid: unknown address"),
        (["--port", "99999"], "--port 99999: pass 1 to 65535, or 0 for a free port"),
    ],
)
def test_mistakes_are_told(team: Run, options: list[str], said: str) -> None:
    given = options if "--port" in options else ["--port", "0", *options]
    assert said in " ".join(within("serve", team.folder, *given, code=2).split())


@pytest.mark.parametrize("kind", ["pipe", "read", "device", "folder"])
def test_a_shadow_writes_to_regular_files_alone(team: Run, tmp_path: Path, kind: str) -> None:
    """It waited for a reader of a pipe for good."""
    place = {"device": Path("/dev/null"), "folder": tmp_path}.get(kind, tmp_path / "pipe")
    reader = None
    if place.name == "pipe":
        os.mkfifo(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK) if kind == "read" else None
    said = within("serve", team.folder, "--port", "0", "--shadow", place, code=2)
    assert str(place) in said.replace("\n", "")
    if reader is not None:
        os.close(reader)


def test_a_missing_extra_is_named(team: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = " ".join(within("serve", team.folder, code=2).split())
    shown(said, "fastapi", "pip install '.[serve]'")
