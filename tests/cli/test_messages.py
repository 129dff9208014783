"""Messages as the command spells them: options in place of arguments."""

from __future__ import annotations

import pytest

from corral.cli.output import in_options


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("queue=-1: give 0 or more", "--queue -1: give 0 or more"),
        ("give the run as --init (init=)", "give the run as --init"),
        ("--init (init=) is for mappo", "--init is for mappo"),
        ("--stretch (stretch=True) plans it anew", "--stretch plans it anew"),
        ("to end at steps=; give that too", "to end at --steps; give that too"),
        ("a run (steps=) goes on", "a run goes on"),
        ("given as init=", "given as --init"),
        ("again, init=... in corral.resume", "again, --init ... in corral.resume"),
    ],
)
def test_arguments_are_spelled_as_options(message: str, said: str) -> None:
    assert in_options(message, ["queue", "init", "stretch", "steps"]) == said
