"""Calls of environments for mypy: it must report each line with an ignore, and no other line.

``make types`` checks this file. A comment that ignores nothing is an error, too.
"""

from __future__ import annotations

from corral.envs import arena_v0, tictactoe_v0

arena_v0.parallel_env()
arena_v0.parallel_env(width=5, walls="mask")
arena_v0.parallel_env(render_mode="ansi", width=5)
arena_v0.env("ansi", width=5)
tictactoe_v0.raw_env(size=(3, 4))
arena_v0.parallel_env(num_agent=2)  # type: ignore[call-overload]
arena_v0.env(width="5")  # type: ignore[call-overload]
tictactoe_v0.env(sizes=3)  # type: ignore[call-overload]
