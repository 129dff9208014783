"""Functions of a record that return what they must not: each is refused by name, before a step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral import algorithms as alg
from corral.errors import AlgorithmError
from corral.trainers.on_policy.records import RESERVED
from support.mappo_teams import SMALL, make
from support.mask_rules import FifteenRules


def update(**changes: Any) -> None:
    list(make(FifteenRules(), alg.trainer_of(alg.mappo.but(name="mine", **changes))).learn())


def with_term(name: str) -> Any:
    def loss(*given: Any) -> Any:
        terms = alg.ppo_loss(*given).terms
        return alg.Losses({**terms, name: 0 * terms["policy_loss"]})

    return loss


NAMES = (
    *("env_steps", "wall_s", "updates", "episodes", "return_team", "return_agent_0", "length"),
    *("learning_rate", "value_scale", "explained_variance", "grad_norm_actor", "share_env"),
    *("kpi_sent", "reward_per_step", "env_steps_per_s"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_term_with_the_name_of_a_column_is_refused(name: str) -> None:
    with refused(AlgorithmError, "mine", "shared", "loss", name):
        update(loss=with_term(name))
    with refused(AlgorithmError, "mine", "shared", "metrics", name):
        update(metrics=lambda *given: {name: torch.tensor(1.0)})


def test_a_statistic_with_the_name_of_a_term_is_refused() -> None:
    with refused(AlgorithmError, "mine", "shared", "metrics", "entropy", "loss"):
        update(loss=with_term("entropy"))


def test_all_columns_that_are_not_of_the_algorithm_are_taken(tmp_path: Path) -> None:
    """Whatever column comes to be added to the log, an algorithm cannot write over it."""
    steps: dict[str, Any] = {"steps": 128, "progress": False, **SMALL}
    run = corral.train("arena_v0", trainer="ippo", out=tmp_path / "run", preset="none", **steps)
    own = {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"}
    own |= {f"{policy}/{name}" for policy in run.config.policies_to_train for name in own}
    others = {column.rpartition("/")[2] for column in {*run.progress.columns} - own}
    assert {"env_steps", "learning_rate", "share_env"} < others
    assert [name for name in sorted(others) if not RESERVED.fullmatch(name)] == []


def changed(**fields: Any) -> Any:
    """GAE, with something else in a field."""

    def advantages(trajectories: Any, settings: Any) -> Any:
        found = alg.gae(trajectories, settings)
        return dataclasses.replace(
            found, **{name: change(getattr(found, name)) for name, change in fields.items()}
        )

    return advantages


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gradients": lambda *_: None}, ("gradients", None, "clip_norm")),
        ({"gradients": lambda *_: torch.zeros(3)}, ("gradients", "Tensor", "clip_norm")),
        ({"gradients": lambda *_: (1.0, 2.0)}, ("grad_norm_actor", 1.0)),
        ({"optimizer": lambda *_: None}, ("optimizer", None, "torch.optim")),
        ({"metrics": lambda *_: None}, ("metrics", None)),
        (
            {"advantages": lambda *_: None},
            ("advantages", None, "value_target"),
        ),
        (
            {"advantages": changed(advantage=lambda each: each[:-1])},
            ("advantages", "advantage", "(15, 4)", "float32", "(16, 4)"),
        ),
        (
            {"advantages": changed(value_target=torch.from_numpy)},
            ("advantages", "value_target", "Tensor"),
        ),
        (
            {"advantages": changed(advantage=lambda each: each * np.nan)},
            ("advantages", "advantage", "nan"),
        ),
        ({"extras": lambda distribution: None}, ("extras", None)),
    ],
)
def test_what_a_function_returns_is_checked(changes: Any, named: tuple[object, ...]) -> None:
    with refused(AlgorithmError, "mine", "shared", *named):
        update(**changes)


def test_what_is_no_function_of_these_arguments_is_refused_when_it_is_given() -> None:
    for changes, named in (
        ({"loss": 3}, ("mappo", "loss=3", "loss(minibatch, outputs, settings)")),
        (
            {"loss": lambda minibatch, outputs: None},
            ("mappo", "loss(minibatch, outputs, settings)"),
        ),
        ({"metrics": lambda a, b, c: {}}, ("metrics(minibatch, outputs, losses, settings)",)),
        ({"extras": lambda: {}}, ("extras(distribution)",)),
        ({"Settings": 3}, ("Settings=3",)),
        ({"name": None}, ("name=None",)),
    ):
        with refused(AlgorithmError, *named):
            alg.mappo.but(**changes)
    assert alg.mappo.but(loss=lambda *given: None).name == "mappo"
    for wrong, named in (
        ({"optimiser": 1}, ("'optimiser'", "'optimizer'")),
        ({"x": 1}, ("'x'", "after_update")),
    ):
        with refused(TypeError, *named):
            alg.mappo.but(**wrong)
