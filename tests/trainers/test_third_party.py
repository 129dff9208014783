"""Third-party environments through the trainers' front door: train, evaluate, resume."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import zoo_rules
from corral.adapters.seats import random_policy
from corral.envs.batch import batch_for
from corral.envs.registry import make_rules
from corral.errors import UnsupportedSpaceError
from corral.trainers.evaluation.scores import TeamScore, evaluate_players, evaluate_team
from corral.trainers.runs.run import Run, load_run
from support.zoo_envs import MixedEnv, RingEnv

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "net_arch": (16,), "n_epochs": 2}


def train_small(rules: Any, out: Path, updates: int = 3, **given: Any) -> Run:
    steps = updates * 4 * 16
    return corral.train(
        rules, trainer="mappo", policies="separate", steps=steps, out=out, **SMALL, **given
    )


@pytest.mark.parametrize("make_env", [MixedEnv, RingEnv])
def test_a_third_party_environment_is_trained_and_judged(tmp_path: Path, make_env: Any) -> None:
    run = train_small(zoo_rules(make_env), tmp_path / "run")
    assert run.progress["env_steps"].tolist() == [64, 128, 192]
    again = load_run(tmp_path / "run", zoo_rules(make_env))
    scores = corral.evaluate(again, episodes=6)
    assert scores.to_dataframe()["policy"].tolist() == [s.policy for s in scores]
    assert [(s.policy, s.episodes, s.illegal_actions) for s in scores] == [
        ("mappo, greedy", 6, 0),
        ("mappo, sampled", 6, 0),
        ("random", 6, 0),
    ]
    assert len({s.return_team for s in scores}) == 3
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert [row["return_team"] for row in rows] == [s.return_team for s in scores]


def test_episodes_begin_anew_when_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = zoo_rules(RingEnv)
    run = train_small(rules, tmp_path / "run", updates=2)
    corral.resume(run.folder, steps=4 * 64, rules=rules)
    assert "begin new episodes" in capsys.readouterr().err
    assert run.progress["env_steps"].tolist() == [64, 128, 192, 256]


def test_worker_processes_give_the_same_weights(tmp_path: Path) -> None:
    made = functools.partial(RingEnv)
    runs = [
        train_small(zoo_rules(made), tmp_path / str(workers), updates=2, workers=workers)
        for workers in (0, 2)
    ]
    one, other = (run.progress.drop(columns=[c for c in run.progress if "_s" in c]) for run in runs)
    kept = [c for c in one if not c.startswith("share")]
    assert one[kept].equals(other[kept])


def test_workers_are_refused_where_they_are_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"workers=2: two_step_v0 steps all copies at once"):
        corral.train("two_step_v0", trainer="mappo", out=tmp_path / "run", workers=2)


def test_the_trainers_over_sb3_say_that_they_cannot(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSpaceError):
        corral.train(zoo_rules(MixedEnv), trainer="sb3_ppo", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_random_play_is_within_every_space() -> None:
    rules = zoo_rules(MixedEnv)
    team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    score = evaluate_team(rules, team, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    again = evaluate_team(rules, team, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    assert score == again
    added = evaluate_players(rules, {}, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    assert isinstance(added[0], TeamScore)
    assert added[0].returns == score.returns


def test_a_batch_for_what_is_given() -> None:
    ours = batch_for(make_rules("two_step_v0"), 3, 0)
    assert type(ours).__name__ == "Batch"
    theirs = batch_for(zoo_rules(RingEnv, max_cycles=5), 3, 0)
    theirs.reset()
    lengths = []
    rng = np.random.default_rng(0)
    for _ in range(12):
        step = theirs.step(theirs.sample_actions(rng))
        if step.finished is not None:
            lengths += step.finished.lengths.tolist()
    assert lengths
    assert max(lengths) <= 5
    theirs.close()
