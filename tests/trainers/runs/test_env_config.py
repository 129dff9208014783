"""Tasks: which rows are trained on and which are held out, and what JSON keeps of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import Trace, load_trace, write_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import RunError, ScaleError, TraceError, UnknownNameError
from corral.trainers.runs.env_config import EnvConfig, given_again
from support.loads import small_trace
from support.messages import refused
from support.steady_rules import SteadyRules


def split(task: EnvConfig) -> tuple[Any, Any]:
    return task.env_kwargs["rows"], task.held_out["rows"]


def of_length(steps: int, env: dict[str, Any] | None = None, **given: Any) -> EnvConfig:
    return EnvConfig.of("dfaas_v0", {"trace": small_trace(steps=steps), **(env or {})}, **given)


@pytest.mark.parametrize(
    ("steps", "env", "held_out", "train", "test"),
    [
        (40, {}, None, (0, 28), (28, 40)),
        (10, {}, None, (0, 7), (7, 10)),
        (10, {}, 0.2, (0, 8), (8, 10)),
        (10, {}, 0, (0, 10), (0, 10)),  # nothing is held out: judged on the same rows
        (1, {}, None, (0, 1), (0, 1)),
        (2, {}, None, (0, 1), (1, 2)),
        (3, {}, 0.99, (0, 1), (1, 3)),
        (40, {"rows": (5, 20)}, None, (5, 20), (20, 40)),
        (40, {"rows": (0, 40)}, None, (0, 40), (0, 40)),
        (40, {"rows": (5, 20)}, (30, 35), (5, 20), (30, 35)),
        (40, {"rows": (20, 40)}, (0, 20), (20, 40), (0, 20)),
        (40, {}, (30, 35), (0, 30), (30, 35)),
        (40, {}, [30, 40], (0, 30), (30, 40)),
    ],
)
def test_rows(steps: int, env: dict[str, Any], held_out: Any, train: Any, test: Any) -> None:
    task = of_length(steps, env, held_out=held_out)
    assert split(task) == (train, test)
    rules = task.rules()
    assert isinstance(rules, DfaasRules)
    assert rules.rows == train
    assert task.held_out_rules().rows == test  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env", "held_out", "named"),
    [
        ({}, 1, ("held_out=1", "0", "1")),
        ({}, -0.1, ("held_out=-0.1",)),
        ({}, float("nan"), ("held_out=nan",)),
        ({}, (30, 50), ("held_out=(30, 50)", "(low, high)", "0..40")),
        ({}, (35, 30), ("held_out=(35, 30)", "0..40")),
        ({}, (1, 2, 3), ("held_out=(1, 2, 3)", "0..40")),
        ({}, (0, 20), ("held_out=(0, 20)",)),
        ({"rows": (0, 20)}, 0.3, ("rows", "held_out")),
        ({"rows": (30, 50)}, None, ("40",)),
    ],
)
def test_wrong_rows_are_named(
    env: dict[str, Any], held_out: Any, named: tuple[object, ...]
) -> None:
    with refused(ValueError, *named):
        of_length(40, env, held_out=held_out)


def test_the_last_days_are_held_out_of_a_bundled_trace() -> None:
    task = EnvConfig.of("dfaas_v0")
    length = len(load_trace("edge3"))
    assert split(task) == ((0, 2246), (int(0.7 * length), length))
    assert task.validation == {"rows": (2246, int(0.7 * length))}  # two days: 20 % of the rest
    assert task.trace == load_trace("edge3")
    # Defaults are written down: a later default must not change what a run is.
    assert task.env_kwargs["max_level"] == 100
    assert task.env_kwargs["second_offer"] is True


def test_rows_for_validation() -> None:
    task = of_length(40, {"max_cycles": 6})
    assert (*split(task), task.validation["rows"]) == ((0, 22), (28, 40), (22, 28))
    assert task.validation_rules().rows == (22, 28)  # type: ignore[attr-defined]
    task = of_length(40, {"max_cycles": 6}, validation=(0, 9))
    assert (*split(task), task.validation["rows"]) == ((9, 28), (28, 40), (0, 9))
    for none in (of_length(40), of_length(40, {"max_cycles": 6}, validation=0)):
        assert split(none) == ((0, 28), (28, 40))
        assert none.validation == {}
        with refused(ValueError, "dfaas_v0", "validation=0", "max_cycles"):
            none.validation_rules()
    with refused(ValueError, "validation=0.2", "0:28", 288, "max_cycles"):
        of_length(40, validation=0.2)


def test_without_rows_validation_plays_the_rules_of_training() -> None:
    task = EnvConfig.of("arena_v0")
    assert task.validation == {}
    assert task.validation_rules().name == "arena_v0"
    for wrong in (0, 0.2, (0, 5)):
        with refused(ValueError, f"validation={wrong}", "arena_v0"):
            EnvConfig.of("arena_v0", validation=wrong)  # type: ignore[arg-type]


def test_a_run_of_before_validation_is_read(tmp_path: Path) -> None:
    saved = of_length(40, {"max_cycles": 6}).write(tmp_path)
    del saved["validation"]
    assert EnvConfig.read(json.loads(json.dumps(saved)), tmp_path).validation == {}


def test_scales_come_of_the_whole_trace() -> None:
    load = small_trace(steps=40)
    arrivals = load.arrivals.copy()
    arrivals[35, 1] = 99  # among the rows held out
    peak = Trace(load.nodes, arrivals, load.capacity, load.times)
    task = EnvConfig.of("dfaas_v0", {"trace": peak})
    assert task.rules().load_scale == 99  # type: ignore[attr-defined]
    assert task.rules().levels == task.rules(**task.held_out).levels  # type: ignore[attr-defined]
    with pytest.raises(ScaleError):
        EnvConfig.of("dfaas_v0", {"trace": peak, "load_scale": 50})


def test_training_ends_at_an_illegal_action_and_keeps_no_flow() -> None:
    task = of_length(40, {"illegal": "penalise", "keep_flow": True})
    rules = task.rules()
    assert rules.illegal == "raise"
    assert rules.keep_flow is False  # type: ignore[attr-defined]


# --- As JSON -------------------------------------------------------------------------------------


def round_trip(task: EnvConfig, folder: Path) -> EnvConfig:
    folder.mkdir(exist_ok=True)
    return EnvConfig.read(json.loads(json.dumps(task.write(folder), allow_nan=False)), folder)


def without_capacity(steps: int = 40) -> Trace:
    load = small_trace(steps=steps)
    return Trace(load.nodes, load.arrivals, None, load.times)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"trace": "edge3", "queue": 7, "forward_cost": 0.25, "rows": (10, 500)},
        {"trace": "edge3", "capacity": 40, "start": 5, "link_limit": 3, "max_cycles": 12},
        {"trace": "edge8", "route": "two", "second_offer": False, "reward": "team"},
        {"trace": small_trace(), "neighbours": {"site-0": ["site-1"], "site-1": ["site-0"]}},
        {"trace": small_trace(), "load_scale": 20, "capacity_scale": 30, "max_level": 4},
        {"trace": without_capacity(), "capacity": "1.25x"},
        {"trace": small_trace(steps=1)},
        {"trace": small_trace(), "max_cycles": 5, "start": 3},
    ],
)
def test_what_is_read_back_plays_the_same(tmp_path: Path, env: dict[str, Any]) -> None:
    task = EnvConfig.of("dfaas_v0", env)
    back = round_trip(task, tmp_path / "run")
    assert back.env == task.env
    assert back.held_out == task.held_out
    assert back.validation == task.validation
    assert back.env_kwargs == task.env_kwargs
    assert back.trace is not None
    assert back.trace.name == task.trace.name  # type: ignore[union-attr]
    one, two = task.rules(), back.rules()
    assert one.identity == two.identity  # type: ignore[attr-defined]
    assert str(one.observation_space("node_0")) == str(two.observation_space("node_0"))
    rngs = [[np.random.default_rng(row) for row in range(3)] for _ in range(2)]
    seen = [rules.observe(rules.start(own)) for rules, own in zip((one, two), rngs, strict=True)]
    for agent in one.agents:
        for key in ("observation", "action_mask"):
            assert np.array_equal(seen[0][agent][key], seen[1][agent][key])


def test_capacity_as_a_multiple_of_the_load_that_is_trained_on() -> None:
    """Nothing of the rows held out, or validated on, is in it; all play with the same."""
    arrivals = np.concatenate([np.full((20, 2), 4), np.full((20, 2), 40)])
    load = Trace(("a", "b"), arrivals, None, np.arange(40))
    found = EnvConfig.of(
        "dfaas_v0",
        {"trace": load, "capacity": "1.5x", "max_cycles": 4},
        held_out=0.4,
        validation=(20, 24),
    )
    assert found.env_kwargs["rows"] == (0, 20)
    for rules in (found.rules(), found.validation_rules(), found.held_out_rules()):
        assert isinstance(rules, DfaasRules)
        assert rules.trace.capacity is not None
        assert np.unique(rules.trace.capacity).tolist() == [6]
        assert rules.capacity_scale == 6
    asked = {"trace": load, "capacity": "1.5x", "capacity_rows": (0, 40), "capacity_scale": 50}
    found = EnvConfig.of("dfaas_v0", asked, held_out=0.5)
    rules = found.rules()
    assert isinstance(rules, DfaasRules)
    assert np.unique(rules.trace.capacity).tolist() == [33]
    assert rules.capacity_scale == 50
    # A run from before knew no such rows: it plays what it was trained in.
    saved = EnvConfig.of("dfaas_v0", {"trace": "edge3", "capacity": "1.5x"}).write(None)
    del saved["env_kwargs"]["capacity_rows"], saved["env_kwargs"]["capacity_scale"]
    older = EnvConfig.read(saved, Path()).rules()
    assert isinstance(older, DfaasRules)
    assert older.trace == load_trace("edge3").with_capacity("1.5x")
    # Without a division into rows, as ever: the mean of the whole trace.
    plain = DfaasRules(load, rows=(0, 20), capacity="1.5x")
    assert np.unique(plain.trace.capacity).tolist() == [33]


def test_only_loads_that_do_not_come_along_are_copied(tmp_path: Path) -> None:
    (tmp_path / "bundled").mkdir()
    EnvConfig.of("dfaas_v0", {"trace": "edge3"}).write(tmp_path / "bundled")
    assert list((tmp_path / "bundled").iterdir()) == []
    # Another load of a bundled name is not taken for the bundled one.
    load = small_trace()
    named = Trace(load.nodes, load.arrivals, load.capacity, load.times, name="edge3")
    back = round_trip(EnvConfig.of("dfaas_v0", {"trace": named}), tmp_path / "own")
    assert back.trace == load
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["trace.csv.gz"]


def test_a_file_is_not_needed_any_more(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    write_trace(small_trace(), file)
    task = EnvConfig.of("dfaas_v0", {"trace": str(file)})
    saved = json.loads(json.dumps(task.write(tmp_path)))
    file.unlink()
    back = EnvConfig.read(saved, tmp_path)
    assert back.trace == small_trace()
    assert back.trace is not None
    assert back.trace.name == "mine"
    # The load that is there is another one now.
    other = small_trace(seed=8)
    (tmp_path / "trace.csv.gz").unlink()
    write_trace(other, tmp_path / "trace.csv.gz")
    with refused(TraceError, "trace.csv.gz", other.digest[:12]):
        EnvConfig.read(saved, tmp_path)
    (tmp_path / "trace.csv.gz").unlink()
    with pytest.raises(TraceError, match=r"trace\.csv\.gz"):
        EnvConfig.read(saved, tmp_path)


def test_a_bundled_load_that_changed_is_refused(tmp_path: Path) -> None:
    saved = EnvConfig.of("dfaas_v0", {"trace": "edge3"}).write(tmp_path)
    saved["env_kwargs"]["trace"]["digest"] = 64 * "0"
    with refused(TraceError, "edge3", "000000000000"):
        EnvConfig.read(saved, tmp_path)


# --- Rules of one's own --------------------------------------------------------------------------


def test_rules_of_ones_own(tmp_path: Path) -> None:
    rules = SteadyRules()
    task = EnvConfig.of(rules)
    assert task.rules() is rules
    assert task.trace is None
    saved = json.loads(json.dumps(task.write(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    given = given_again(saved, tmp_path, rules)
    assert EnvConfig.read(saved, tmp_path, given).rules() is rules
    with refused(RunError, "steady_v0", "corral.load_run("):
        given_again(saved, tmp_path)
    with refused(RunError, "steady_v0", "dfaas_v0"):
        given_again(saved, tmp_path, DfaasRules("edge3"))
    with refused(ValueError, "'dfaas_v0'", "env_kwargs="):
        EnvConfig.of(DfaasRules("edge3"))
    with pytest.raises(UnknownNameError, match="dfaas_v0"):
        EnvConfig.of("dfaas")
