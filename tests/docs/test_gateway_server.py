"""The server of docs/gateway.md answers as the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="trains networks")
pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")

from fastapi.testclient import TestClient

from corral.loads.serve.app import app_of
from corral.loads.serve.guard import REASONS
from corral.loads.serve.service import service_of
from corral.trainers.driver import train

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")


def test_requests_metrics_and_code_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    env_kwargs = {"arrivals": "unknown", "amount": "keep", "route": "least", "queue": 10}
    run = train("dfaas_v0", trainer="mappo", steps=2048, out="runs/team", env_kwargs=env_kwargs)
    service = service_of(run)
    assert " ".join(service.lines).replace("2,048", "4,096") in PAGE.replace("\n", " ")
    answers = []
    with TestClient(app_of(service)) as client:
        asked = re.findall(r"/decide -d '(.*?)'\n(\{.*?\})\n(?:```|\s)", PAGE, flags=re.DOTALL)
        for body, shown in asked:
            headers = {"Content-Type": "application/json"}
            found = client.post("/decide", content=body, headers=headers).json()
            answers.append((found, json.loads(shown)))
        assert client.get("/healthz").json()["status"] == "ok"
        metrics = client.get("/metrics").text
    (decided, shown), (refused, said) = answers
    assert decided.keys() == shown.keys()
    assert (decided["by"], decided["plan"].keys()) == ("team", shown["plan"].keys())
    for name, plan in shown["plan"].items():
        assert plan.keys() == decided["plan"][name].keys()
        assert (plan["route"], plan["caps"]) == ("least", None)
    assert refused == said
    for name in set(re.findall(r"`((?:corral|process)_\w+)", PAGE)) - {"corral_forwarded_total"}:
        assert f"\n{name}" in metrics, name
    assert "corral_forwarded_total" not in metrics
    for reason in REASONS:
        assert f"`{reason}`" in PAGE
    code = PAGE.partition("\n## The guard")[2].partition("```python\n")[2].partition("```")[0]
    capsys.readouterr()
    exec(compile(code, "docs/gateway.md", "exec"), {})
    printed = code.rpartition("# ")[2].strip()
    assert capsys.readouterr().out.startswith(printed)
    shadow = service_of(run, shadow="shadow.jsonl")
    asked_again = json.loads(asked[0][0])
    for _ in range(2):
        shadow.decide(asked_again["nodes"], asked_again["previous"])
    assert shadow.log is not None
    shadow.log.close()
    code = PAGE.partition("\n## Shadow mode")[2].partition("```python\n")[2]
    exec(compile(code.partition("```")[0], "docs/gateway.md", "exec"), {})
    assert capsys.readouterr().out
    line = " ".join(shadow.lines[0].replace("2,048", "4,096").split())
    assert line in PAGE.replace("\n", " ")
