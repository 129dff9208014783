"""``corral.compare`` on small runs: what is scored, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("safetensors", reason="needs the extra mappo")

import corral
from corral.errors import RunError
from corral.lab.comparing import groups as grouping
from corral.lab.comparing.scores import SEED, scores_of
from corral.trainers.evaluation.judge import players
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.runs.run import ModeRecord, Run
from support.runs import small_run

Groups = dict[str, list[str]]


def trained(
    folder: Path, trainer: str, env: str = "two_step_v0", *, updates: int = 3, seed: int = 0
) -> Run:
    """A run of a few updates of 64 env steps."""
    small: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}
    return corral.train(env, trainer=trainer, steps=64 * updates, seed=seed, out=folder, **small)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Groups:
    """Two runs each of mappo and ippo on two_step_v0."""
    place = tmp_path_factory.mktemp("runs")
    found: Groups = {"mappo": [], "ippo": []}
    for trainer, folders in found.items():
        for seed in range(2):
            folder = place / f"{trainer}-seed{seed}"
            trained(folder, trainer, seed=seed)
            folders.append(str(folder))
    return found


def test_a_score_is_the_greedy_return_on_a_seed_of_its_own(groups: Groups, tmp_path: Path) -> None:
    found = corral.compare(groups, episodes=8, out=tmp_path / "out")
    assert isinstance(found, corral.Comparison)
    run = corral.load_run(groups["ippo"][1])
    rules = run.config.env_config.rules()
    alone = evaluate_team(rules, players(run)[0], episodes=8, seed=SEED)
    assert found.groups["ippo"][1].score == alone.return_team
    assert found.groups["ippo"][1].seed == 1
    assert found.groups["ippo"][1].env_steps == 3 * 64
    assert found.pairs[0].found == "too few seeds"
    shown(" ".join(found.notes), 5)
    data = json.loads((tmp_path / "out" / "marl_eval.json").read_text())
    steps = data["corral"]["two_step_v0"]["mappo"]["seed_0"]
    returns = corral.load_run(groups["mappo"][0]).progress["return_team"].dropna()
    last = max((key for key in steps if key.startswith("step_")), key=lambda k: int(k[5:]))
    assert steps[last]["return"][0] == pytest.approx(returns.iloc[-1] / 2)  # the mean of two agents


def test_runs_without_groups_are_refused_with_a_call_that_works() -> None:
    with refused(TypeError, "corral.compare({"):
        corral.compare(["runs/a", "runs/b"])


def test_a_run_is_scored_in_its_mode(groups: Groups, tmp_path: Path) -> None:
    folder = shutil.copytree(groups["ippo"][0], tmp_path / "run")
    ModeRecord("sampled", 0.0, 1.0, 12).write(folder)
    runs = {"greedy": corral.load_run(groups["ippo"][0]), "sampled": corral.load_run(folder)}
    rules = runs["greedy"].config.env_config.rules()
    expected = {}
    for mode, run in runs.items():
        player = Player(run.policies, deterministic=mode == "greedy")
        expected[mode] = evaluate_team(rules, player, episodes=8, seed=SEED).return_team
    assert scores_of(runs, episodes=8)[1] == expected
    assert expected["greedy"] != expected["sampled"]


def test_files_stand_beside_by_the_mean_over_agents(groups: Groups, tmp_path: Path) -> None:
    own = corral.compare(groups, episodes=8, out=tmp_path)
    given: dict[str, Any] = {"mappo": groups["mappo"], "file": tmp_path / "marl_eval.json"}
    found = corral.compare(given, episodes=8)
    assert [*found.groups] == ["mappo", "file-mappo", "file-ippo"]
    assert [run.score for run in found.groups["mappo"]] == [
        run.score / 2 for run in own.groups["mappo"]
    ]
    shown(" ".join(found.notes), "corral/two_step_v0", 192)
    with refused(ValueError, "x"):
        corral.compare({"x": [groups["mappo"][0], tmp_path / "marl_eval.json"]})
    with refused(ValueError, "group"):
        corral.compare({"x": [tmp_path / "marl_eval.json"]})


def test_what_cannot_be_compared(groups: Groups, tmp_path: Path) -> None:
    first, second = groups["mappo"]
    other = groups["ippo"][0]
    wrong: list[tuple[Any, type[Exception], Any]] = [
        ({"a": [first], "b": [first, other]}, ValueError, first),
        ({"a": [first], "b": []}, ValueError, "b"),
        ({"a": [first, second]}, ValueError, "group"),
        ({"a": [first], "b": ["nix-*"]}, RunError, "nix-*"),
        ({"a": [first], "b": [str(tmp_path)]}, RunError, tmp_path),
    ]
    for given, kind, named in wrong:
        with refused(kind, named):
            corral.compare(given)
    far = trained(tmp_path / "far", "mappo", seed=SEED + 3, updates=1)
    with refused(ValueError, "seed=3", 10003, far.folder):
        corral.compare({"a": [first], "b": [far]}, seed=3, unequal_steps=True)


def test_runs_of_other_games_arguments_rows_and_steps(groups: Groups, tmp_path: Path) -> None:
    first = groups["mappo"][0]
    longer = trained(tmp_path / "longer", "mappo", updates=5)
    with refused(ValueError, first, 192, longer.folder, 320, "--unequal-steps"):
        corral.compare({"a": [first], "b": [longer]})
    found = corral.compare({"a": [first], "b": [longer]}, unequal_steps=True, episodes=2)
    assert found.notes[0].startswith("Env steps are unequal")
    plain = small_run(tmp_path / "plain")
    queue = small_run(tmp_path / "queue", env_kwargs={"queue": 7})
    rows = small_run(tmp_path / "rows", held_out=0.5)
    for other, named in (
        (plain, ("two_step_v0", "dfaas_v0")),
        (queue, ("queue", 0, 7)),
        (rows, ("rows", "(0, 28)", "(0, 20)")),
    ):
        with refused(ValueError, *named):
            corral.compare({"a": [first if other is plain else plain], "b": [other]})


def test_a_load_is_replayed_on_held_out_rows(tmp_path: Path) -> None:
    runs = [small_run(tmp_path / f"run{seed}", seed=seed) for seed in range(2)]
    found = corral.compare({"a": runs[:1], "b": runs[1:]})
    low, high = runs[0].config.env_config.held_out["rows"]
    assert found.metric == f"share of the optimum's gain, rows {low} to {high}"
    judged = corral.evaluate(runs[1], out=tmp_path / "judged")
    [row] = [row for row in judged if row.mode == "greedy"]
    assert found.groups["b"][0].score == row.share_of_optimum
    assert not (runs[0].folder / "results.json").exists()  # runs stay as they are


def test_unfinished_runs_are_named(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    is_done = grouping.is_finished
    left = Path(groups["ippo"][1])
    monkeypatch.setattr(grouping, "is_finished", lambda f: f != left and is_done(f))
    with refused(RunError, left, f"corral train --resume {left}", "--unfinished"):
        corral.compare(groups)
    found = corral.compare(groups, unfinished=True, episodes=2)
    shown(found.notes[0], left)


def test_checkpoints_and_logs_beside_runs(groups: Groups, tmp_path: Path) -> None:
    first = tmp_path / "mappo-seed0"
    shutil.copytree(groups["mappo"][0], first)
    log = tmp_path / "mappo-seed0.log"
    log.write_text("what it printed")
    given = {"mappo": [f"{first}@latest", str(log)], "ippo": groups["ippo"]}
    found = corral.compare(given, episodes=2)
    assert [run.name for run in found.groups["mappo"]] == [f"{first}@latest"]


def test_a_zero_sum_game_is_scored_against_reference_players(tmp_path: Path) -> None:
    runs = [
        trained(tmp_path / f"run{seed}", "mappo", "rps_v0", seed=seed, updates=1)
        for seed in range(2)
    ]
    found = corral.compare({"a": runs[:1], "b": runs[1:]}, episodes=4)
    assert found.metric == "return against reference players, 4 episodes each"
    assert found.curves.empty  # the sum of both is the same whatever they play


CLASS = """
import gymnasium
import numpy as np


class Climb(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at, self.cycle = 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at, self.cycle = self.at + int(action), self.cycle + 1
        return np.full(1, self.at, np.float32), float(action), False, self.cycle == 8, {}
"""


def test_an_environment_of_others_is_named_again(tmp_path: Path) -> None:
    """Whether a run is finished does not depend on the environment's being found."""
    env = f"{tmp_path / 'climb.py'}:Climb"
    (tmp_path / "climb.py").write_text(CLASS)
    names = ("mappo", "ippo")
    given = {name: [str(trained(tmp_path / name, name, env, updates=2).folder)] for name in names}
    found = corral.compare(given, env, episodes=2)
    assert found.pairs[0].found == "too few seeds"
    progress = Path(given["ippo"][0]) / "progress.csv"
    progress.write_text("".join(progress.read_text().splitlines(keepends=True)[:-1]))
    with refused(RunError, f"corral train --resume {tmp_path / 'ippo'} --env {env}"):
        corral.compare(given, env, episodes=2)
