"""What importing corral costs, and which way its imports run."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from corral.trainers.base import BUILT_IN, trainer_class

ROOT = Path(__file__).parents[2]
LAYERS = ["data", "envs", "adapters", "trainers"]
HEAVY = ("torch", "stable_baselines3", "supersuit", "scipy", "pygame", "PIL", "rich")


@pytest.mark.parametrize(
    "module",
    [
        *("corral", "corral.data", "corral.envs", "corral.envs.dfaas_v0", "corral.envs.batch"),
        "corral.trainers",
    ],
)
def test_importing_the_environments_brings_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    heavy = [name for name in HEAVY if name in loaded and name not in _of_pettingzoo()]
    assert heavy == []


def loaded_by(*words: str) -> set[str]:
    """Return the modules that a call of the command loads."""
    code = (
        "import sys\n"
        "from corral_command import main\n"
        f"sys.argv = ['corral', *{words!r}]\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Options" in done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["trace", "--help"]])
def test_help_is_fast(words: list[str]) -> None:
    """NumPy, Gymnasium and PettingZoo take longer to import than all else that help needs."""
    slow = {"numpy", "gymnasium", "pettingzoo", "pandas", "torch"}
    assert loaded_by(*words) & slow == set()


def test_help_on_settings_needs_no_torch() -> None:
    loaded = loaded_by("train", "tictactoe_v0", "--help")
    assert "corral.trainers.on_policy.settings" in loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_settings_are_those_of_the_trainer(name: str) -> None:
    try:
        trainer = trainer_class(name)
    except ImportError as error:
        pytest.skip(str(error))
    assert BUILT_IN[name].Settings is trainer.Settings


def test_importing_the_adapters_leaves_the_traces_alone() -> None:
    """pandas, which only dfaas_v0 needs, takes longer to import than all the rest."""
    code = "import sys, corral.adapters; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_an_adapter_brings_no_bridge() -> None:
    """Yet gymnasium knows the environments, and each bridge is found by its name."""
    code = (
        "import sys, gymnasium, corral.adapters.spaces\n"
        "bridges = ('zoo', 'gymnasium', 'sb3', 'rllib', 'torchrl', 'supersuit', 'info_masks')\n"
        "loaded = [b for b in bridges if f'corral.adapters.{b}' in sys.modules]\n"
        "assert loaded == [], loaded\n"
        "assert 'corral/dfaas-v0' in gymnasium.registry\n"
        "from corral.adapters import gymnasium as bridge, mask_in_info\n"
        "assert callable(bridge.SeatEnv) and callable(mask_in_info)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@functools.cache
def _of_pettingzoo() -> set[str]:
    """What PettingZoo itself imports, which corral cannot help."""
    code = "import sys, pettingzoo; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_replay_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'stable_baselines3', 'supersuit'): sys.modules[name] = None\n"
        f"sys.argv = ['corral', 'replay', 'edge3', '--rows', '0:300', '--out', {str(tmp_path)!r}]\n"
        "from corral.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()


def test_intervals_of_a_replay_need_no_scipy() -> None:
    """scipy is an extra: it solves linear programs, and nothing else asks for it."""
    code = (
        "import sys\n"
        "from corral.loads.replay import replay\n"
        "result = replay('edge3', ['local', 'overflow/equal'], rows=(0, 600), window=60)\n"
        "assert None not in [score.cost_low for score in result.scores[:2]]\n"
        "assert not any(name.split('.')[0] == 'scipy' for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def imported(path: Path) -> set[str]:
    """The corral packages that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("corral.")}
    return found


def test_imports_run_one_way() -> None:
    checked = 0
    for place, layer in enumerate(LAYERS):
        for path in (ROOT / layer).rglob("*.py"):
            later = set(LAYERS[place + 1 :]) & imported(path)
            assert later == set(), f"{path} imports {later}"
            checked += 1
    assert checked > 20


def test_no_assert_guards_what_a_user_gives() -> None:
    """The rules hold under ``python -O`` too: errors are raised, not asserted."""
    code = (
        "from corral.envs import dfaas_v0\n"
        "env = dfaas_v0.parallel_env(); env.reset(seed=0)\n"
        "try: env.step({'node_0': -1, 'node_1': 0, 'node_2': 0})\n"
        "except ValueError as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "ActionError", done.stderr
