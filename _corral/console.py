"""What all commands share: where they print, and how they end on a mistake."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich.console import Console

from corral.errors import CorralError, TraceWarning

__all__ = ["err", "out", "reported"]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Command = TypeVar("Command", bound=Callable[..., Any])


def reported(command: Command) -> Command:
    """Mistakes that a user can mend end the command in one message, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default", TraceWarning)
                result = command(*args, **kwargs)
        except (CorralError, ValueError, OSError) as error:
            err.print(f"corral: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(2) from None
        for warning in caught:
            err.print(f"corral: {warning.message}", markup=False, soft_wrap=True)
        return result

    return run  # type: ignore[return-value]
