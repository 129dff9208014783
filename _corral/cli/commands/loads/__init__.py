"""The commands for ``dfaas_v0``: make load traces; replay, rehearse, advise, export, serve."""

from __future__ import annotations

import typer

from corral.cli.commands.loads import advise, export, rehearse, replay, serve, trace

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this package to the ``corral`` command."""
    app.add_typer(trace.app, name="trace")
    app.command()(replay.replay)
    app.command()(rehearse.rehearse)
    app.command()(advise.advise)
    app.command()(export.export)
    app.command()(serve.serve)
