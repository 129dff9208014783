"""Values of files beside the annotations of what they are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from corral.data import Trace
from corral.errors import ConfigError
from corral.trainers.file_types import require_argument, require_type

REWARD = Callable[..., Any] | str | None
LOAD = str | Path | Trace
IMAGES = Any
FUNCTION = {"type": "function", "name": "a:b", "sha256": None}
ARRAY = {"type": "array", "digest": "0", "file": "templates.npy"}
TRACE = {"type": "trace", "name": "edge3", "digest": "0"}


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("module:name", REWARD),
        ("module", REWARD),
        (3, REWARD),
        ("load.csv", LOAD),
        ("/etc/passwd", LOAD),
        ("images.npy", IMAGES),
        (FUNCTION, LOAD),
        (FUNCTION, int),
        (TRACE, REWARD),
        (TRACE, str),
        (ARRAY, REWARD),
        ({"type": ["trace"]}, LOAD),
        ({"type": "module", "name": "os"}, IMAGES),
    ],
)
def test_no_text_and_no_other_record_stands_for_code_or_a_file(value: Any, hint: Any) -> None:
    with pytest.raises(ConfigError):
        require_argument("config.json", value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (None, REWARD),
        (FUNCTION, REWARD),
        ("edge3", LOAD),
        (TRACE, LOAD),
        (ARRAY, IMAGES),
        ([[0.5]], IMAGES),
        ("every", str),
        ((1, 2), Sequence[int]),
    ],
)
def test_records_names_of_bundled_traces_and_plain_values_are_taken(value: Any, hint: Any) -> None:
    require_argument("config.json", value, hint)


@pytest.mark.parametrize("value", [10**400, -(10**400), True, "1", None])
def test_what_is_no_float_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        require_type(Path("run.toml"), "gamma", value, float)
