"""``corral clone``, ``corral record`` and ``--init``, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.messages import shown

pytest.importorskip("torch", reason="needs the extra mappo")

from support.command import within

SMALL = ("--steps", "64", "--num-envs", "4", "--n-steps", "16", "--n-epochs", "1")


def test_a_team_is_recorded_cloned_and_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = within(
        *("record", "dfaas_v0", "--policies", "overflow/two", "--max-cycles", "12"),
        *("--episodes", "5", "--out", "steps.npz"),
    )
    shown(said, 5, "overflow/two", "corral clone dfaas_v0 --from steps.npz")
    said = within(
        *("clone", "dfaas_v0", "--from", "steps.npz", *SMALL, "--out", "runs/a"),
        *("--smoothing", "2", "--no-agent-id"),
    )
    shown(said, "agree", "difference", "route=two", "steps.npz", 1)
    said = within(
        *("train", "dfaas_v0", "--init", "runs/a", *SMALL, "--no-agent-id", "--out", "runs/b"),
        *("--route", "two", "--max-cycles", "12"),
    )
    shown(said, "shared", "taken")
    shown(within("train", "--resume", "runs/a", "--steps", "128"), 128)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("clone",), "name an environment, as in: corral clone dfaas_v0 --from overflow/equal"),
        (("clone", "dfaas_v0"), "name a teacher, as in: corral clone dfaas_v0 --from overflow"),
        (("clone", "dfaas_v0", "--from", "overfow"), "did you mean 'overflow'?"),
        (("clone", "dfaas_v0", "--from", "nothing.npz"), "nothing.npz: the file does not exist"),
        (("clone", "dfaas_v0", "--from", "runs/none"), "runs/none is a path, but contains no run"),
        (
            ("clone", "dfaas_v0", "--from", "overflow/two", "--route", "equal"),
            "overflow/two plays with --route 'two', but the environment has --route",
        ),
        (("clone", "dfaas_v0", "--from", "local", "--smoothing", "-1"), "--smoothing"),
        (("clone", "dfaas_v0", "--from", "local", "--own-ply", "1"), "did you mean '--own-play'?"),
        (("clone", "dfaas_v0", "--from", "local", "--teacher", "x"), "--from"),
        (("clone", "--resume", "runs/a"), "corral train --resume runs/a"),
        (("record", "dfaas_v0"), "corral record dfaas_v0 --policies"),
        (("record", "dfaas_v0", "--policies", "local"), "name the file to write"),
        (
            ("record", "dfaas_v0", "--policies", "local", "--out", "a.csv"),
            "recorded steps need a file name that ends in .npz",
        ),
        (("record", "dfaas_v0", "--policies", "lcal", "--out", "a.npz"), "did you mean 'local'?"),
        (("train", "dfaas_v0", "--init", "runs/none"), "runs/none"),
        (("train", "--resume", "runs/none", "--init", "runs/a"), "leave out --init"),
    ],
)
def test_a_mistake_is_told_in_one_message_and_leaves_nothing(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = within(*words, code=2)
    assert message in said.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_settings_of_cloning() -> None:
    said = within("clone", "dfaas_v0", "--help")
    assert "--own-play" in said
    assert "--route" in said
    assert "--ent-coef" not in said
    assert "--own-play" not in within("record", "dfaas_v0", "--help")
    assert "--teacher" not in said
    assert "--clip-range " not in said
    said = within("trainers", "clone")
    assert "--own-play" in said
    assert "--clip-range " not in said


def test_a_poor_clone_is_told_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = within("clone", "tictactoe_v0", "--from", "perfect", *SMALL, "--out", "runs/a")
    shown(said.replace("\n", " "), "--steps")
