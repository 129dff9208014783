"""Run all benchmarks, one after the other; results go to benchmarks/results.

OMP_NUM_THREADS=1 python benchmarks/run.py [NAME ...]
"""

from __future__ import annotations

import subprocess
import sys

from common import TRACES, script

NEEDS_TRACES = {"hard_days", "hard_setting", "reference_policies", "trace_statistics"}
NAMES = (
    "stepping",
    "arena_stepping",
    "tiles_accuracy",
    "sb3_vec_envs",
    "decide",
    "trace_reading",
    "replay_year",
    "rehearsal_speed",
    "rehearsal_stale",
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
    "checkpoint_trust",
    "resume_kills",
    "two_step",
    "comparing",
    "interval_coverage",
    "audit",
    "algorithms",
    "self_play",
)


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        if name in NEEDS_TRACES and not TRACES.is_dir():
            print(f"{name}: left out, the public traces are not at CORRAL_TRACES={TRACES}")
            continue
            print(f"{name}: left out, mpe2 is not installed (pip install --no-deps mpe2)")
            continue
        subprocess.run([sys.executable, script(name)], check=True)


if __name__ == "__main__":
    main()
