"""Classes of tiles_v0: their templates and the block means of their tiles.

An image has 3 channels of 32 x 32 pixels, in 16 tiles of 8 x 8 pixels, numbered row by row. A tile
is sent at one of four levels:

| level | blocks per tile | pixels per block | values |
|---|---|---|--:|
| 0 | 1 | 8 x 8 | 3 |
| 1 | 2 x 2 | 4 x 4 | 12 |
| 2 | 4 x 4 | 2 x 2 | 48 |
| 3 | 8 x 8 | 1 | 192 |

K is the number of classes. V is the number of values of a level, ordered by channel, then by row.
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
BLOCKS = (1, 2, 4, 8)  # blocks along each side of a tile, by level
VALUES = tuple(CHANNELS * blocks**2 for blocks in BLOCKS)
PIXELS = tuple((TILE // blocks) ** 2 for blocks in BLOCKS)  # pixels of a block, by level

# The classes of the suite: the classes of a family differ only in two tiles.
SEED = 20
FAMILIES, MEMBERS, TELLING = 10, 10, 2
WAVES = 6
BROAD = (0.5, 2.0)  # cycles per image of a family's pattern
COARSE, FINE = (2.0, 4.0), (5.0, 6.0)  # cycles of member patterns in even and odd families
BROAD_SHARE, DETAIL_SHARE = 0.06, 0.08  # root mean square of family and member patterns
STEP = 2.0**-16
"""Templates are multiples of this, so that the last bits of a cosine do not matter."""


class Classes:
    """K templates, and tables of their block means.

    ``templates`` is float64 [K, 3, 32, 32]. For each level, ``means[level]`` is float64 [16, V, K]
    and ``norms[level]`` is half the squared length of these means, [16, K]. ``digest`` is a hash
    of the templates.
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
        """Pickle only custom templates; the templates of the suite are rebuilt."""
        if self is suite_classes():
            return suite_classes, ()
        return Classes, (self.templates,)


@functools.cache
def suite_classes() -> Classes:
    """Return the 100 classes of the suite, the same in every process and version.

    There are ten families of ten classes. A family has a pattern with less than 2 cycles per image,
    and two distinctive tiles. In these tiles each member adds a member pattern: 2 to 4 cycles per
    image in even families, 5 to 6 in odd families. Each pattern is a sum of six plane waves per
    channel, around 0.5. A wave of 4 cycles has mean zero over a tile. A wave of 6 cycles has a mean
    near zero over half a tile.
    """
    # Raw bits: NumPy guarantees that they stay the same, but not its distributions.
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
    """Return numbers in [0, 1)."""
    raw = bits.random_raw(math.prod(shape))
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _waves(bits: np.random.PCG64, count: int, cycles: tuple[float, float]) -> Array:
    """Return sums of plane waves of ``cycles`` per image, mean square 1: [count, 3, 32, 32]."""
    shape = (count, CHANNELS, WAVES)
    frequency = cycles[0] + (cycles[1] - cycles[0]) * _uniform(bits, *shape)
    direction, phase = 2 * np.pi * _uniform(bits, *shape), 2 * np.pi * _uniform(bits, *shape)
    place = 2 * np.pi * np.arange(SIDE) / SIDE
    across = (frequency * np.cos(direction))[..., None, None] * place
    down = (frequency * np.sin(direction))[..., None, None] * place[:, None]
    summed = np.cos(across + down + phase[..., None, None]).sum(axis=2)
    return np.asarray(summed / math.sqrt(WAVES / 2))


def classes_of(templates: Any) -> Classes:
    """Return the classes of custom ``templates``: floats [K, 3, 32, 32] in [0, 1], or an .npy file.

    Raises ValueError if the templates are invalid, and OSError if the file cannot be read.
    """
    loaded = templates
    if isinstance(templates, str | Path):
        try:
            loaded = np.load(templates, allow_pickle=False)
        except ValueError as error:
            raise ValueError(
                f"templates={templates}: not an .npy file of numbers. Save a float array with "
                "numpy.save"
            ) from error
    try:
        images = np.array(loaded, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"templates: {type(loaded).__name__} is not an array of numbers; pass floats "
            "[K, 3, 32, 32] in [0, 1]"
        ) from None
    shape = (CHANNELS, SIDE, SIDE)
    if images.ndim != 4 or images.shape[1:] != shape:
        hint = ""
        if images.ndim == 4 and images.shape[1:] == (SIDE, SIDE, CHANNELS):
            hint = "; the channels are last: pass templates.transpose(0, 3, 1, 2)"
        raise ValueError(f"templates of shape {images.shape}: pass an array [K, 3, 32, 32]{hint}")
    if len(images) < 2:
        raise ValueError(f"templates of {len(images)} classes: pass 2 or more classes")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # also refuses NaN
        hint = "; divide by 255" if np.asarray(loaded).dtype == np.uint8 else ""
        raise ValueError(f"templates from {low:g} to {high:g}: pass floats in [0, 1]{hint}")
    images.flags.writeable = False
    return Classes(images)


# --- Tiles and blocks ----------------------------------------------------------------------------


def split_tiles(images: Array) -> Array:
    """Split images [R, 3, 32, 32] into tiles [R, 16, 3, 8, 8]."""
    side = SIDE // TILE
    apart = images.reshape(len(images), CHANNELS, side, TILE, side, TILE)
    return np.asarray(apart.transpose(0, 2, 4, 1, 3, 5)).reshape(
        len(images), TILES, CHANNELS, TILE, TILE
    )


def block_means(tiles: Array, level: int) -> Array:
    """Return the block means of ``tiles`` [R, 3, 8, 8] at ``level``: float64 [R, V]."""
    blocks = BLOCKS[level]
    size = TILE // blocks
    apart = tiles.reshape(len(tiles), CHANNELS, blocks, size, blocks, size)
    # Sum one axis at a time: the result is then the same for a single tile.
    sums = apart.sum(axis=5, dtype=np.float64).sum(axis=3)
    return np.asarray(sums / size**2).reshape(len(tiles), -1)


def spread(means: Array, level: int) -> Array:
    """Repeat block means [R, V] over their pixels [R, 3, 8, 8]."""
    blocks = BLOCKS[level]
    apart = means.reshape(len(means), CHANNELS, blocks, blocks)
    size = TILE // blocks
    return np.asarray(apart.repeat(size, axis=2).repeat(size, axis=3))
