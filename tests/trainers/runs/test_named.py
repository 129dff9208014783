"""RUN@best, RUN@latest, RUN@N, RUN@0: checkpoints by name, wherever a run is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

import corral
from corral.envs.core import Array
from corral.envs.policy import take_tree
from corral.errors import CheckpointError, RunError
from corral.trainers.base import Episode, Update
from corral.trainers.driver import resume
from corral.trainers.evaluation.judge import run_labels
from corral.trainers.runs.checkpoint import best_checkpoint
from corral.trainers.runs.log import Statistics
from corral.trainers.runs.run import Run, is_run, load_run
from support.command import within
from support.runs import ROLLOUT, PaidRules, observations, small_run

RULES = PaidRules()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates, each with a checkpoint that was kept."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = small_run(folder, updates=6, checkpoint_every=1, keep="all", seed=3)
    best = best_checkpoint(folder / "checkpoints")
    assert best is not None
    assert best.name != "step_000000000384"  # else the tests would prove little
    return run.folder


def plays(run: Run) -> Array:
    seen = observations(run)["node_0"]
    decision = run.policies["node_0"].act(seen, deterministic=True)
    found: Array = decision.extra["probabilities"]
    return found


def test_a_name_says_which_checkpoint(made: Path) -> None:
    best = best_checkpoint(made / "checkpoints")
    assert best is not None
    step = int(best.name.split("_")[1])
    found = {name: plays(load_run(f"{made}{name}")) for name in ("", "@latest", "@best", "@0")}
    kept = {number: plays(load_run(f"{made}@{number * ROLLOUT}")) for number in range(1, 7)}
    assert np.array_equal(found[""], found["@latest"])
    assert np.array_equal(found[""], kept[6])
    assert np.array_equal(found["@best"], kept[step // ROLLOUT])
    each = [found["@0"], *kept.values()]
    assert len({values.tobytes() for values in each}) == 7
    begun = load_run(made).begun().policies["node_0"]
    seen = observations(load_run(made))["node_0"]
    first = begun.act(seen, deterministic=True).extra["probabilities"]
    assert np.array_equal(found["@0"], first)


def test_a_run_knows_where_its_policies_come_from(made: Path) -> None:
    run = load_run(f"{made}@best")
    assert (run.folder, run.at, run.name) == (made, "best", f"{made}@best")
    assert f"<Run '{made}@best': sb3_ppo on dfaas_v0>" == repr(run)
    assert run.best_by is not None
    assert run.best_by["compared"] == "the learners' mean return over the first 8 episodes"
    team = run.progress["return_team"]
    assert run.best_by["value"] == pytest.approx(team.max())
    assert run.best_by["env_steps"] == run.progress["env_steps"][team.idxmax()]
    assert run.source() == (
        f"the checkpoint of {run.best_by['env_steps']} env steps, the best by the learners' mean "
        f"return over the first 8 episodes, {team.max():.4g}"
    )
    assert load_run(made).source() == "the checkpoint of 384 env steps"
    assert load_run(f"{made}@64").source() == "the checkpoint of 64 env steps"
    assert "before any update" in load_run(f"{made}@0").source()


def test_what_is_not_there_names_what_is(made: Path, tmp_path: Path) -> None:
    with refused(CheckpointError, 100, "@64", "@128", "@192", "@0", "--keep all"):
        load_run(f"{made}@100")
    for name in ("bset", "", "-1", "1e3", "６４"):
        with refused(RunError, f"{made}@{name}:", f"{made}@best", "@latest", "@0"):
            load_run(f"{made}@{name}")
    with refused(RunError, tmp_path / "none@best", "does not exist"):
        load_run(f"{tmp_path / 'none'}@best")
    few = small_run(tmp_path / "few", updates=1)  # no episode ends in its only update
    with refused(CheckpointError, "best", "@64", "@0"):
        load_run(f"{few.folder}@best")
    shutil.rmtree(few.folder / "checkpoints")
    assert load_run(f"{few.folder}@0").policies
    with refused(CheckpointError, 64, "@0") as caught:
        load_run(f"{few.folder}@64")
    assert "@64" not in str(caught.value)


def test_a_folder_whose_name_has_the_sign_goes_first(made: Path, tmp_path: Path) -> None:
    plain = Path(shutil.copytree(made, tmp_path / "a"))
    real = small_run(tmp_path / "a@best", updates=2, seed=5)
    assert load_run(f"{plain}@best").folder == real.folder
    assert load_run(f"{plain}@best").at is None
    assert load_run(f"{real.folder}@0").folder == real.folder
    assert is_run(f"{real.folder}@0")
    assert load_run(f"{plain}@64").folder == plain
    assert len(resume(real.folder, steps=3 * ROLLOUT, stretch=True).progress) == 3


# --- Keeping -------------------------------------------------------------------------------------


def steps_of(folder: Path) -> list[int]:
    return sorted(int(path.name[5:17]) for path in (folder / "checkpoints").glob("step_*"))


def test_all_are_kept_also_by_who_resumes(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=5, checkpoint_every=1, keep="all", anneal=False)
    assert steps_of(run.folder) == [64, 128, 192, 256, 320]
    resume(run.folder, steps=6 * ROLLOUT)
    assert steps_of(run.folder) == [64, 128, 192, 256, 320, 384]
    resume(run.folder, steps=7 * ROLLOUT, keep=1)
    left = steps_of(run.folder)
    assert left[-1] == 448
    assert len(left) <= 2  # the best besides
    with refused(ValueError, "keep=some", 1, "all"):
        small_run(tmp_path / "other", keep="some")


# --- The best ------------------------------------------------------------------------------------


def better(statistics: Statistics, *returns: dict[str, float]) -> list[bool]:
    found = []
    for at, own in enumerate(returns, start=1):
        statistics.row(Update(at, [Episode(own, 1, {})] * 100, {}, {}), 1, 1.0)
        found.append(statistics.improved())
    return found


def test_in_self_play_of_a_zero_sum_game_the_latest_is_best() -> None:
    rounds = [{"a": 1.0, "b": -1.0}, {"a": -2.0, "b": 2.0}, {"a": 0.0, "b": 0.0}]
    statistics = Statistics({"a": "x", "b": "x"}, self_play=True)
    assert better(statistics, *rounds) == [True, True, True]
    assert statistics.best_by is not None
    assert (statistics.best_by["env_steps"], statistics.best_by["value"]) == (3, None)
    assert "latest" in statistics.best_by["compared"]
    # So it is in games of others, of which nobody says so: of equal ones the latest is best.
    assert better(Statistics({"a": "x", "b": "x"}), *rounds) == [True, True, True]
    # Against an opponent, its own return says which is best.
    assert better(Statistics({"a": "x", "b": "r"}, {"b"}), *rounds) == [True, False, False]
    assert better(Statistics({"a": "x", "b": "r"}, {"a"}), *rounds) == [True, True, False]


@pytest.mark.parametrize(
    ("given", "latest"),
    [({}, True), ({"policies": "separate", "policies_to_train": ["player_0"]}, False)],
)
def test_runs_know_self_play(tmp_path: Path, given: dict[str, Any], latest: bool) -> None:
    small: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (8,)}
    run = corral.train(
        "rps_v0",
        trainer="mappo",
        steps=4 * ROLLOUT,
        env_kwargs={"rounds": 4},
        checkpoint_every=1,
        out=tmp_path / "run",
        **small,
        **given,
    )
    assert run.best_by is not None
    assert ("latest" in run.best_by["compared"]) == latest
    if latest:
        assert run.best_by["env_steps"] == 4 * ROLLOUT
    else:
        own = run.progress["return_player_0"]
        assert run.best_by["value"] == pytest.approx(own.max())


# --- Where runs are named ------------------------------------------------------------------------


def test_labels_name_the_checkpoint(made: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(made, tmp_path / "other"))
    names = [str(made), f"{made}@best", f"{made}@0", f"{made}@latest"]
    runs = [load_run(name) for name in names]
    assert list(run_labels(runs)) == ["sb3_ppo", "sb3_ppo@best", "sb3_ppo@0", "sb3_ppo@latest"]
    runs = [load_run(f"{made}@best"), load_run(other)]
    assert list(run_labels(runs)) == ["run@best", "other"]


def test_evaluations_of_a_checkpoint_have_a_place_of_their_own(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    corral.evaluate(run, references=[])
    before = (run / "results.json").read_bytes()
    found = corral.evaluate(f"{run}@best", beside=[run, f"{run}@0"], references=[])
    assert (run / "results.json").read_bytes() == before
    assert {row.policy for row in found} == {
        *(
            f"sb3_ppo{name}, {mode}"
            for name in ("", "@best", "@0")
            for mode in ("greedy", "sampled")
        ),
        "optimum",
    }
    kept = json.loads((run / "evaluation@best" / "results.json").read_text())
    assert {"sb3_ppo@best, greedy"} < {row["policy"] for row in kept["rows"]}
    assert "sb3_ppo@best" in (run / "evaluation@best" / "report.html").read_text()


def test_commands_take_them(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    printed = within("evaluate", f"{run}@best", "--policies", "local")
    shown(printed, "sb3_ppo@best, greedy", 256, run / "evaluation@best" / "report.html")
    assert "Replaced" not in printed
    assert not (run / "results.json").exists()
    again = within("evaluate", f"{run}@best", "--policies", "local")
    assert f"Replaced in {run}/evaluation@best: report.html, results.json" in again
    printed = within("evaluate", f"{run}@7", code=2)
    shown(printed, "@64", "@128")
    shown(within("watch", f"{run}@0", "--ansi", "--steps", "1"), "sb3_ppo", f"{run}@0")
    watched = within(
        "watch", run, "--policies", f"{run}@best", "--ansi", "--steps", "1", "--queue", 0
    )
    shown(watched, "sb3_ppo", f"{run}@best")
    shutil.copy(run / "trace.csv.gz", tmp_path / "loads.csv.gz")
    printed = within(
        *("replay", tmp_path / "loads.csv.gz", "--policies", f"local,{run}@best,{run}@0"),
        *("--out", tmp_path / "out"),
    )
    for label in ("sb3_ppo@best, greedy", "sb3_ppo@0, sampled", "local"):
        assert label in printed
    told = within("train", "--resume", f"{run}@best", "--steps", "640", code=2)
    shown(told, f"{run}@best", f"--init {run}@best")
    assert Path(run / "progress.csv").read_text().count("\n") == 7


def test_training_says_which_is_best(tmp_path: Path) -> None:
    printed = within(
        *("train", "rps_v0", "--trainer", "mappo", "--num-envs", 4, "--n-steps", 16, "--rounds", 4),
        *("--steps", 128, "--horizon", 256, "--keep", "all", "--checkpoint-every", 64),
        *("--out", tmp_path / "run"),
    )
    (told,) = (line for line in printed.splitlines() if "@best" in line)
    shown(told, 128)
    assert steps_of(tmp_path / "run") == [64, 128]
    config = load_run(tmp_path / "run").config
    assert (config.steps, config.horizon, config.keep) == (128, 256, "all")
    told = within("train", "--resume", tmp_path / "run", "--horizon", 300, code=2)
    shown(told, "--resume", "--horizon")
    within("train", "--resume", tmp_path / "run", "--steps", 320, "--stretch")
    assert load_run(tmp_path / "run").config.horizon == 320
    shown(within("train", "rps_v0", "--stretch", code=2), "--stretch", "--resume")
    shown(within("train", "rps_v0", "--keep", "few", code=2), "--keep few", 1, "all")


# --- What is given for a run ---------------------------------------------------------------------


def test_a_run_keeps_its_arguments(made: Path) -> None:
    for read in (load_run, resume, corral.evaluate):
        with refused(ValueError, "env_kwargs={'queue': 5}", made, "dfaas_v0"):
            read(made, env_kwargs={"queue": 5})
    with refused(ValueError, "env_kwargs={'queue': 5}", made, "dfaas_v0"):
        corral.evaluate(load_run(made), env_kwargs={"queue": 5})


def test_an_environment_with_other_arguments_is_not_evaluated_unsaid(made: Path) -> None:
    for read in (load_run, corral.evaluate):
        with refused(ValueError, "queue=5", made, "queue=0"):
            read(made, corral.make("dfaas_v0", queue=5))


def test_a_replay_takes_no_episodes(made: Path) -> None:
    for episodes in (3, 100):
        with refused(ValueError, f"episodes={episodes}", "window", "rows"):
            corral.evaluate(made, episodes=episodes)
    with refused(ValueError, "episodes=-1", 1):
        corral.evaluate(made, episodes=-1)


def test_a_bad_environment_is_no_damage(made: Path) -> None:
    thing = object()
    with refused(TypeError, repr(thing), "object"):
        corral.evaluate(made, thing)
    with refused(TypeError, repr(thing), "object"):
        corral.evaluate(load_run(made), thing)


def test_policies_say_what_they_take(made: Path, tmp_path: Path) -> None:
    run = load_run(made)
    with refused(KeyError, "'shared'", "node_0", "node_1", "node_2"):
        run.policies["shared"]
    seen = take_tree(observations(run)["node_0"], 0)
    policy = run.policies["node_0"]
    policy.predict(seen)  # type: ignore[attr-defined]
    short = {**seen, "observation": seen["observation"][1:]}
    for wrong, error, named in (
        (
            {"node_0": seen, "node_1": seen},
            TypeError,
            ("['node_0', 'node_1']", "observations['node_0']"),
        ),
        (seen["observation"], TypeError, ("observations['node_0']", "action_mask")),
        (short, ValueError, (seen["observation"].shape,)),
    ):
        with refused(error, *named):
            policy.predict(wrong)  # type: ignore[attr-defined]
    with refused(TypeError, "action_masks="):
        policy.predict(seen, action_masks=seen["action_mask"])  # type: ignore[attr-defined]


def test_a_file_is_no_folder(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.zip"
    file.write_text("a")
    with refused(NotADirectoryError, file):
        load_run(made).export("weights", file)
    with refused(RunError, file):
        small_run(file)
