"""The blocks of docs/it_does_not_learn.md that listen to a training."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "it_does_not_learn.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """Return the code of the block whose first line is the comment ``# name``."""
    code = re.search(rf"```python\n(# {re.escape(name)}\n.*?)```", PAGE, flags=re.DOTALL)
    assert code is not None, name
    return code[1]
