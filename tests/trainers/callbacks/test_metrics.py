"""Metrics of whole episodes: numbers by hand, exact resume, and what goes wrong in a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.envs.episode_stats import EpisodeRecord
from corral.errors import CallbackError, UnknownNameError
from corral.trainers.driver import resume, train
from support.loads import small_trace
from support.runs import ROLLOUT, everything, rows

SETTINGS: dict[str, dict[str, Any]] = {
    "mappo": {"n_minibatches": 1},
    "sb3_ppo": {"batch_size": 64},
}


def dfaas(folder: Path, trainer: str = "mappo", updates: int = 6, **given: Any) -> Any:
    """A run whose episodes of 30 steps do not end where rollouts of 16 do."""
    return train(
        "dfaas_v0",
        trainer=trainer,
        steps=updates * ROLLOUT,
        out=folder,
        env_kwargs={"trace": small_trace(), "max_cycles": 30},
        **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)},
        **SETTINGS[trainer],
        **given,
    )


def team(episode: EpisodeRecord) -> float:
    return float(episode.rewards.sum(dtype=np.float64))


def lost(episode: EpisodeRecord) -> float:
    return float(episode.info["lost"].sum())


def first_half(episode: EpisodeRecord) -> float:
    assert episode.length == 30
    assert episode.acted.all()
    assert episode.rewards.shape == episode.actions.shape == episode.info["lost"].shape == (30, 3)
    return float(episode.rewards[:15].sum(dtype=np.float64))


METRICS = {"team": team, "lost": lost, "first_half": first_half}


def floats(row: dict[str, str], name: str) -> list[float]:
    return [float(row[f"{name}_{what}"]) for what in ("mean", "min", "max")]


@pytest.mark.parametrize("trainer", SETTINGS)
def test_mean_min_and_max_are_those_of_the_episodes_of_an_update(
    tmp_path: Path, trainer: str
) -> None:
    seen: list[EpisodeRecord] = []

    def keep(episode: EpisodeRecord) -> int:
        seen.append(episode)
        return len(seen)

    run = dfaas(tmp_path / "run", trainer, metrics={**METRICS, "kept": keep})
    found = rows(run)
    assert [row["team_mean"] != "" for row in found] == [False, True, False, True, False, True]
    assert len(seen) == 12
    for k, row in enumerate(found[1::2]):
        own = seen[4 * k : 4 * k + 4]
        for name, function in METRICS.items():
            values = [function(episode) for episode in own]
            expected = [float(np.mean(values)), min(values), max(values)]
            assert floats(row, name) == pytest.approx(expected, rel=1e-12)
        assert floats(row, "kept") == [4 * k + 2.5, 4 * k + 1, 4 * k + 4]
    # The accounting that there was before says the same of all episodes so far.
    means = [team(episode) for episode in seen]
    assert float(found[-1]["return_team"]) == pytest.approx(np.mean(means), rel=1e-6)
    assert float(found[-1]["kpi_lost"]) == pytest.approx(np.mean([lost(e) for e in seen]))
    assert len({round(value, 6) for value in means}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("trainer", SETTINGS)
def test_a_run_that_goes_on_sees_the_same_episodes(tmp_path: Path, trainer: str) -> None:
    whole = dfaas(tmp_path / "whole", trainer, metrics=METRICS)
    run = dfaas(tmp_path / "run", trainer, updates=1, horizon=6 * ROLLOUT, metrics=METRICS)
    for updates in (3, 4, 6):
        resume(run.folder, steps=updates * ROLLOUT, metrics=METRICS)
    assert rows(run) == rows(whole)
    assert everything(run) == everything(whole)


def test_a_metric_that_comes_later_counts_from_the_next_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = dfaas(tmp_path / "whole", metrics=METRICS)
    run = dfaas(tmp_path / "run", updates=3, horizon=6 * ROLLOUT)
    assert "episodes.began" not in everything(run)
    capsys.readouterr()
    resume(run.folder, steps=6 * ROLLOUT, metrics=METRICS)
    shown(capsys.readouterr().err, "metrics")
    ended = [row["team_mean"] for row in rows(run)]
    assert ended == ["", "", "", "", "", rows(whole)[-1]["team_mean"]]
    resume(run.folder, steps=7 * ROLLOUT)  # and may go again
    assert rows(run)[-1]["team_mean"] == ""


def test_an_episode_may_be_left_out(tmp_path: Path) -> None:
    def odd(episode: EpisodeRecord) -> float | None:
        return 1.0 if episode.env % 2 else None

    run = dfaas(tmp_path / "run", updates=2, metrics={"odd": odd, "none": lambda episode: None})
    assert floats(rows(run)[-1], "odd") == [1.0, 1.0, 1.0]
    assert rows(run)[-1]["none_mean"] == ""


def test_histograms_go_to_tensorboard(tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra mappo"
    )
    run = dfaas(tmp_path / "run", updates=4, metrics=METRICS)
    events = accumulators.EventAccumulator(str(run.folder / "tensorboard"), {"histograms": 0})
    events.Reload()
    assert set(events.Tags()["histograms"]) == {f"metric/{name}" for name in METRICS}
    found = events.Histograms("metric/team")
    assert [event.step for event in found] == [128, 256]
    assert [event.histogram_value.num for event in found] == [4, 4]
    low, high = floats(rows(run)[-1], "team")[1:]
    assert found[-1].histogram_value.min == pytest.approx(low)
    assert found[-1].histogram_value.max == pytest.approx(high)
    assert "metric/team_mean" in events.Tags()["scalars"]


# --- Mistakes ------------------------------------------------------------------------------------


def wrong(episode: EpisodeRecord) -> float:
    return float(episode.info["blokked"].sum())


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (wrong, ("UnknownNameError", "'blokked'", "test_metrics.py")),
        (lambda episode: float("nan"), ("ValueError", "nan", "None")),
        (lambda episode: "much", ("TypeError", "'much'")),
        (lambda episode: episode.rewards, ("TypeError",)),
    ],
)
def test_a_metric_that_fails_is_named_and_the_run_goes_on_later(
    tmp_path: Path, function: Any, named: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    with refused(CallbackError, "bad", 2, 128, *named):
        dfaas(folder, updates=4, metrics={"bad": function}, checkpoint_every=10**6)
    assert len(rows(folder)) == 2
    resume(folder)
    whole = dfaas(tmp_path / "whole", updates=4)
    plain = [{k: v for k, v in row.items() if not k.startswith("bad_")} for row in rows(folder)]
    assert plain == rows(whole)
    assert everything(folder) == everything(whole)


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ([team], TypeError, ("metrics=[<function team",)),
        ({"a b": team}, ValueError, ("'a b'", "1", "60")),
        ({"a": 3}, TypeError, ("a=3",)),
        ({"a": "nowhere.py:f"}, UnknownNameError, ("nowhere.py",)),
    ],
)
def test_what_is_no_metric_is_refused_before_a_folder_is_made(
    tmp_path: Path, given: Any, error: type[Exception], named: tuple[object, ...]
) -> None:
    with refused(error, *named):
        dfaas(tmp_path / "run", metrics=given)
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_that_sees_no_whole_episodes_says_so(tmp_path: Path) -> None:
    with refused(ValueError, "metrics=['team']", "sb3_ppo", "vec_env='batch'"):
        dfaas(tmp_path / "run", "sb3_ppo", metrics={"team": team}, vec_env="supersuit")
