"""Calls of environments for mypy: it must report each line with an ignore, and no other line.

``make types`` checks this file. A comment that ignores nothing is an error, too.
"""

from __future__ import annotations

from typing import Any, Literal

import corral
from corral.adapters import make_batch
from corral.envs import arena_v0, tictactoe_v0

arena_v0.parallel_env()
arena_v0.parallel_env(width=5, walls="mask")
arena_v0.parallel_env(render_mode="ansi", width=5)
arena_v0.env("ansi", width=5)
tictactoe_v0.raw_env(size=(3, 4))
arena_v0.parallel_env(num_agent=2)  # type: ignore[call-overload]
arena_v0.env(width="5")  # type: ignore[call-overload]
tictactoe_v0.env(sizes=3)  # type: ignore[call-overload]

corral.make("arena_v0", width=5, api="aec", render_mode="ansi").reset()
corral.make("two_step_v0").reset()
corral.make("classic/chess-v6", any_argument=1).reset()
corral.make(lambda size: arena_v0.parallel_env(width=size), size=3).reset()
make_batch("corral/dfaas-v0", num_envs=2, queue=3).reset()
make_batch("CartPole-v1", num_envs=2, sutton_barto_reward=True).reset()
name: Literal["arena_v0", "dfaas_v0"]
for name in ("arena_v0", "dfaas_v0"):
    corral.make(name, max_cycles=3).reset()
settings: dict[str, Any] = {"width": 3, "walls": "mask"}
corral.make("arena_v0", **settings).reset()
make_batch("arena_v0", 2, **settings).reset()
corral.make("dfaas_v0", num_agent=2).reset()  # type: ignore[attr-defined]
corral.make("arena_v0", width="5").reset()  # type: ignore[attr-defined]
make_batch("dfaas_v0", num_agent=2).reset()  # type: ignore[attr-defined]
