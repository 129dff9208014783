"""corral without some of its parts: ``corral.lab``, ``corral.loads``.

    python tests/support/demolition.py lab loads -- -n 2 -m "not slow"

builds the package without these parts in a temporary folder, and runs the tests of the core on it,
with the given arguments of pytest. Tests of the core that use another part stand in ``NEEDS``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CORE", "NEEDS", "demolished"]

ROOT = Path(__file__).parents[2]
CORE = ("tests/data", "tests/envs", "tests/adapters", "tests/trainers")

SITE = """import sys
sys.meta_path[:] = [
    each for each in sys.meta_path if "ditable" not in getattr(each, "__module__", repr(each))
]
"""
"""Takes out the finder of an editable install, which would find the parts that are left out."""

NEEDS = {
    "lab": (
        "tests/trainers/on_policy/test_algorithms.py",
        "tests/trainers/on_policy/test_later_probes.py",
        "tests/trainers/on_policy/test_probes.py",
        "tests/trainers/on_policy/test_records.py",
        "tests/trainers/policy_iteration/test_futures.py",
        "tests/trainers/policy_iteration/test_trainer.py",
        "tests/trainers/sb3/test_dqn.py",
    ),
    "loads": (
        "tests/envs/dfaas_v0/test_unknown.py",
        "tests/trainers/cloning/test_rows_seen.py",
        "tests/trainers/evaluation/test_required.py",
        "tests/trainers/evaluation/test_scores.py",
        "tests/trainers/evaluation/test_validate.py",
        "tests/trainers/test_policies.py",
        "tests/data/test_hostile_traces.py::test_no_command_quotes_a_file_that_is_no_trace",
        "tests/data/test_hostile_traces.py::test_the_limits_of_imports_can_be_raised",
        "tests/trainers/on_policy/test_runs.py::test_a_run_is_read_back_evaluated_and_exported",
        "tests/trainers/runs/test_named.py::test_a_file_is_no_folder",
        "tests/trainers/runs/test_named.py::test_a_replay_takes_no_episodes",
        "tests/trainers/runs/test_named.py::test_commands_take_them",
        "tests/trainers/runs/test_named.py::test_evaluations_of_a_checkpoint_have_a_place_of_their_own",
        "tests/trainers/runs/test_named_functions.py::test_a_run_asks_for_its_reward_again",
        "tests/trainers/runs/test_run.py::test_an_export_replaces_nothing_unasked",
        "tests/trainers/runs/test_run.py::test_missing_and_damaged_checkpoints",
        "tests/trainers/runs/test_run.py::test_nothing_that_is_loaded_can_run_code",
        "tests/trainers/sb3/test_trainer.py::test_what_is_exported_plays_the_same_in_its_library",
        "tests/trainers/test_models.py::test_a_replay_takes_it",
    ),
}
"""Part -> tests of the core that use it, as pytest's --deselect and --ignore take them."""


def demolished(folder: Path, *parts: str) -> dict[str, str]:
    """Write the package without ``parts`` into ``folder``, and return the environment of processes
    that import it from there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    places = settings["package-dir"]
    left_out = [ROOT / places["corral"] / part for part in parts]

    def ignored(place: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or Path(place, name) in left_out]

    for package in sorted(places):
        target = folder.joinpath(*package.split("."))
        shutil.copytree(ROOT / places[package], target, ignore=ignored)
    (folder / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join([str(folder), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def left_out(*parts: str) -> Iterator[str]:
    """Yield the options of pytest that leave out what needs one of the parts."""
    for part in parts:
        for each in NEEDS[part]:
            yield f"--deselect={each}" if "::" in each else f"--ignore={each}"


def main(words: list[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    parts, options = words[:split], words[split + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        env = demolished(Path(folder), *parts)
        command = [sys.executable, "-m", "pytest", *CORE, *left_out(*parts), *options]
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
