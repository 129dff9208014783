"""A disk that is full: the error names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corral.envs.render.video import write_video
from corral.files import naming, write_folder
from support.messages import refused

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


def test_a_clip(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs the extra render")
    clip = tmp_path / "clip.gif"
    clip.symlink_to(FULL)
    with refused(OSError, filename=str(clip)):
        write_video(clip, [np.zeros((8, 8, 3), dtype=np.uint8)], 4)


def test_an_export(tmp_path: Path) -> None:
    def write(folder: Path) -> list[Path]:
        FULL.write_text("weights")
        return []

    with refused(OSError, filename=str(tmp_path / "export")):
        write_folder(tmp_path / "export", write, overwrite=False)


def test_an_error_that_names_a_path_keeps_it(tmp_path: Path) -> None:
    with refused(FileNotFoundError, filename=str(tmp_path / "a")), naming(tmp_path / "b"):
        (tmp_path / "a").read_text()
