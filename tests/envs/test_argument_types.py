"""The argument types of ``corral.make`` and ``make_batch`` repeat the signatures of the rules."""

from __future__ import annotations

import inspect
import typing

import pytest

from corral.envs import ENVIRONMENTS, argument_types
from corral.envs.registry import rules_class

ARGUMENTS = {
    name: arguments
    for label, arguments in vars(argument_types).items()
    if label.endswith("Args") and label != "CommonArgs"
    for name in typing.get_args(getattr(argument_types, label.removesuffix("Args")))
}


def test_every_name_and_id_has_argument_types():
    assert set(ARGUMENTS) == {
        text for spec in ENVIRONMENTS.values() for text in (spec.name, *spec.ids)
    }
    parts = typing.get_args(argument_types.Name)
    assert set(ARGUMENTS) == {text for part in parts for text in typing.get_args(part)}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_types_are_those_of_the_signature(name):
    signature = inspect.signature(rules_class(name), eval_str=True).parameters
    expected = {key: parameter.annotation for key, parameter in signature.items()}
    assert typing.get_type_hints(ARGUMENTS[name]) == expected
    assert set(typing.get_type_hints(argument_types.CommonArgs)) <= set(expected)
