"""tictactoe_v0: three in a row; arguments make it any m,n,k game.

Two players place stones on empty fields in turn; ``player_1`` starts. The first player with
``line`` stones in a row, a column or a diagonal wins. A full board without a winning line is a
draw. The default is tic-tac-toe: 3 x 3 fields, lines of 3. ``size=5, line=4`` is a larger game.
``size=15, line=5`` is gomoku without its extra rules.

| property | value |
|---|---|
| agents | ``player_1`` (crosses), ``player_2`` (noughts); one acts at a time |
| actions | Discrete(R C): the field on which to place a stone |
| action mask | the empty fields; all zero for the waiting player, and after the end |
| observation | float32 [R, C, 2] of 0 and 1: own stones, the other player's stones |
| episode | ends by termination: at a line, a full board or an illegal move |

R and C are the rows and columns of ``size``. The number of a field is row * C + column, counted
from the top left. (PettingZoo's tictactoe counts column by column: the same game on a square
board.)

| reward in the step that ends the game | player that moved | other player |
|---|--:|--:|
| completed a line | +1 | -1 |
| filled the board | 0 | 0 |
| moved illegally (under "penalise") | -1 | 0 |

All other steps pay 0. A losing player gets its -1 in the winner's step: in PettingZoo's loop,
``last()`` returns this -1 together with the termination. Without an illegal move the two returns
add up to 0.

**Global state.** Float32 [2 R C + 2]: stones of player_1, stones of player_2, then the player to
move as a one-hot (zeros after the end of the game).

**Info.** Each value is 0 or 1 and refers to this step; it is 0 at reset. A value is set only for
the player that moved. moves: it moved. won: it completed a line. drawn: it filled the board without
a line. illegal_actions: its move was illegal. Summed over an episode and both players, moves is the
length of the game and drawn is the number of draws.

**Illegal actions** (occupied fields): under "penalise" the game ends without placing a stone. The
player that moved gets -1 and the other player 0, as in PettingZoo's classic games.

The rules are deterministic: episodes differ only by the players' moves.

**Known answers.** On 3 x 3 fields there are 255,168 different games and 5,478 different positions,
including the empty board. Between perfect players every game is a draw. Between uniformly random
players, player_1 wins 58.49 % (737 / 1260), player_2 wins 28.81 % (121 / 420), and 12.70 % (8 / 63)
are drawn. The module ``corral.envs.tictactoe_v0.baselines`` has perfect and random players.

Version history: v0, the first version.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries
from corral.envs.tictactoe_v0.rules import LARGEST, TicTacToeRules, TicTacToeState, all_lines

__all__ = ["LARGEST", "TicTacToeRules", "TicTacToeState", "all_lines", "env", "raw_env"]

raw_env, env = aec_entries(TicTacToeRules)
