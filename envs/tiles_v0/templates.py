"""The classes of tiles_v0: their templates, and what the block means of a tile tell of them.

A picture has 3 channels of 32 x 32 pixels in 16 tiles of 8 x 8, numbered row by row. A tile is sent
at one of four levels:

| level | blocks per tile | pixels per block | values |
|---|---|---|--:|
| 0 | 1 | 8 x 8 | 3 |
| 1 | 2 x 2 | 4 x 4 | 12 |
| 2 | 4 x 4 | 2 x 2 | 48 |
| 3 | 8 x 8 | 1 | 192 |

K is the number of classes, V the number of values of a level: channel by channel, row by row.
"""

from __future__ import annotations

import functools
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = [
    "CHANNELS",
    "PIXELS",
    "SIDE",
    "TILES",
    "VALUES",
    "Classes",
    "block_means",
    "classes_of",
    "split_tiles",
    "spread",
    "suite_classes",
]

CHANNELS, SIDE, TILE = 3, 32, 8
TILES = (SIDE // TILE) ** 2
BLOCKS = (1, 2, 4, 8)  # along each side of a tile, by level
VALUES = tuple(CHANNELS * blocks**2 for blocks in BLOCKS)
PIXELS = tuple((TILE // blocks) ** 2 for blocks in BLOCKS)  # of a block

# The classes of the suite: families that look alike but for two tiles.
SEED = 20
FAMILIES, MEMBERS, TELLING = 10, 10, 2
WAVES = 6
BROAD = (0.5, 2.0)  # cycles per image of a family's pattern
COARSE, FINE = (2.0, 4.0), (5.0, 6.0)  # of what tells members apart, in even and in odd families
BROAD_SHARE, DETAIL_SHARE = 0.06, 0.08  # root mean square of the two
STEP = 2.0**-16
"""Templates are multiples of this: what the last bits of a cosine are is no matter."""


class Classes:
    """K templates, and tables of their block means.

    ``templates`` float64 [K, 3, 32, 32]; for each level ``means[level]`` float64 [16, V, K] and
    ``norms[level]``, half the squared length of these, [16, K]; ``digest`` names them.
    """

    def __init__(self, templates: Array) -> None:
        self.templates = templates
        self.digest = hashlib.sha256(np.ascontiguousarray(templates).tobytes()).hexdigest()[:16]
        tiles = split_tiles(templates)  # [K, 16, 3, 8, 8]
        self.means, self.norms = [], []
        for level, values in enumerate(VALUES):
            flat = block_means(tiles.reshape(-1, CHANNELS, TILE, TILE), level)
            table = flat.reshape(len(templates), TILES, values).transpose(1, 2, 0)
            self.means.append(np.ascontiguousarray(table))
            self.norms.append(np.square(table).sum(axis=1) / 2)

    def __len__(self) -> int:
        return len(self.templates)

    def __reduce__(self) -> Any:
        """A pickle holds own templates alone; those of the suite are made again."""
        if self is suite_classes():
            return suite_classes, ()
        return Classes, (self.templates,)


@functools.cache
def suite_classes() -> Classes:
    """The 100 classes of the suite, the same in every process and version.

    Ten families of ten. A family has a pattern of its own, of less than 2 cycles per image, and two
    telling tiles, in which each of its members adds a pattern of its own: of 2 to 4 cycles in even
    families, of 5 to 6 in odd ones. Each pattern is a sum of six plane waves for each channel,
    around 0.5. A wave of 4 cycles has no mean over a tile, one of 6 hardly any over half a tile.
    """
    # Raw bits: NumPy promises these to stay, its distributions not.
    bits = np.random.PCG64(SEED)
    family = np.repeat(_waves(bits, FAMILIES, BROAD), MEMBERS, axis=0) * BROAD_SHARE
    detail = _waves(bits, FAMILIES * MEMBERS, COARSE)
    fine = np.arange(FAMILIES).repeat(MEMBERS) % 2 == 1
    detail[fine] = _waves(bits, FAMILIES * MEMBERS, FINE)[fine]
    order = _uniform(bits, FAMILIES, TILES).argsort(axis=1)
    telling = np.repeat(order < TELLING, MEMBERS, axis=0).reshape(-1, 4, 4)
    visible = telling.repeat(TILE, axis=1).repeat(TILE, axis=2)[:, None]  # bool [K, 1, 32, 32]
    templates = 0.5 + family + DETAIL_SHARE * np.where(visible, detail, 0.0)
    templates = np.round(templates / STEP) * STEP
    templates.flags.writeable = False
    return Classes(templates)


def _uniform(bits: np.random.PCG64, *shape: int) -> Array:
    """Numbers of [0, 1)."""
    raw = bits.random_raw(math.prod(shape))
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _waves(bits: np.random.PCG64, count: int, cycles: tuple[float, float]) -> Array:
    """Sums of plane waves of ``cycles`` per image, mean square 1: float64 [count, 3, 32, 32]."""
    shape = (count, CHANNELS, WAVES)
    frequency = cycles[0] + (cycles[1] - cycles[0]) * _uniform(bits, *shape)
    direction, phase = 2 * np.pi * _uniform(bits, *shape), 2 * np.pi * _uniform(bits, *shape)
    place = 2 * np.pi * np.arange(SIDE) / SIDE
    across = (frequency * np.cos(direction))[..., None, None] * place
    down = (frequency * np.sin(direction))[..., None, None] * place[:, None]
    summed = np.cos(across + down + phase[..., None, None]).sum(axis=2)
    return np.asarray(summed / math.sqrt(WAVES / 2))


def classes_of(templates: Any) -> Classes:
    """The classes of one's own ``templates``: floats [K, 3, 32, 32] in [0, 1], or an .npy file.

    Raises ValueError, naming what is wrong; OSError where there is no such file.
    """
    given = templates
    if isinstance(templates, str | Path):
        try:
            given = np.load(templates, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"templates={templates}: not an .npy file of numbers") from error
    try:
        images = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"templates: {type(given).__name__} is no array; give floats [K, 3, 32, 32] in [0, 1]"
        ) from None
    shape = (CHANNELS, SIDE, SIDE)
    if images.ndim != 4 or images.shape[1:] != shape:
        hint = ""
        if images.ndim == 4 and images.shape[1:] == (SIDE, SIDE, CHANNELS):
            hint = "; its channels are last: give templates.transpose(0, 3, 1, 2)"
        raise ValueError(f"templates of shape {images.shape}: give [K, 3, 32, 32]{hint}")
    if len(images) < 2:
        raise ValueError(f"templates of {len(images)} classes: give 2 or more, there is a guess")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # NaN too
        hint = "; divide by 255" if np.asarray(given).dtype == np.uint8 else ""
        raise ValueError(f"templates from {low:g} to {high:g}: give floats in [0, 1]{hint}")
    images.flags.writeable = False
    return Classes(images)


# --- Tiles and blocks ----------------------------------------------------------------------------


def split_tiles(images: Array) -> Array:
    """Images [R, 3, 32, 32] as tiles [R, 16, 3, 8, 8]."""
    side = SIDE // TILE
    apart = images.reshape(len(images), CHANNELS, side, TILE, side, TILE)
    return np.asarray(apart.transpose(0, 2, 4, 1, 3, 5)).reshape(
        len(images), TILES, CHANNELS, TILE, TILE
    )


def block_means(tiles: Array, level: int) -> Array:
    """Return the values sent of ``tiles`` [R, 3, 8, 8]: block means, float64 [R, V]."""
    blocks = BLOCKS[level]
    size = TILE // blocks
    apart = tiles.reshape(len(tiles), CHANNELS, blocks, size, blocks, size)
    # One axis after the other: the same for a tile alone.
    sums = apart.sum(axis=5, dtype=np.float64).sum(axis=3)
    return np.asarray(sums / size**2).reshape(len(tiles), -1)


def spread(means: Array, level: int) -> Array:
    """Return block means [R, V] spread over pixels [R, 3, 8, 8]."""
    blocks = BLOCKS[level]
    apart = means.reshape(len(means), CHANNELS, blocks, blocks)
    size = TILE // blocks
    return np.asarray(apart.repeat(size, axis=2).repeat(size, axis=3))
