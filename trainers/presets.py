"""Settings that suit an environment better than a trainer's own; each with its reason."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS"]

PRESETS: dict[str, dict[str, Any]] = {
    # What a node forwards shows in the rewards of this step and, through queues and what
    # neighbours report, of the next few. With a longer horizon the load to come, which nobody
    # moves, is noise in every advantage: see "Discounting dfaas_v0" in benchmarks/LOG.md.
    "dfaas_v0": {"gamma": 0.5},
    # A game is paid for at its end, which is certain to come: nothing to discount. A large bonus
    # for entropy keeps self-play in all positions: where it fades to 0, the greedy policy is beaten
    # in games that it no longer meets. See "Self-play in tictactoe_v0" in benchmarks/LOG.md.
    "tictactoe_v0": {
        "num_envs": 256,
        "n_steps": 32,
        "gamma": 1.0,
        "ent_coef": 0.3,
        "ent_coef_end": 0.1,
        "net_arch": (128, 128),
    },
    # An image is taken in tile by tile (layers of 3 x 3 take ten times as long); gamma below 1
    # rewards to be done soon, and an entropy bonus that fades keeps the team from settling for
    # many small tiles: see "Learning tiles_v0" in benchmarks/LOG.md.
    "tiles_v0": {
        "num_envs": 64,
        "n_steps": 32,
        "n_minibatches": 4,
        "gamma": 0.95,
        "ent_coef": 0.01,
        "ent_coef_end": 0.0,
        "cnn_arch": (8, 16),
        "cnn_patch": 8,
    },
}
