"""What a node of dfaas_v0 observes, beside its mask: float32 features [B, N, F].

All of them begin with the own load: see ``Every`` for the default, one pair of numbers for each
other node.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array
from corral.envs.dfaas_v0.network import Network

__all__ = ["Every"]


class Every:
    """The own a, c and q, then spare and lost of every other node, in cyclic order; all scaled."""

    def __init__(self, network: Network, queue: int) -> None:
        self.network = network
        self.queue = max(queue, 1)
        self.size = 3 + 2 * (len(network.links) - 1)

    def space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.size,), np.float32)

    def of(self, load: Array, queue: Array, reported: Array) -> Array:
        """Return features [B, N, F] of the scaled ``load`` [B, N, 2], arrivals and capacity, the
        ``queue`` [B, N] in requests, and the scaled reports [B, N, 2], spare and lost."""
        b, n = queue.shape
        features = np.empty((b, n, self.size), dtype=np.float32)
        features[..., :2] = load
        features[..., 2] = queue / self.queue
        others = reported.take(self.network.others, axis=1)  # [B, N, N-1, 2]
        if not self.network.complete:
            others *= self.network.linked[..., None]
        features[..., 3:] = others.reshape(b, n, 2 * (n - 1))
        return features
