"""Post-mortems and rules of thumb of a run that was trained."""

from __future__ import annotations

from typing import Any

import pytest

import corral
from corral.data import Trace, make_trace
from corral.loads.advise.post_mortem import post_mortem
from corral.loads.advise.rule_of_thumb import rule_of_thumb
from corral.loads.replay import Replay, replay
from corral.trainers.evaluation.judge import run_players
from corral.trainers.runs.run import Run
from support.messages import refused

pytest.importorskip("torch", reason="training needs torch: corral[mappo]")
pytest.importorskip("sklearn", reason="a rule of thumb needs scikit-learn: corral[advise]")

LOAD = make_trace(nodes=3, days=10, step=3600, mean=30.0, seed=3)
HELD_OUT = (192, 240)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A clone of the overflow."""
    kwargs: dict[str, Any] = {"trace": LOAD, "route": "spare", "max_cycles": 24}
    return corral.clone(
        "dfaas_v0",
        "overflow/spare",
        env_kwargs=kwargs,
        out=tmp_path_factory.mktemp("runs") / "clone",
        held_out=HELD_OUT,
        episodes=4,
        steps=1_024,
        num_envs=16,
        n_steps=16,
        progress=False,
    )


@pytest.fixture(scope="module")
def result(run: Run) -> Replay:
    return judged(run, LOAD, rows=HELD_OUT)


def judged(run: Run, load: Trace, **settings: Any) -> Replay:
    return replay(
        load, {"overflow/spare": "overflow/spare", **run_players({"mine": run})}, **settings
    )


def test_a_run_is_taken_as_it_was_replayed(run: Run, result: Replay) -> None:
    for label in ("mine, greedy", "overflow/spare"):
        entry = run if label.startswith("mine") else None
        found = post_mortem(result, label, entry, day=1, rules=["overflow/spare"])
        assert found.cost.sum() == result.sums[label].cost[1]
    assert found.parts["play"].sum() == 0
    assert post_mortem(result, "mine, greedy", run, rules=["local"]).mode == "greedy"


def test_its_rule_of_thumb_is_fitted_on_what_it_was_trained_on(run: Run, result: Replay) -> None:
    found = rule_of_thumb(result, "mine, greedy", run)
    assert found.train == (0, 144)  # the days up to 192 validate
    assert not found.overlap
    assert len(found.trees) == 1  # one network plays all
    assert found.alike > 0.5
    assert abs(found.thumb.served - found.team.served) < 0.02
    assert found.rule == "overflow/spare"
    assert max(map(len, found.lines())) <= 80


def test_on_another_load_rows_are_asked_for(run: Run) -> None:
    other = make_trace(nodes=3, days=4, step=3600, mean=20.0, seed=4)
    kept = run.config.env_config.env_kwargs
    scales = {key: kept[key] for key in ("load_scale", "capacity_scale")}
    result = judged(run, other, **scales)
    with refused(ValueError, "train=(low, high)"):
        rule_of_thumb(result, "mine, greedy", run)
    found = rule_of_thumb(result, "mine, greedy", run, train=(0, 96))
    assert found.overlap
