"""Differences and mixtures of real configurations, scripts, wrappers, and what is not executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral import algorithms as alg
from corral.errors import ArgumentError, ConfigError, ModelNeededError, UnknownNameError
from corral.lab.bisect.reading import MixedScripts, Named, Script, side_of
from corral.lab.bisect.sides import Pair, stock_of
from corral.lab.bisect.training import FAILED, MixedConfigs
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run_config import RunConfig
from support.messages import refused
from support.own_networks import made_of

SMALL: dict[str, Any] = {
    **{"env": "probe_p04_v0", "steps": 64, "preset": "none"},
    **{"num_envs": 4, "n_steps": 8},
}


def config(**changes: Any) -> RunConfig:
    found = side_of({**SMALL, **changes}, Named())
    assert isinstance(found, RunConfig)
    return found


def parts(pair: Pair) -> set[str]:
    return {str(difference) for difference in pair.differences}


def flat(net: Any, obs: Any) -> Any:
    return net.layer(net.join(obs))


def no_advantages(trajectories: Any, settings: Any) -> alg.Advantages:
    estimate = alg.gae(trajectories, settings)
    return alg.Advantages(np.zeros_like(estimate.advantage), estimate.value_target)


class Changed(MAPPO):
    """A trainer class of a user."""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gamma": 0.5, "seed": 3}, {"setting gamma"}),
        ({"trainer": alg.mappo.but(name="x", advantages=no_advantages)}, {"algorithm advantages"}),
        ({"trainer": "ippo"}, {"algorithm critic_input", "algorithm Settings"}),
        ({"trainer": Changed}, {"trainer class"}),
        (
            {
                "policies_to_train": ["second"],
                "policies": {"agent_0": "first", "agent_1": "second"},
            },
            {"policies sharing", "policies trained"},
        ),
        ({"env_kwargs": {"max_cycles": 1}}, set()),
        ({"steps": 128}, {"length steps"}),
        ({"horizon": 128}, {"length annealed share"}),
        ({"env": "probe_p05_v0"}, {"environment"}),
    ],
)
def test_differences_are_listed_and_mixed(changes: dict[str, Any], expected: set[str]) -> None:
    if "env_kwargs" in changes:
        changes, expected = (
            {"env": "arena_v0", "env_kwargs": {"max_cycles": 7}},
            {"argument max_cycles"},
        )
        good = config(env="arena_v0")
    else:
        good = config()
    bad = config(**changes)
    pair = Pair(good, bad)
    assert parts(pair) == expected
    assert Pair(good, pair.mixed(())).differences == ()
    assert parts(Pair(bad, pair.mixed(pair.differences))) == set()
    for difference in pair.differences:
        assert difference.good != difference.bad


def test_a_run_and_its_arguments_are_equal(tmp_path: Path) -> None:
    run = corral.train(**SMALL, out=tmp_path / "run", progress=False)
    loaded = side_of(run.folder, Named())
    assert isinstance(loaded, RunConfig)
    assert parts(Pair(config(), loaded)) == set()
    assert parts(Pair(stock_of(loaded), loaded)) == {"setting num_envs", "setting n_steps"}


def test_fields_of_records_are_mixed_one_by_one() -> None:
    record = alg.a2c.but(name="mine", advantages=no_advantages)
    good, bad = config(), config(trainer=record, gamma=0.9)
    pair = Pair(good, bad)
    assert {"algorithm loss", "algorithm advantages", "setting gamma"} <= parts(pair)
    loss = [d for d in pair.differences if str(d) == "algorithm loss"]
    mixed: Any = pair.mixed(loss).trainer_class()
    assert mixed.algorithm.loss is alg.a2c.loss
    assert mixed.algorithm.advantages is alg.mappo.advantages
    assert "n_epochs" in pair.mixed(loss).settings
    settings = [d for d in pair.differences if str(d) == "algorithm Settings"]
    assert "n_epochs" not in pair.mixed(settings).settings


def test_mixtures_are_trained_and_scored() -> None:
    mixed = MixedConfigs(config(), config(learning_rate=1e-9, model=made_of(flat)), 64)
    assert {str(each) for each in mixed.differences} >= {"setting learning_rate", "network"}
    scores = [mixed.score(each, 0) for each in ((), mixed.differences, mixed.differences)]
    assert all(score is not None and np.isfinite(score) for score in scores)
    assert scores[1] == scores[2]


def test_errors_of_a_training_are_failures_and_those_of_parts_are_misfits() -> None:
    def raises(minibatch: Any, outputs: Any, settings: Any) -> Any:
        raise RuntimeError

    bad = config(trainer=alg.mappo.but(name="x", loss=raises))
    mixed = MixedConfigs(config(), bad, 64)
    assert mixed.score(mixed.differences, 0) == FAILED

    separate = {"policies": "separate", "settings_of": {"agent_0": {"learning_rate": 1e-3}}}
    mixed = MixedConfigs(config(), config(**separate), 64)
    settings = [d for d in mixed.differences if d.part == "settings"]
    assert mixed.score(settings, 0) is None  # the shared policy has no agent_0


# --- Corral's own parts --------------------------------------------------------------------------


def test_stock_is_the_most_similar_algorithm_with_its_defaults() -> None:
    record = alg.ippo.but(name="mine", advantages=no_advantages)
    bad = config(trainer=record, gamma=0.5, model=made_of(flat), preset="auto")
    stock = stock_of(bad)
    assert (stock.trainer, stock.own_model, stock.settings["gamma"]) == ("ippo", None, 0.99)
    expected = {"algorithm advantages", "setting gamma", "network"}
    assert parts(Pair(stock, bad)) >= expected
    assert stock_of(stock).settings == stock.settings


class Late(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns rewards of 0."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 0.0, *rest


class Tiny(gymnasium.Env[Any, Any]):
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 1, 2.0, True, False, {}


def wrapped() -> Any:
    return Late(Tiny())


def test_custom_wrappers_are_parts_and_the_score_counts_the_rewards_inside() -> None:
    bad = config(env=wrapped)
    stock = stock_of(bad)
    pair = Pair(stock, bad)
    assert {"wrapper Late"} <= parts(pair)
    mixed = MixedConfigs(stock, bad, 64)
    assert [mixed.score(each, 0) for each in ((), mixed.differences)] == [2.0, 2.0]
    pair = Pair(config(env=Tiny), bad)
    assert parts(pair) == {"wrapper Late"}


# --- Sides ---------------------------------------------------------------------------------------


def test_scripts_are_called_with_mixed_settings(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "SETTINGS = {'rate': 1.0, 'size': 3}\n"
        "def train(*, seed, rate, size, extra=0):\n"
        "    return rate * 100 + size + extra + 0.01 * seed\n"
    )
    (tmp_path / "bad.py").write_text(
        "from good import train\nSETTINGS = {'rate': 0.1, 'size': 4, 'extra': 1}\n"
    )
    result = corral.bisect(f"{tmp_path}/good.py:train", f"{tmp_path}/bad.py:train")
    assert {d.name for d in result.differences} == {"rate", "size", "extra"}
    assert [d.name for cause in result.causes for d in cause.differences] == ["rate"]
    mixed = MixedScripts(Script(lambda seed: 1.0, {}), Script(lambda seed: float("nan"), {}))
    assert [d.part for d in mixed.differences] == ["code"]
    assert mixed.score(mixed.differences, 0) == FAILED


def test_sides_of_other_kinds_are_refused(tmp_path: Path) -> None:
    script = (len, {})
    with refused(ArgumentError, "script"):
        corral.bisect(script, SMALL)
    with refused(ConfigError, "nothing"):
        corral.bisect("nothing", SMALL)
    with refused(ArgumentError, "--env"):
        corral.bisect("mappo", "ippo")
    with refused(ValueError, "seconds", 0):
        corral.bisect(SMALL, SMALL, seconds=0)


def test_configuration_files_and_records_are_sides(tmp_path: Path) -> None:
    lines = 'env = "probe_p04_v0"\nsteps = 64\npreset = "none"\n[settings]\nnum_envs = 4\n'
    (tmp_path / "good.toml").write_text(lines)
    (tmp_path / "bad.toml").write_text(f"{lines}gamma = 0.5\n")
    files = [str(tmp_path / name) for name in ("good.toml", "bad.toml")]
    sides: list[Any] = [side_of(file, Named()) for file in files]
    assert parts(Pair(*sides)) == {"setting gamma"}
    named: Any = side_of(alg.mappo, Named(env="probe_p04_v0"))
    assert named.trainer == "mappo"


def test_a_run_executes_no_code_that_was_not_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathlib import Path\nfrom corral import algorithms as alg\n"
        "from corral.adapters.models import *\n"
        "Path(__file__).with_suffix('.ran').touch()\n"
        "mine = alg.mappo.but(name='mine')\n"
    )
    given = {name: value for name, value in SMALL.items() if name != "env"}
    runs = [
        corral.train("probe_p04_v0", trainer=trainer, out=tmp_path / name, progress=False, **given)
        for name, trainer in (("good", "mappo"), ("bad", f"{file}:mine"))
    ]
    file.with_suffix(".ran").unlink()
    with refused(UnknownNameError, f"{file}:mine"):
        corral.bisect(*(run.folder for run in runs))
    assert not file.with_suffix(".ran").exists()
    result = corral.bisect(*(run.folder for run in runs), trainer=f"{file}:mine")
    assert result.verdict == "equal"
    model = corral.train("probe_p04_v0", model=made_of(flat), out=tmp_path / "net", **given)
    with refused(ModelNeededError, "made_of"):
        corral.bisect(runs[0], model.folder)


@pytest.mark.slow
def test_a_harmful_setting_among_harmless_ones_is_found(tmp_path: Path) -> None:
    good = {**SMALL, "steps": 2_048, "num_envs": 16, "n_steps": 16}
    bad = {**good, "gamma": 0.98, "clip_range": 0.25, "n_epochs": 5, "huber_delta": 5.0}
    loss = alg.mappo.but(name="mine", advantages=no_advantages)
    result = corral.bisect(good, {**bad, "trainer": loss}, steps=2_048, out=tmp_path)
    assert [str(d) for cause in result.causes for d in cause.differences] == [
        "algorithm advantages"
    ]
    assert result.causes[0].p < 0.05
    again = corral.bisect(good, {**bad, "trainer": loss}, steps=2_048, out=tmp_path)
    assert again.to_json() == result.to_json()
