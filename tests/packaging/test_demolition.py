"""Without ``corral.lab``, and without ``corral.loads`` too, the core trains, resumes, evaluates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from support import forked
from support.demolition import CORE, NEEDS, ROOT, demolished

SMALL = ("--steps", "64", "--num-envs", "4", "--n-steps", "16")


class Place:
    """A folder to work in, and the package without some parts."""

    def __init__(self, folder: Path, parts: tuple[str, ...]) -> None:
        self.parts, self.work = parts, folder / "work"
        self.work.mkdir()
        self.env = demolished(folder / "package", *parts)

    def corral(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "corral", *words]
        return subprocess.run(command, cwd=self.work, env=self.env, capture_output=True, text=True)

    def forked(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = self.env["PYTHONPATH"]
        return forked.run(command, folder=self.work, env=self.env, path=path)


@pytest.fixture(
    scope="module",
    params=[pytest.param(("lab",), marks=pytest.mark.slow), ("lab", "loads")],
    ids=lambda parts: "+".join(parts),
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("demolished"), request.param)


def test_parts_are_gone(place: Place) -> None:
    for part in ("lab", "loads"):
        code = f"import corral.{part}"
        done = subprocess.run([sys.executable, "-c", code], env=place.env, capture_output=True)
        assert (done.returncode != 0) == (part in place.parts)


@pytest.mark.slow
def test_the_core_trains_resumes_and_evaluates(place: Place) -> None:
    sessions = [
        ("train", "--help"),
        ("train", "arena_v0", *SMALL, "--out", "arena"),
        ("train", "arena_v0", "--trainer", "sb3_ppo", *SMALL, "--out", "sb3"),
        ("train", "tictactoe_v0", "--trainer", "ippo", *SMALL, "--out", "tictactoe"),
        ("train", "dfaas_v0", *SMALL, "--out", "dfaas"),
        ("train", "--resume", "arena", "--steps", "128"),
        ("train", "--config", "dfaas/config.json", "--print-config"),
        ("evaluate", "arena", "--episodes", "2"),
        ("evaluate", "tictactoe", "--episodes", "2"),
        ("evaluate", "dfaas"),
        ("watch", "arena", "--ansi", "--steps", "1"),
        ("trainers",),
        ("envs",),
    ]
    done = place.forked("-c", "import corral; print(corral.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(place.work.with_name("package"))
    for words in sessions:
        done = place.forked("-m", "corral", *words)
        assert done.returncode == 0, (words, done.stderr)


COMMANDS = {
    "lab": [
        ("doctor", "run"),
        ("duel", "a", "b"),
        ("tune", "rps_v0"),
        ("compare", "a", "b"),
        ("bisect", "a", "b"),
    ],
    "loads": [("replay", "edge3"), ("rehearse", "edge3"), ("advise", "edge3"), ("serve", "run")],
}


def test_commands_of_a_missing_part_name_it(place: Place) -> None:
    for part in place.parts:
        for words in COMMANDS[part][: None if place.parts == (part,) else 1]:
            done = place.corral(*words)
            assert done.returncode == 2, words
            assert f"corral.{part}" in done.stderr
            assert "Traceback" not in done.stderr


def test_what_needs_a_part_is_there() -> None:
    """A test that is left out of the demolition, and has gone, would hide one of its name."""
    for named in (each for tests in NEEDS.values() for each in tests):
        file, _, test = named.partition("::")
        assert named.startswith(CORE)
        assert test.partition("[")[0] in (ROOT / file).read_text()
