"""rps_v0: repeated rock-paper-scissors against an opponent that may be predictable.

In each round both players show rock, paper or scissors at once. Rock beats scissors, scissors beats
paper, and paper beats rock. The winner of a round gets +1 and the loser -1. Equal moves are a draw
and pay 0.

| | rps_v0 |
|---|---|
| agents | ``player_0``, ``player_1``, both at once |
| actions | Discrete(3): 0 rock, 1 paper, 2 scissors |
| action mask | all legal until the last round is played, then none |
| observation | float32 [8] of 0 and 1: the agent's last move, then the opponent's last move, |
| | each one-hot over none, rock, paper, scissors (none before the first round) |
| reward | +1 for a round won, -1 for a round lost, 0 for a draw |
| episode | 10 rounds, or as many as ``rounds`` sets; ends by termination |

The observation does not contain the number of the round. Move m beats move m - 1 and loses to move
m + 1, modulo 3.

**Global state.** float32 [9]: the last moves of player_0 and player_1, one-hot as above, then the
share of rounds played.

**Info** of this step, 0 or 1, 0 at reset: won and lost for the agent; drawn, for both;
illegal_actions, always 0 because all moves are legal. Sums over an episode are counts.

The rules are deterministic: only the players' moves differ between episodes.

**Known answers.** The only equilibrium is uniformly random play, with value 0 for both. It wins,
loses and draws a third of the rounds against any opponent. Every other opponent can be beaten. The
best reply to each other player of ``corral.envs.rps_v0.baselines`` wins every round from the second
on.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries, parallel_entry
from corral.envs.rps_v0.rules import MOVES, RpsRules, RpsState

__all__ = ["MOVES", "RpsRules", "RpsState", "env", "parallel_env", "raw_env"]

parallel_env = parallel_entry(RpsRules)
raw_env, env = aec_entries(RpsRules)
