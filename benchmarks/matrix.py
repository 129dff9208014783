"""Every environment with every trainer: short trainings, and what refusals say.

    python benchmarks/matrix.py

Those of rllib_ppo need an environment of their own (`pip install '.[rllib]'`); where Ray is
missing they are marked so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.errors import MissingExtraError
from support.matrix import ENVS, SHORT, outcome


def main() -> None:
    cells: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for env in ENVS:
            cells[env] = {}
            for trainer in SHORT:
                try:
                    said = outcome(env, trainer, Path(folder) / f"{env}-{trainer}")
                except MissingExtraError:
                    said = "not installed"
                cells[env][trainer] = said
            print(env, *(f"{trainer}: {said}" for trainer, said in cells[env].items()), sep="\n  ")
    lines = [
        "# Every environment with every trainer",
        "",
        "`python benchmarks/matrix.py`: short trainings, 16 env steps, small rollouts, all else at",
        "its default. A refusal comes before a folder is made, and names the command in the table.",
        "",
        "| environment | " + " | ".join(SHORT) + " |",
        "|---|" + "---|" * len(SHORT),
        *(f"| {env} | " + " | ".join(own.values()) + " |" for env, own in cells.items()),
    ]
    text = "\n".join(lines)
    save("matrix", text, {"cells": cells}, machine("torch", "stable-baselines3", "pettingzoo"))


if __name__ == "__main__":
    main()
