"""OpenSpiel's games through Shimmy: an illegal action is an error of OpenSpiel's own."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("shimmy", reason="needs the extra openspiel")
pytest.importorskip("pyspiel", reason="needs the extra openspiel")

from corral.adapters import make_zoo_batch
from support.frameworks import example

pytestmark = pytest.mark.filterwarnings("default")


def test_a_short_training_beats_random_players_in_both_seats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two random players return 0.3 and -0.3; a draw is 0, a loss -1."""
    monkeypatch.chdir(tmp_path)
    openspiel = example("openspiel")
    run = openspiel.train("tic_tac_toe", steps=4_000, seed=0)
    assert openspiel.against_random(run, "tic_tac_toe", "player_0", games=200) > 0.4
    assert openspiel.against_random(run, "tic_tac_toe", "player_1", games=200) > 0.1


@pytest.mark.parametrize("game", ["tic_tac_toe", "leduc_poker", "goofspiel"])
def test_masks_of_infos_hold(game: str) -> None:
    """In turns, with chance and hidden cards, and with simultaneous moves."""
    with make_zoo_batch(functools.partial(example("openspiel").make, game), 2, seed=0) as batch:
        batch.reset()
        rng = np.random.default_rng(0)
        ended = forbidden = 0
        for _ in range(200):
            actions = batch.sample_actions(rng)
            step = batch.step(actions)
            ended += 0 if step.finished is None else len(step.finished.rows)
            for place, agent in enumerate(batch.agents):
                mask = step.observations[agent]["action_mask"][step.acting[:, place]]
                forbidden += int((mask == 0).sum())
    assert ended > 3
    assert forbidden > 100
