"""Small trace files, good ones, for tests that read them or spoil them."""

from __future__ import annotations

import re
from pathlib import Path

GOOD = (
    "time,node,arrivals,capacity\n"
    "0,a,1,10\n"
    "0,b,2,20\n"
    "60,a,3,30\n"
    "60,b,4,40\n"
    "120,a,5,50\n"
    "120,b,6,60\n"
)

THREE = GOOD.replace(",capacity", "").replace(",10", "").replace(",20", "").replace(",30", "")
THREE = re.sub(r",[456]0\n", "\n", THREE)
"""The same without capacity."""

QUOTED = GOOD.replace("0,a,", '"0","a",').replace('6"0"', '"60"').replace('12"0"', '"120"')
"""The same with some fields in quotes."""


def write(folder: Path, content: str | bytes, name: str = "loads.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
