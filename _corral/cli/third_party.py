"""Third-party environments on the command line: module:function, and its arguments."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from corral.cli.options import arguments_of

if TYPE_CHECKING:
    from corral.adapters.zoo.batch import ZooRules
    from corral.envs.conformance import Named

__all__ = ["is_third_party", "named", "third_party_rules"]


def is_third_party(environment: str) -> bool:
    """Whether the text is module:function, and no name of ours."""
    return ":" in environment


def named(environment: str, arguments: dict[str, Any]) -> Named:
    """What makes the environment of "module:function"; ValueError where there is none.

    The module may be one of the folder that the command was called in.
    """
    from corral.envs.conformance import Named

    if os.getcwd() not in sys.path:  # as python -m does
        sys.path.insert(0, os.getcwd())
    module, _, function = environment.partition(":")
    make = Named(module, function, arguments)
    try:
        found = make.find()
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{environment}: {error}; give module:function, such as "
            "pettingzoo.classic.tictactoe_v3:env"
        ) from error
    if not callable(found):
        raise ValueError(f"{environment} is no function, but a {type(found).__name__}")
    return make


def third_party_rules(environment: str, pairs: list[str]) -> ZooRules:
    """For training: of "module:function" with arguments key=value."""
    from corral.adapters.zoo.batch import zoo_rules

    make = named(environment, arguments_of(pairs))
    try:
        return zoo_rules(make)
    except TypeError as error:  # an argument that it does not have
        raise ValueError(f"{environment}: {error}") from error
