"""tictactoe_v0: three in a row, and with other arguments any m,n,k game.

Two players put stones on empty fields in turn, ``player_1`` first. Who first has ``line`` stones in
a row, a column or a diagonal wins; a full board without such a line is a draw. The default is
tic-tac-toe: 3 x 3 fields, lines of 3. ``size=5, line=4`` is a larger game, ``size=15, line=5``
gomoku without its extra rules.

| | of tictactoe_v0 |
|---|---|
| agents | ``player_1`` (crosses), ``player_2`` (noughts), one at a time |
| actions | Discrete(R C): the field to put a stone on |
| action mask | the empty fields; all zero for who does not move, and once the game is over |
| observation | float32 [R, C, 2] of 0 and 1: own stones, the other's stones |
| episode | until a line, a full board or an illegal move: ends by termination |

R and C are rows and columns of ``size``; field number row * C + column, row by row from the top
left. (PettingZoo's own tictactoe counts column by column: the same game on a square board.)

| reward, in the step that ends the game | the player that moved | the other |
|---|--:|--:|
| completed a line | +1 | -1 |
| filled the board | 0 | 0 |
| moved illegally (under "penalise") | -1 | 0 |

All other steps pay 0. Who loses is paid in the other's step: in PettingZoo's loop ``last()`` gives
the loser its -1 together with the termination. In an episode without an illegal move the two
rewards add up to 0.

**Global state.** Float32 [2 R C + 2]: stones of player_1, stones of player_2, then one-hot who
moves (zeros once the game is over).

**Info** (0 or 1, of this step, 0 at reset; counted at the player that moved): moves; won, it
completed a line; drawn, it filled the board without one; illegal_actions. Summed over an episode
and both players, moves is its length and drawn the number of draws.

**Illegal actions**, fields that are taken, under "penalise" end the game: the offender gets -1, the
other 0. No stone is put. That is PettingZoo's custom in its classic games.

There is no chance in the rules: what differs between episodes is what the players do.

**Known answers.** On 3 x 3 fields there are 255,168 different games and 5,478 different positions,
the empty board included; between perfect players every game is a draw. Of games between uniformly
random players, player_1 wins 58.49 % (737 / 1260), player_2 28.81 % (121 / 420), and 12.70 % (8 /
63) are drawn. Perfect and random players are in ``corral.envs.tictactoe_v0.baselines``.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries
from corral.envs.tictactoe_v0.rules import LARGEST, TicTacToeRules, TicTacToeState, all_lines

__all__ = ["LARGEST", "TicTacToeRules", "TicTacToeState", "all_lines", "env", "raw_env"]

raw_env, env = aec_entries(TicTacToeRules)
