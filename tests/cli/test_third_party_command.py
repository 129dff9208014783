"""corral train, evaluate and check in environments of others, named as text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pettingzoo
import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

from support.command import within

RING = "support.zoo_envs:RingEnv"
SMALL = ("--steps", "64", "--num-envs", "2", "--n-steps", "16", "--n-epochs", "1")


def test_a_run_remembers_what_it_was_trained_in(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert f"Run: {run}" in within("train", RING, *SMALL, "--out", run)
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["source"], config["env_kwargs"]) == ("ring_v0", RING, {})
    # Nothing is imported because a file names it.
    told = within("evaluate", run, code=2)
    assert f"--env {RING}" in " ".join(told.split())
    printed = within("evaluate", run, "--env", RING, "--episodes", "4")
    shown(printed, "mappo, greedy")
    told = " ".join(within("watch", run, "--ansi", "--env", RING, code=2).split())
    shown(told, "ring_v0")
    told = within("watch", run, "--ansi", "--foo", "3", code=2)
    shown(told, "'--foo'")
    resumed = within("train", RING, "--resume", run, "--steps", "128")
    shown(resumed, 128)


def test_arguments_and_the_interface_are_remembered_too(tmp_path: Path) -> None:
    if not hasattr(pettingzoo, "register"):
        pytest.skip("PettingZoo before 1.27 has no registry")
    pytest.importorskip("pygame", reason="PettingZoo's classic games need it")
    run, game = tmp_path / "run", "classic/rps-v2"
    api = ("--api", "aec", "--arg", "max_cycles=3")
    within("train", game, *api, *SMALL, "--out", run)
    config = json.loads((run / "config.json").read_text())
    assert config["source"] == game
    assert (config["api"], config["env_kwargs"]) == ("aec", {"max_cycles": 3})
    for again in (("--env", game), ()):  # an installed id need not be named again
        printed = within("evaluate", run, *again, "--episodes", "4")
        shown(printed, "mappo, greedy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "support.zoo_envs:RingEnv", "--arg", "sides=3"), "unexpected keyword argument"),
        (("train", "classic/no_such-v3"), "no environment of PettingZoo named"),
        (("train", "support.zoo_envs:RingEnv", "--sides", "3"), "--arg sides="),
        (("train", "no_such_module:env"), "give module:function, or an id such as"),
        (("train", "arena_v0", "--arg", "width=3"), "write --name value for built-in"),
        (("train", "arena_v0", "--api", "aec"), "write --name value for built-in"),
        (("check", "support.zoo_envs:RingEnv", "--api", "both"), 'give "parallel" or "aec"'),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run") if words[0] == "train" else ()
    printed = within(*words, *out, code=2)
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed
    assert not (tmp_path / "run").exists()


def test_errors_of_corral_about_environments_of_others_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not hasattr(pettingzoo, "register"):
        pytest.skip("PettingZoo before 1.27 has no registry")
    monkeypatch.setitem(sys.modules, "pymunk", None)
    monkeypatch.delitem(sys.modules, "pettingzoo.butterfly.pistonball.pistonball", raising=False)
    out = ("--out", tmp_path / "run")
    for words, message in (
        (("butterfly/pistonball-v6",), "pymunk"),
        (("classic/tictactoe-v3", "--arg", "bogus=3"), "unexpected keyword argument 'bogus'"),
    ):
        printed = within("train", *words, *out, code=2)
        assert message in printed
        assert printed.count("\n") == 1
