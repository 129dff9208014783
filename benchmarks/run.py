"""Run all benchmarks, one after the other; results go to benchmarks/results.

OMP_NUM_THREADS=1 python benchmarks/run.py [NAME ...]
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from common import TRACES

HERE = Path(__file__).parent
NEEDS_TRACES = {"hard_days", "hard_setting", "reference_policies", "trace_statistics"}
NEEDS_MPE2 = {"simple_spread"}
NAMES = (
    "stepping",
    "arena_stepping",
    "tiles_stepping",
    "tiles_accuracy",
    "sb3_vec_envs",
    "decide",
    "trace_reading",
    "replay_year",
    "reference_policies",
    "trace_statistics",
    "default_game",
    "sb3_training_time",
    "off_policy",
    "hard_setting",
    "hard_days",
    "arena_learning",
    "training_speed",
    "learner_speed",
    "self_play_speed",
    "simple_spread",
    "checkpoint_trust",
    "resume_kills",
    "config_digits",
    "two_step",
    "comparing",
    "coverage",
    "audit",
    "algorithms",
    "games_learning",
    "self_play",
    "tiles_learning",
    "seat_learning",
    "learning_curves",
    "zoo_workers",
    "conformance",
)


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        if name in NEEDS_TRACES and not TRACES.is_dir():
            print(f"{name}: left out, the public traces are not at CORRAL_TRACES={TRACES}")
            continue
        if name in NEEDS_MPE2 and importlib.util.find_spec("mpe2") is None:
            print(f"{name}: left out, mpe2 is not installed (pip install --no-deps mpe2)")
            continue
        subprocess.run([sys.executable, HERE / f"{name}.py"], check=True)


if __name__ == "__main__":
    main()
