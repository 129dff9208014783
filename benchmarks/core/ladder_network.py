"""A network for connect_four_v3: what surrounds each field where a piece would land.

    corral train classic/connect_four-v3 --model benchmarks/core/ladder_network.py:make

For each of the seven columns one and the same small network sees the 8 x 7 fields around the field
where a piece would land: every line through it, and through the field above. What it makes of them,
and a layer over the whole board, are the features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["Landing", "make"]

ROWS, COLUMNS = 6, 7
ABOVE, BELOW, BESIDE = 4, 3, 3
"""Fields that are seen of a landing: upwards, downwards, to either side."""


class Landing(nn.Module):
    """Features of planes [B, 6, 7, 2]: ``each`` of a column, ``units`` of all."""

    index: torch.Tensor  # int64 [7 landing rows, 7 columns, W], fields of the padded board

    def __init__(self, hidden: int = 64, each: int = 16, units: int = 128) -> None:
        super().__init__()
        down = torch.arange(ABOVE + 1 + BELOW)[:, None]
        right = torch.arange(2 * BESIDE + 1)
        row = torch.arange(ROWS + 1)[:, None, None, None] + down  # the first is of a full column
        column = torch.arange(COLUMNS)[:, None, None] + right
        window = row * (COLUMNS + 2 * BESIDE) + column  # [7, 7, 8, 7]
        self.register_buffer("index", window.flatten(2))
        self.padding = (BESIDE, BESIDE, ABOVE + 1, BELOW)
        fields = 2 * self.index.shape[-1]
        self.near = nn.Sequential(
            nn.Linear(fields, hidden), nn.ReLU(), nn.Linear(hidden, each), nn.ReLU()
        )
        self.all = nn.Sequential(nn.Linear(COLUMNS * each + 2 * ROWS * COLUMNS, units), nn.ReLU())
        self.out_features = COLUMNS * each + units
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, 2**0.5)
                nn.init.zeros_(layer.bias)

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Return float32 [B, out_features]; outside the board all fields are both players'."""
        board, count = planes.permute(0, 3, 1, 2), len(planes)  # [B, 2, 6, 7]
        empty = (1 - board.sum(1)).sum(1).long()  # [B, 7], one more than the landing's row
        padded = nn.functional.pad(board, self.padding, value=1.0).flatten(2)
        window = self.index[empty, torch.arange(COLUMNS, device=planes.device)]  # [B, 7, W]
        at = window.reshape(count, 1, -1).expand(-1, 2, -1)
        seen = torch.gather(padded, 2, at).reshape(count, 2, COLUMNS, -1)
        columns = self.near(seen.transpose(1, 2).flatten(2)).flatten(1)
        return torch.cat([columns, self.all(torch.cat([columns, planes.flatten(1)], 1))], 1)


def make(observation_space: Any, *, role: str) -> Landing:
    """Return the network of an actor, or of ippo's critic, which sees the same."""
    return Landing()
