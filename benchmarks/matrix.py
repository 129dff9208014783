"""Every environment with every trainer: short trainings, and what refusals say.

    python benchmarks/matrix.py

Those of rllib_ppo need an environment of their own (`pip install '.[rllib]'`); where Ray is
missing they are marked so, or keep what another run of this benchmark found.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from common import RESULTS, machine, save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.errors import MissingExtraError
from support.matrix import ENVS, SHORT, outcome


def main() -> None:
    kept = RESULTS / "matrix.json"
    before = json.loads(kept.read_text())["cells"] if kept.exists() else {}
    cells: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for env in ENVS:
            cells[env] = {}
            for trainer in SHORT:
                try:
                    said = outcome(env, trainer, Path(folder) / f"{env}-{trainer}")
                except MissingExtraError:
                    said = before.get(env, {}).get(trainer, "not installed")
                cells[env][trainer] = said
            print(env, *(f"{trainer}: {said}" for trainer, said in cells[env].items()), sep="\n  ")
    lines = [
        "# Every environment with every trainer",
        "",
        "`python benchmarks/matrix.py`: short trainings, 16 env steps, small rollouts, all else at",
        "its default. A refusal comes before a folder is made, and names the command that runs:",
        "`corral train ENV --trainer mappo`.",
        "",
        "| environment | " + " | ".join(SHORT) + " |",
        "|---|" + "---|" * len(SHORT),
        *(
            f"| {env} | " + " | ".join(map(_short, own.values())) + " |"
            for env, own in cells.items()
        ),
    ]
    text = "\n".join(lines)
    save("matrix", text, {"cells": cells}, machine("torch", "pettingzoo"))


def _short(said: str) -> str:
    return "refused" if said.startswith("corral train") else said


if __name__ == "__main__":
    main()
