"""tiles_v0: two unlike agents send an image tile by tile, until it is known what it shows.

The image is of one of 100 classes, and hidden from the receiver. ``tile_0`` picks a tile,
``level_0`` decides how finely it is sent. The receiver computes from all that it has got how
probable each class is. Both agents see what the receiver sees, and share a budget and a reward.

| | of tiles_v0 |
|---|---|
| agents | ``tile_0``, the tile selector, and ``level_0``, the resolution selector; in turn |
| actions of tile_0 | Discrete(16): tiles of 8 x 8 pixels, numbered row by row |
| actions of level_0 | Discrete(4): 1, 4, 16 or 64 block means per channel |
| action mask of tile_0 | tiles that were not sent yet |
| action mask of level_0 | levels that the budget can pay |
| observation | ``image`` uint8 [3, 32, 32], as received; ``vector`` float32 [K + 18] in [0, 1] |
| episode | at most 16 turns of two steps; ends by termination |

K is the number of classes, 100. Whoever is not to act has an all-zero mask.

**The image** is the template of its class, every class equally likely, plus Gaussian noise of
deviation 0.3 for every pixel and channel, not clipped. Templates are low-frequency patterns in
[0, 1]; ``corral.envs.tiles_v0.templates.suite_classes`` tells how they are made. In short: ten
families of ten look alike but for two tiles of each family, and differ there so finely that a
tile's mean tells little. ``templates`` takes one's own.

**A turn.** tile_0 picks a tile; then level_0 picks a level, and the tile is sent:

| level | block means per channel | pixels of a block | values sent |
|---|--:|---|--:|
| 0 | 1 | 8 x 8 | 3 |
| 1 | 4 | 4 x 4 | 12 |
| 2 | 16 | 2 x 2 | 48 |
| 3 | 64 | 1 | 192 |

A tile is sent once, so that what was sent coarsely stays coarse. Values are paid from a budget of
384. With ``levels=n`` there are only the n coarsest; with ``levels=1`` level_0 has a single action,
every tile is sent as its mean, and the budget is 12: four tiles of sixteen, which tile_0 chooses.

**What the receiver knows.** Block means are floats: the mean of a block of n pixels is that of the
template plus noise of variance 0.3^2 / n. With a uniform prior the posterior of the classes is
exact, and computed in float64. An episode ends before a turn in which not even the lowest level
could be paid, when a class has a probability of 0.95 or more, or when all tiles are sent.

**Reward.** The team's is the gain in the log-probability (natural) of the true class, minus 0.002
for each value sent; it is paid when a tile is sent. The two share it: each is paid half of it, and
the team's return, the sum, is log P(true class) at the end + log K - 0.002 values.

**Observation**, the same for both but for one entry. In the image unsent tiles are mid-grey (128);
sent ones show their block means, times 255, rounded and clipped (the posterior is computed from the
floats). The vector holds, in this order: the probabilities of the K classes; the share of the
budget that is left; the other's last action, scaled: (action + 1) / (number of its actions), 0
where it has not acted yet; for each of the 16 tiles whether it was sent. So level_0 reads off which
tile is to be sent.

**Global state.** Float32 [2 K + 33] in [0, 1]: the true class, one-hot; the probabilities; the
share of the budget left; how finely each tile was sent, (level + 1) / (number of levels), 0 where
it was not; the tile that is picked but not sent, one-hot. A critic may thus know the true class.

**Info** (of this step, 0 at reset): values and tiles, sent in this step; gain, in the
log-probability of the true class; correct, +1 where the most probable class becomes the true one
and -1 where it ceases to be, so that the sum over an episode tells whether it is right at the end;
all these level_0's only. illegal_actions, each agent's own.

**Illegal actions** under "penalise" (a tile that was sent, a level that cannot be paid): nothing is
sent, the team's reward is -1, and the turn is over: tile_0 is next. Who plays on like that is
stopped by ``max_cycles``, 32 steps; legal play never needs more.

Known answers: no team can get more than log K = 4.605 from 100 classes. With ``levels=1`` four
random tiles bring 2.39, the four that greedy picks 2.97. What reference policies get
is in ``corral.envs.tiles_v0.baselines``.

Version history: v0, the first.
"""

from __future__ import annotations

from corral.envs.entries import aec_entries
from corral.envs.tiles_v0.rules import TilesRules, TilesState

__all__ = ["TilesRules", "TilesState", "env", "raw_env"]

raw_env, env = aec_entries(TilesRules)
