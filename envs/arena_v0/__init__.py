"""arena_v0: an explorer that collects new fields, and a blocker that runs into it.

Two agents walk on a grid. The explorer is paid for each field that it enters for the first time,
the blocker for collisions with the explorer. Both choose at once; who moves first is drawn anew in
every step. With its default arguments this is the MultiAgentArena of RLlib's tutorial of 2021.

| | of arena_v0 |
|---|---|
| agents | ``agent_1``, the explorer, begins at row 0, column 0 |
| | ``agent_2``, the blocker, begins in the opposite corner |
| actions | Discrete(4): 0 up, 1 right, 2 down, 3 left |
| action mask | all legal; with ``walls="mask"`` only moves that stay on the grid |
| observation | float32 [2 H W] of 0 and 1: where I am, one-hot, then where the other is, one-hot |
| | with ``observation="visited"`` float32 [3 H W]: also the fields the explorer has been to |
| episode | ``max_cycles`` steps; ends by truncation alone |

H is ``height``, W is ``width``; field number row * W + column.

**A step.** The agent drawn for it moves first, then the other:

1. A move onto the field where the other stands at that moment is a collision: the mover stays.
2. A move off the grid is a bump: with ``walls="bump"`` it enters the field on which it stands.
3. Else the mover enters the field next to its own.

A field is new when the explorer enters it for the first time in the episode. Before the first step
it has entered none, so that a bump at the start finds a new field.

| reward, the first that applies | explorer | blocker |
|---|--:|--:|
| a collision by either in this step | -1 | +1 |
| the explorer entered a new field | +1 | -0.1 |
| else | -0.5 | -0.1 |

A field that is entered in a step with a collision is visited from then on, but pays nothing.

**Global state.** Float32 [3 H W]: explorer one-hot, blocker one-hot, fields visited.

**Info** (0 or 1, of this step, 0 at reset; summed over an episode they count): new_field, a field
that was paid for, and fields_visited, paid or not, both the explorer's only; collision, this agent
ran into the other; illegal_actions.

**Illegal actions** (with ``walls="mask"``) under "penalise" move nobody and enter no field.

Known answers: an explorer that finds a new field in every step gets 1 a step, and the blocker -0.1:
0.9 a step for both is the most there is, 90 in 100 steps. A collision is worth 0 to both together,
a step without anything -0.6. What simple players get is in ``corral.envs.arena_v0.baselines``;
random play -8.4.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.arena_v0.rules import ArenaRules, ArenaState
from corral.envs.entries import aec_entries, parallel_entry

__all__ = ["ArenaRules", "ArenaState", "env", "parallel_env", "raw_env"]

parallel_env = parallel_entry(ArenaRules)
raw_env, env = aec_entries(ArenaRules)
