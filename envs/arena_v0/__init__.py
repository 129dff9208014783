"""arena_v0: an explorer that collects new fields, and a blocker that runs into it.

Two agents walk on a grid. The explorer is paid for each field that it enters for the first time.
The blocker is paid for collisions with the explorer. Both agents choose a move simultaneously. The
agent that moves first is drawn at random in every step. With default arguments this environment is
the MultiAgentArena of RLlib's 2021 tutorial.

| property | value |
|---|---|
| agents | ``agent_1``, the explorer, starts at row 0, column 0 |
| | ``agent_2``, the blocker, starts in the opposite corner |
| actions | Discrete(4): 0 up, 1 right, 2 down, 3 left |
| action mask | all moves are legal; with ``walls="mask"`` only moves that stay on the grid |
| observation | float32 [2 H W] of 0 and 1: own position, one-hot; other agent's position, one-hot |
| | with ``observation="visited"`` float32 [3 H W]: also the fields visited by the explorer |
| | with ``planes=True`` the same numbers as float32 [2, H, W] or [3, H, W] |
| episode | ``max_cycles`` steps; ends by truncation only |

H is ``height`` and W is ``width``. The number of a field is row * W + column.

**A step.** The agent that was drawn moves first, then the other agent moves:

1. A move onto the field currently occupied by the other agent is a collision. The mover stays.
2. A move off the grid is a bump. With ``walls="bump"`` the mover enters its current field again.
3. Any other move enters the adjacent field.

A field is new if the explorer enters it for the first time in the episode. The start field counts
as not yet entered, so a bump in the first step finds a new field.

| reward (first row that applies) | explorer | blocker |
|---|--:|--:|
| either agent collided in this step | -1 | +1 |
| the explorer entered a new field | +1 | -0.1 |
| otherwise | -0.5 | -0.1 |

A field that is entered in a step with a collision is marked as visited, but pays nothing.

**Global state.** Float32 [3 H W]: explorer one-hot, blocker one-hot, visited fields.

**Info.** Each value is 0 or 1 and refers to this step; it is 0 at reset. The sum over an episode is
a count. new_field: the explorer was paid for a field. fields_visited: the explorer entered a field
for the first time, paid or not. Both are always 0 for the blocker. collision: this agent ran into
the other agent. illegal_actions: this agent's action was illegal.

**Illegal actions** (with ``walls="mask"``): under "penalise" the agent stays and enters no field.

Known answers: an explorer that finds a new field in every step gets 1 per step, and the blocker
gets -0.1. The maximum team return is therefore 0.9 per step: 90 in 100 steps. The team reward is 0
in a step with a collision and -0.6 in a step without a new field. The module
``corral.envs.arena_v0.baselines`` lists the returns of the reference players; random play gets
-8.4.

Version history: v0, the first version.
"""

from __future__ import annotations

from corral.envs.arena_v0.rules import ArenaRules, ArenaState
from corral.envs.entries import aec_entries, parallel_entry

__all__ = ["ArenaRules", "ArenaState", "env", "parallel_env", "raw_env"]

parallel_env = parallel_entry(ArenaRules)
raw_env, env = aec_entries(ArenaRules)
