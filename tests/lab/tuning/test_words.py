"""Arguments of corral.train become words of corral train that say the same."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("safetensors", reason="needs the extra mappo")

from corral.errors import ArgumentError
from corral.lab.tuning.words import words_of
from corral.trainers.base import find_trainer
from corral.trainers.config_files.write import config_text, resolved
from corral.trainers.driver import train
from support.command import within

KIND = find_trainer("mappo").kind


@pytest.mark.parametrize(
    ("env", "given"),
    [
        (
            "arena_v0",
            {
                "env_kwargs": {"height": 6, "walls": "mask"},
                "steps": 20_000,
                "horizon": 40_000,
                "policies": {"agent_1": "a", "agent_2": "b"},
                "policies_to_train": ["a"],
                "opponents": None,
                "settings_of": {"a": {"learning_rate": 1e-3}},
                "keep": "all",
                "preset": "none",
                "learning_rate": "linear:3e-4",
                "net_arch": (32,),
                "target_kl": None,
                "anneal": False,
                "gamma": 1e-5,
            },
        ),
        ("dfaas_v0", {"held_out": (2000, 2500), "validation": 0.1, "steps": 20_000}),
        ("arena_v0", {"opponents": {"agent_2": {"chase": 2, "random": 1}}, "steps": 9_000}),
    ],
)
def test_words_say_what_the_arguments_say(env: str, given: dict[str, Any]) -> None:
    values = {"env": env, "trainer": "mappo", **given}
    config = train(**values, dry_run=True).config
    printed = within("train", *words_of(env, "mappo", KIND, given), "--print-config")
    assert printed.rstrip() == config_text(resolved(config, values)).rstrip()


def test_lists_are_said_once_each() -> None:
    found = words_of(
        "two_step_v0",
        "mappo",
        KIND,
        {
            "stop": ["return_team>=8", "wall_s>=9"],
            "metrics": {"m": "my.py:f"},
            "init_critic": False,
        },
    )
    assert found[3:] == (
        *("--stop", "return_team>=8", "--stop", "wall_s>=9"),
        *("--metric", "m=my.py:f", "--no-init-critic"),
    )
    assert words_of("my:env", "mappo", KIND, {"env_kwargs": {"a": [1.5]}, "api": "aec"})[3:] == (
        *("--arg", "a=[1.5]", "--api", "aec"),
    )


@pytest.mark.parametrize(
    "given",
    [{"callbacks": [print]}, {"model": print}, {"out": "x"}, {"env_kwargs": {"trace": object()}}],
)
def test_what_no_word_stands_for_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        words_of("dfaas_v0", "mappo", KIND, given)
