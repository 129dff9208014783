"""Every public module and every name in its ``__all__`` can be imported."""

from __future__ import annotations

import importlib
import inspect

import pytest

import corral
from corral.envs import ENVIRONMENTS
from corral.errors import MissingExtraError
from support.messages import refused

PUBLIC = [
    "corral",
    "corral.data",
    "corral.envs",
    "corral.adapters",
    "corral.trainers",
    *(f"corral.envs.{name}" for name in ENVIRONMENTS),
    *(f"corral.adapters.{name}" for name in ("gymnasium", "rllib", "torchrl", "sb3", "supersuit")),
    "corral.algorithms",
]
OPTIONAL = {"ray", "torchrl", "tensordict"}  # not installed beside the other extras


def public_module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except MissingExtraError as error:
        pytest.skip(f"{name}: {error}")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in OPTIONAL:
            pytest.skip(f"{name}: {error}")
        raise


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_can_be_imported(name: str) -> None:
    module = public_module(name)
    names = getattr(module, "__all__", [])
    assert names
    missing = [each for each in names if not hasattr(module, each)]
    assert missing == []
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize(
    ("name", "meant"), [("doctor", "diagnose"), ("check", "check_env"), ("trian", "train")]
)
def test_names_of_commands_lead_to_functions(name: str, meant: str) -> None:
    with refused(AttributeError, f"'{name}'", f"'{meant}'"):
        getattr(corral, name)


@pytest.mark.parametrize("name", ["corral.adapters", "corral.trainers"])
def test_names_that_are_imported_late_are_listed_once(name: str) -> None:
    module = importlib.import_module(name)
    late = [each for names in module._NAMES.values() for each in names]
    late += [each for names in getattr(module, "_SB3_NAMES", {}).values() for each in names]
    late += getattr(module, "_REGISTERED", ())
    assert sorted(late) == sorted(module.__all__)
    with refused(AttributeError, f"'{name}'", "'nothing'"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments_have_a_manual_and_their_rules(name: str) -> None:
    module = importlib.import_module(f"corral.envs.{name}")
    assert (inspect.getdoc(module) or "").startswith(f"{name}: ")
    assert "\nVersion" in inspect.getdoc(module)
    assert getattr(module, ENVIRONMENTS[name].rules).name == name
