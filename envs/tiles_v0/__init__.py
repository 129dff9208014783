"""tiles_v0: two different agents send an image tile by tile until its class is recognized.

The image belongs to one of 100 classes; the receiver must recognize the class. ``tile_0`` picks a
tile and ``level_0`` picks the resolution at which it is sent. The receiver computes the probability
of each class from the received tiles. Both agents see the receiver's knowledge. They share a budget
and a reward.

| property | value |
|---|---|
| agents | ``tile_0``, the tile selector, and ``level_0``, the resolution selector; in turn |
| actions of tile_0 | Discrete(16): tiles of 8 x 8 pixels, numbered row by row |
| actions of level_0 | Discrete(4): 1, 4, 16 or 64 block means per channel |
| action mask of tile_0 | unsent tiles |
| action mask of level_0 | levels within the remaining budget |
| observation | ``image`` uint8 [3, 32, 32], as received; ``vector`` float32 [K + 18] in [0, 1] |
| episode | at most 16 turns of two steps; ends by termination |

K is the number of classes, 100. The waiting agent has an all-zero mask.

**The image** is the template of its class plus Gaussian noise. All classes are equally likely. The
noise has standard deviation 0.3 for every pixel and channel, and is not clipped. Templates are
low-frequency patterns in [0, 1]; ``corral.envs.tiles_v0.templates.suite_classes`` describes them.
There are ten families of ten classes. The classes of a family differ only in two tiles, and so
finely that the mean of a tile reveals little. ``templates`` replaces them by custom templates.

**A turn.** tile_0 picks a tile; then level_0 picks a level, and the tile is sent:

| level | block means per channel | pixels of a block | values sent |
|---|--:|---|--:|
| 0 | 1 | 8 x 8 | 3 |
| 1 | 4 | 4 x 4 | 12 |
| 2 | 16 | 2 x 2 | 48 |
| 3 | 64 | 1 | 192 |

A tile is sent only once; a coarse tile cannot be refined. The values are paid from a budget of 384.
With ``levels=n`` only the n coarsest levels exist. With ``levels=1`` level_0 has a single action
and every tile is sent as its mean. The budget is then 12, so tile_0 chooses four of sixteen tiles.

**Receiver.** Block means are floats. The mean of a block of n pixels is the mean of the template
plus noise of variance 0.3^2 / n. With a uniform prior the posterior over classes is exact; it is
computed in float64. The episode ends before a turn if the budget cannot pay the lowest level, if a
class has a probability of at least 0.95, or if all tiles are sent.

**Reward.** The team reward is the gain in the natural log-probability of the true class, minus
0.002 for each value sent. It is paid when a tile is sent, half to each agent. The team return, the
sum of both agents' returns, is log P(true class) at the end + log K - 0.002 values.

**Observation.** Both agents get the same observation, except for one entry. In the image unsent
tiles are mid-gray (128). Sent tiles show their block means, times 255, rounded and clipped; the
posterior uses the floats. The vector contains, in this order: the probabilities of the K classes;
the share of the budget that remains; the other agent's last action, scaled to (action + 1) /
(number of actions), or 0 before its first action; and 16 flags for the sent tiles. The scaled
action tells level_0 which tile will be sent.

**Global state.** Float32 [2 K + 33] in [0, 1]: the true class, one-hot; the probabilities; the
share of the budget that remains; the resolution of each sent tile, (level + 1) / (number of
levels), or 0 for unsent tiles; the tile that is picked but not sent, one-hot. A centralized critic
can therefore see the true class.

**Info** (of this step, 0 at reset). values and tiles: number sent in this step. gain: gain in the
log-probability of the true class. correct: +1 if the most probable class becomes the true class,
and -1 if it stops being the true class; the sum over an episode is 1 if the final guess is right.
These four are always 0 for tile_0. illegal_actions: this agent's illegal actions.

**Illegal actions** (a sent tile, or a level beyond the budget): under "penalise" nothing is sent,
the team reward is -1, and the turn passes to tile_0. Repeated illegal play is truncated after
``max_cycles`` = 32 steps; legal play never needs more.

Known answers: the maximum team return with 100 classes is log K = 4.605. With ``levels=1`` four
random tiles get 2.39, and the four tiles chosen by greedy get 2.97. The module
``corral.envs.tiles_v0.baselines`` lists the returns of the reference policies.

Version history: v0, the first version.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries
from corral.envs.tiles_v0.rules import TilesRules, TilesState

__all__ = ["TilesRules", "TilesState", "env", "raw_env"]

raw_env, env = aec_entries(TilesRules)
