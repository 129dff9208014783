"""Write pictures as an animated GIF, or as a video if ffmpeg is installed.

Pictures of games have flat colors and change little from step to step. The GIF uses this: all
frames share one palette, and a frame has only the pixels that change.
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
from corral.files import naming

__all__ = ["SUFFIXES", "Picture", "encoder_of", "gif", "shrunk", "write_video"]

SUFFIXES = (".gif", ".mp4")

Picture = npt.NDArray[np.uint8]  # [H, W, 3]

COLORS = 128
CLEAR = 255  # palette index of an unchanged pixel
SAMPLES = 12  # number of frames from which the palette is made
NEAR = 4  # largest color error of a pixel that is not redrawn: text has smooth edges
LAST = 2.0  # extra seconds for the last frame


def encoder_of(path: str | Path) -> str:
    """Return the encoder for a file of that name: "pillow", or the path of ffmpeg.

    Raises ValueError for a suffix that is not in ``SUFFIXES``, and MissingExtraError without an
    encoder.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"out={path}: give a name that ends in {' or '.join(SUFFIXES)}")
    if suffix == ".gif":
        require("PIL", extra="render", purpose="write a GIF")
        return "pillow"
    if ffmpeg := shutil.which("ffmpeg"):
        return ffmpeg
    try:
        return str(require("imageio_ffmpeg", extra="", purpose="").get_ffmpeg_exe())
    except ImportError:
        raise MissingExtraError(
            f"{path}: a video encoder is missing. Install ffmpeg, or run pip install "
            "imageio-ffmpeg, which contains it; or write a .gif, which needs no encoder"
        ) from None


def write_video(path: str | Path, pictures: Sequence[Picture], fps: float) -> None:
    """Write ``pictures`` of equal size with ``fps`` pictures per second.

    The last picture is shown longer. Raises the errors of ``encoder_of``, ValueError without
    pictures, and CorralError with the message of an encoder that fails.
    """
    encoder = encoder_of(path)
    if not pictures or fps <= 0:
        raise ValueError(
            f"{len(pictures)} pictures at fps={fps}: give one or more pictures, and fps above 0"
        )
    if len(sizes := list(dict.fromkeys(picture.shape[:2] for picture in pictures))) > 1:
        first, second = (f"{width} x {height}" for height, width in sizes[:2])
        raise ValueError(f"the pictures have sizes {first} and {second}; give pictures of one size")
    if encoder == "pillow":
        with naming(Path(path)):
            Path(path).write_bytes(gif(pictures, fps))
        return
    height, width = pictures[0].shape[:2]
    command = [encoder, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    # 4:2:0 works in all video players. It needs an even width and height.
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(path)]
    frames = [*pictures, *[pictures[-1]] * round(LAST * fps)]
    data = b"".join(np.ascontiguousarray(frame).tobytes() for frame in frames)
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise CorralError(f"{encoder} could not write {path}: {message}")


def shrunk(picture: Picture, width: int) -> Picture:
    """Return ``picture`` scaled down to at most ``width`` pixels width."""
    if picture.shape[1] <= width:
        return picture
    image = require("PIL.Image", extra="render", purpose="resize pictures")
    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    small = image.fromarray(picture).resize((width, height), image.Resampling.LANCZOS)
    return np.asarray(small, dtype=np.uint8)


# --- GIF -----------------------------------------------------------------------------------------


def gif(pictures: Sequence[Picture], fps: float) -> bytes:
    """Return an animated GIF that repeats forever, one frame for each picture."""
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
        # Pillow's save() would merge equal frames, but each step needs a separate frame.
        if number == 0:
            _write(file, plugin.getheader(frame, info={"loop": 0, **about})[0])
        _write(file, plugin.getdata(frame, (left, top), disposal=1, **about))
    file.write(b";")
    return file.getvalue()


def _write(file: io.BytesIO, blocks: Iterable[bytes]) -> None:
    for block in blocks:
        file.write(block)


def _bounds(changed: Array) -> tuple[int, int, int, int]:
    """Return the bounding box of changed pixels; one pixel if nothing changed."""
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not len(rows):
        return 0, 0, 1, 1
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _palette(pictures: Sequence[Picture]) -> Array:
    """Return up to ``COLORS`` colors of the pictures: [P, 3].

    First the most frequent colors, then the colors with the largest error without a palette entry.
    So even small squares of a legend keep their color.
    """
    sampled = sorted({round(p) for p in np.linspace(0, len(pictures) - 1, SAMPLES).tolist()})
    codes = np.concatenate([_codes(pictures[number]).reshape(-1) for number in sampled])
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
    """Finds the nearest palette color, with a cache by color."""

    def __init__(self, palette: Array) -> None:
        self.palette = palette
        self._cache = np.full(
            1 << 24, CLEAR, dtype=np.uint8
        )  # by color code; CLEAR: not yet computed

    def index(self, picture: Picture) -> Array:
        """Return palette indices of a picture: uint8 [H, W]."""
        codes = _codes(picture)
        new = np.unique(codes[self._cache[codes] == CLEAR])
        for part in np.array_split(new, len(new) // 4096 + 1):
            distance = ((_parts(part)[:, None] - self.palette) ** 2).sum(axis=2)  # [R, P]
            self._cache[part] = distance.argmin(axis=1)
        return np.asarray(self._cache[codes])


def _codes(picture: Picture) -> Array:
    """Return colors as numbers, int32 [H, W]."""
    red, green, blue = np.moveaxis(picture.astype(np.int32), -1, 0)
    return np.asarray(red << 16 | green << 8 | blue)


def _parts(codes: Array) -> Array:
    """Return numbers [P] as colors [P, 3]."""
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1)
