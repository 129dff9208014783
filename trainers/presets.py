"""Settings that suit an environment better than a trainer's own; each with its reason."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS"]

PRESETS: dict[str, dict[str, Any]] = {
    # What a node forwards shows in the rewards of this step and, through queues and what
    # neighbours report, of the next few. With a longer horizon the load to come, which nobody
    # moves, is noise in every advantage: see "Discounting dfaas_v0" in benchmarks/LOG.md.
    "dfaas_v0": {"gamma": 0.5},
    # A game is paid for at its end, which is certain to come: nothing to discount. Without a bonus
    # for entropy self-play settles on a few games, and is lost in any other.
    "tictactoe_v0": {
        "copies": 256,
        "n_steps": 32,
        "gamma": 1.0,
        "ent_coef": 0.1,
        "ent_coef_end": 0.0,
        "net_arch": (128, 128),
    },
}
