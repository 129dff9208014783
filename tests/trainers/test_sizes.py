"""Sizes that no machine has room for are refused before memory is taken: each setting, each way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from corral.envs.arena_v0 import ArenaRules
from corral.envs.batch import make_batch
from corral.envs.registry import make_rules
from corral.errors import SizeError
from corral.memory import MEMORY, free_memory, require_memory
from corral.trainers.base import BUILT_IN, trainer_class
from corral.trainers.settings import about, setting, type_of
from corral.trainers.sizes import memory_of, require_sizes

HUGE = 10**10

TAKES_TIME_ALONE = {
    "batch_size",  # of what goes through a rollout part by part
    "cnn_patch",  # divides the image's sides
    "gradient_steps",
    "learning_starts",
    "log_interval",
    "lookahead",
    "n_epochs",
    "n_minibatches",
    "reach",
    "target_update_interval",
    "train_freq",
}
"""Numbers of settings that are counted to, and size no array."""


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bound on every machine."""
    monkeypatch.setenv(MEMORY, "16")


SOON = 60.0
"""CPU seconds; a slow machine needs 20 to start, one layer of 10**12 weights would take minutes."""

LIMITED = """
import resource, sys
limit = 6 * 2**30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def numbers_of(kind: Any) -> list[Any]:
    return [
        one
        for one in fields(kind.Settings)
        if type_of(one).partition(" |")[0] == "int" or type_of(one).startswith("tuple")
    ]


def run(code: str, *arguments: str) -> tuple[str, float]:
    """Return what the code printed, else the end of its errors, and its CPU seconds."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + code, *arguments],
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != MEMORY},
        timeout=600,
        check=False,
    )
    after = os.times()
    seconds = after.children_user - before.children_user
    seconds += after.children_system - before.children_system
    return done.stdout.strip() or done.stderr[-500:], seconds


# --- Every setting says what it sizes ------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_number_of_a_trainer_sizes_something_or_takes_time_alone(name: str) -> None:
    kind: Any = trainer_class(name)
    for one in numbers_of(kind):
        assert about(one).get("sizes") or one.name in TAKES_TIME_ALONE


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_number_that_sizes_something_is_refused_where_it_is_absurd(name: str) -> None:
    kind: Any = trainer_class(name)
    tried = 0
    for one in numbers_of(kind):
        if not about(one).get("sizes"):
            continue
        rules = make_rules("tictactoe_v0" if one.name == "grid_arch" else "tiles_v0")  # has images
        value: Any = (HUGE, HUGE) if type_of(one).startswith("tuple") else HUGE
        changes = {one.name: value}
        if one.name == "batch_size":  # at most as many as there are, where it is checked
            changes |= {k: HUGE for k in ("buffer_size", "train_batch_size") if k in known(kind)}
        try:
            settings = replace(kind.Settings(), **changes)
        except ValueError:  # the trainer has no use for it
            continue
        with pytest.raises(SizeError) as error:
            require_sizes(rules, settings, {}, ["shared"])
        assert any(f"{key}=" in str(error.value) for key in changes)
        tried += 1
    assert tried >= 4


def known(kind: Any) -> set[str]:
    return {one.name for one in fields(kind.Settings)}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_defaults_fit(name: str) -> None:
    kind: Any = trainer_class(name)
    require_sizes(make_rules("tiles_v0"), kind.Settings(), {}, ["shared"])


def test_a_policy_of_its_own_size_counts() -> None:
    settings: Any = trainer_class("mappo").Settings()  # type: ignore[attr-defined]
    rules = make_rules("arena_v0")
    with pytest.raises(SizeError):
        require_sizes(rules, settings, {"one": {"net_arch": (10**6, 10**6)}}, ["one", "two"])


def test_layers_beyond_what_a_checkpoint_holds_are_refused() -> None:
    kind: Any = trainer_class("mappo")
    rules = make_rules("rps_v0")
    with pytest.raises(ValueError, match="net_arch"):
        require_sizes(rules, kind.Settings(net_arch=(8,) * 20_000), {}, ["shared"])
    require_sizes(rules, kind.Settings(net_arch=(8,) * 100), {}, ["shared"])


def test_the_estimate_is_no_more_than_what_is_taken() -> None:
    """Parameters with what Adam keeps of them, and the observations of a rollout, counted."""
    from corral.trainers.on_policy.trainer import MAPPO

    rules = ArenaRules()
    settings = MAPPO.Settings(net_arch=(300, 200), num_envs=8, n_steps=16)
    trainer = MAPPO(
        rules,
        settings,
        seed=0,
        policies=dict.fromkeys(rules.agents, "shared"),
        policies_to_train=["shared"],
        steps=128,
    )
    trainer.begin()
    learner = trainer.learners["shared"]
    weights = sum(each.numel() for each in learner.parameters()) * 4
    needed = memory_of(rules, settings, 1)
    layers = next(size for name, size in needed.items() if name.startswith("net_arch"))
    assert 0.3 * 4 * weights < layers < 4 * weights + 4 * 8 * 16 * 2 * 500
    rollout = sum(each.vector.nbytes for each in trainer.rollout.groups)
    steps = next(size for name, size in needed.items() if "n_steps" in name)
    assert 0.5 * rollout < steps < 1.5 * rollout


def test_a_bound_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {"num_envs=3": 2**40, "n_steps=2": 2**30}
    monkeypatch.setenv(MEMORY, "2000")
    require_memory(needed)
    assert free_memory() == 2000 * 2**30
    monkeypatch.setenv(MEMORY, "0.5")
    with pytest.raises(SizeError, match="num_envs=3"):
        require_memory(needed)
    for text in ("0", "-1", "much", "nan", "inf"):
        monkeypatch.setenv(MEMORY, text)
        with pytest.raises(SizeError, match=MEMORY):
            require_memory(needed)


# --- Batches and arguments of environments -------------------------------------------------------


@pytest.mark.parametrize("env", ["dfaas_v0", "arena_v0", "rps_v0", "tiles_v0"])
def test_a_batch_of_too_many_copies_is_refused(env: str) -> None:
    with pytest.raises(SizeError, match="num_envs"):
        make_batch(env, HUGE, 0).reset()


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        ("dfaas_v0", {"report_delay": HUGE}),
        ("dfaas_v0", {"last_counts": HUGE}),
        ("dfaas_v0", {"max_cycles": HUGE, "queue": 5}),
        ("arena_v0", {"width": HUGE}),
        ("arena_v0", {"height": HUGE}),
        ("arena_v0", {"max_cycles": HUGE}),
    ],
)
def test_arguments_that_size_arrays_are_refused(env: str, kwargs: dict[str, Any]) -> None:
    name = next(iter(kwargs))
    with pytest.raises(SizeError, match=f"{name}="):
        make_rules(env, **kwargs)


# --- From Python, the command line and a file, in a process of little memory ---------------------

TRAIN = """
import json
import corral
settings = json.loads(sys.argv[1])
settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
try:
    corral.train("rps_v0", steps=64, out=sys.argv[2], **settings)
except Exception as error:
    print(type(error).__name__)
"""

ABSURD = [
    {"num_envs": HUGE},
    {"n_steps": HUGE},
    {"net_arch": [10**6, 10**6]},
    {"net_arch": [8] * 20_000},
    {"memory": 10**6},
]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.parametrize("settings", ABSURD, ids=["envs", "steps", "units", "layers", "gru"])
def test_training_ends_within_seconds(settings: dict[str, Any], tmp_path: Path) -> None:
    said, seconds = run(TRAIN, json.dumps(settings), str(tmp_path / "run"))
    assert said == "SizeError"
    assert seconds < SOON
    assert not (tmp_path / "run").exists()


COMMAND = """
from corral.cli import main
sys.argv = ["corral", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.parametrize("way", ["options", "file"])
def test_commands_end_within_seconds(way: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = ["rps_v0", "--net-arch", "1000000,1000000"]
    if way == "file":
        config = tmp_path / "run.toml"
        config.write_text('env = "rps_v0"\n[settings]\nnet_arch = [1000000, 1000000]\n')
        given = ["--config", str(config)]
    said, seconds = run(COMMAND, "train", *given, "--steps", "64", "--out", str(out))
    assert re.search("net.arch", said)
    assert "Traceback" not in said
    assert seconds < SOON
    assert not out.exists()


def test_a_setting_refuses_a_size_that_is_none() -> None:
    with pytest.raises(ValueError, match="sizes"):
        setting(3, "Number of parts.", sizes="nonsense")
