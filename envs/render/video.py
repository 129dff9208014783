"""Pictures one after the other as a file: an animated GIF, or a video where ffmpeg is installed.

Pictures of games are flat colors of which little changes from step to step. A GIF is written to
suit that: one palette for all frames, and of each frame only the pixels that change.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.envs.core import Array
from corral.errors import CorralError, MissingExtraError
from corral.extras import require

__all__ = ["SUFFIXES", "Picture", "encoder_of", "gif", "shrunk", "write_video"]

SUFFIXES = (".gif", ".mp4")

Picture = npt.NDArray[np.uint8]  # [H, W, 3]

COLORS = 128
CLEAR = 255  # the index that leaves a pixel as it was
SAMPLES = 12  # frames that the palette is made from
NEAR = 4  # levels by which a pixel may be off before it is drawn anew: text has smooth edges
LAST = 2.0  # seconds for which the last frame stands longer


def encoder_of(path: str | Path) -> str:
    """Return what writes a file of that name: "pillow", or the path of ffmpeg.

    Raises ValueError for another suffix than ``SUFFIXES``, MissingExtraError where it is missing.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"out={path}: give a name that ends in {' or '.join(SUFFIXES)}")
    if suffix == ".gif":
        require("PIL", extra="render", purpose="write a GIF")
        return "pillow"
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(require("imageio_ffmpeg", extra="", purpose="").get_ffmpeg_exe())
    except ImportError:
        raise MissingExtraError(
            f"{path}: no encoder for video is installed. Install ffmpeg, or pip install "
            "imageio-ffmpeg, which brings one; a .gif needs nothing more"
        ) from None


def write_video(path: str | Path, pictures: Sequence[Picture], fps: float) -> None:
    """Write ``pictures``, all of one size, ``fps`` a second; the last one stands a little longer.

    Raises what ``encoder_of`` raises, ValueError without pictures, and CorralError with the words
    of an encoder that fails.
    """
    encoder = encoder_of(path)
    if not pictures or fps <= 0:
        raise ValueError(f"{len(pictures)} pictures at fps={fps}: give one or more, above 0")
    if len(sizes := list(dict.fromkeys(picture.shape[:2] for picture in pictures))) > 1:
        first, second = (f"{width} x {height}" for height, width in sizes[:2])
        raise ValueError(
            f"the environment draws pictures of {first} and of {second}; a clip takes one size"
        )
    if encoder == "pillow":
        Path(path).write_bytes(gif(pictures, fps))
        return
    height, width = pictures[0].shape[:2]
    command = [encoder, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    # What every player plays: 4:2:0, for which width and height must be even.
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(path)]
    frames = [*pictures, *[pictures[-1]] * round(LAST * fps)]
    data = b"".join(np.ascontiguousarray(frame).tobytes() for frame in frames)
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip() or f"it ended with {done.returncode}"
        raise CorralError(f"{encoder} could not write {path}: {words}")


def shrunk(picture: Picture, width: int) -> Picture:
    """Return ``picture`` with at most ``width`` columns."""
    if picture.shape[1] <= width:
        return picture
    image = require("PIL.Image", extra="render", purpose="resize pictures")
    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    small = image.fromarray(picture).resize((width, height), image.Resampling.LANCZOS)
    return np.asarray(small, dtype=np.uint8)


# --- GIF -----------------------------------------------------------------------------------------


def gif(pictures: Sequence[Picture], fps: float) -> bytes:
    """Return an animated GIF that repeats for ever, one frame for each picture."""
    image = require("PIL.Image", extra="render", purpose="write a GIF")
    plugin = require("PIL.GifImagePlugin", extra="render", purpose="write a GIF")
    palette = _palette(pictures)  # [P, 3], P <= COLORS
    table = np.zeros((CLEAR + 1, 3), dtype=np.uint8)
    table[: len(palette)] = palette
    nearest = _Nearest(palette)
    file = io.BytesIO()
    current = np.full(pictures[0].shape[:2], CLEAR)
    for number, picture in enumerate(pictures):
        index = nearest.index(picture)
        off = np.abs(table[current].astype(np.int16) - picture).max(axis=2) > NEAR
        changed = (off & (index != current)) if number else np.ones_like(off)
        left, top, right, bottom = _bounds(changed)
        current = np.where(changed, index, current)
        part = np.where(changed, index, CLEAR)[top:bottom, left:right].astype(np.uint8)
        frame = image.fromarray(part)
        frame.putpalette(table.tobytes())
        lasts = 1 / fps + (LAST if number == len(pictures) - 1 else 0)
        about: dict[str, Any] = {"transparency": CLEAR, "duration": round(1000 * lasts)}
        # Pillow's own saving would merge frames that are alike: here each step has its frame.
        if number == 0:
            _write(file, plugin.getheader(frame, info={"loop": 0, **about})[0])
        _write(file, plugin.getdata(frame, (left, top), disposal=1, **about))
    file.write(b";")
    return file.getvalue()


def _write(file: io.BytesIO, blocks: Iterable[bytes]) -> None:
    for block in blocks:
        file.write(block)


def _bounds(changed: Array) -> tuple[int, int, int, int]:
    """Return the box of all that changed; one pixel where nothing did."""
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not len(rows):
        return 0, 0, 1, 1
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _palette(pictures: Sequence[Picture]) -> Array:
    """Return up to ``COLORS`` colors [P, 3] that occur: the most frequent, then those that would be
    furthest off without a color of their own, so that small squares of a legend keep theirs."""
    some = sorted({round(p) for p in np.linspace(0, len(pictures) - 1, SAMPLES).tolist()})
    codes = np.concatenate([_codes(pictures[number]).reshape(-1) for number in some])
    unique, counts = np.unique(codes, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    colors, weight = _parts(unique[order]), np.sqrt(counts[order])
    if len(colors) <= COLORS:
        return colors
    chosen = list(range(COLORS // 2))
    off = np.full(len(colors), np.inf)  # squared distance to the nearest chosen color
    while True:
        for at in chosen[-1:] if len(chosen) > COLORS // 2 else chosen:
            off = np.minimum(off, ((colors - colors[at]) ** 2).sum(axis=1))
        if len(chosen) == COLORS:
            return np.asarray(colors[chosen])
        chosen.append(int((off * weight).argmax()))


class _Nearest:
    """For each color the nearest of a palette; a color is searched for once."""

    def __init__(self, palette: Array) -> None:
        self.palette = palette
        self._found = np.full(1 << 24, CLEAR, dtype=np.uint8)  # by code; CLEAR: not yet found

    def index(self, picture: Picture) -> Array:
        """Return the indices in the palette: uint8 [H, W]."""
        codes = _codes(picture)
        new = np.unique(codes[self._found[codes] == CLEAR])
        for some in np.array_split(new, len(new) // 4096 + 1):
            away = ((_parts(some)[:, None] - self.palette) ** 2).sum(axis=2)  # [R, P]
            self._found[some] = away.argmin(axis=1)
        return np.asarray(self._found[codes])


def _codes(picture: Picture) -> Array:
    """Colours as numbers, int32 [H, W]."""
    red, green, blue = np.moveaxis(picture.astype(np.int32), -1, 0)
    return np.asarray(red << 16 | green << 8 | blue)


def _parts(codes: Array) -> Array:
    """Return numbers [P] as colors [P, 3]."""
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1)
