"""rps_v0: rock-paper-scissors, round after round, against an opponent that may give itself away.

Both players show rock, paper or scissors at once. Rock beats scissors, scissors beats paper, paper
beats rock; who wins a round gets +1, the other -1; the same move is a draw, and pays 0.

| | of rps_v0 |
|---|---|
| agents | ``player_0``, ``player_1``, both at once |
| actions | Discrete(3): 0 rock, 1 paper, 2 scissors |
| action mask | all legal until the last round is played, then none |
| observation | float32 [8] of 0 and 1: what I played last, then what the other played last; |
| | one-hot each, of none, rock, paper, scissors (none before the first round) |
| reward | +1 for a round won, -1 for one lost, 0 for a draw |
| episode | ``rounds`` rounds; ends by termination |

The number of the round is not shown. Move m beats move m - 1 and loses to m + 1, modulo 3.

**Global state.** Float32 [9]: the last moves of player_0 and of player_1 as above, then which share
of the rounds has been played.

**Info** (0 or 1, of this step, 0 at reset; summed over an episode they count): won and lost, this
player won or lost the round; drawn, at both; illegal_actions, always 0: every move is legal.

There is no chance in the rules: what differs between episodes is what the players do.

**Known answers.** The only equilibrium is uniformly random play, worth 0 to both; who plays it
wins, loses and draws a third of the rounds against anybody. An opponent that plays otherwise can be
beaten: the best reply to each such player of ``corral.envs.rps_v0.baselines`` wins every round from
the second on.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries, parallel_entry
from corral.envs.rps_v0.rules import MOVES, RpsRules, RpsState

__all__ = ["MOVES", "RpsRules", "RpsState", "env", "parallel_env", "raw_env"]

parallel_env = parallel_entry(RpsRules)
raw_env, env = aec_entries(RpsRules)
