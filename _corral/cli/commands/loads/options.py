"""Options of dfaas_v0 that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Arrivals",
    "Beyond",
    "ForwardCost",
    "LinkLimit",
    "Queue",
    "ReportDelay",
    "SecondOffer",
    "WaitCost",
]

Arrivals = Annotated[
    str | None,
    typer.Option(
        metavar="<known|unknown>",
        help="Whether nodes know a step's requests before they act; with a gateway: unknown.",
    ),
]

Beyond = Annotated[
    str | None,
    typer.Option(
        metavar="<clip|rule>",
        help="Play of numbers above the scales of a team: clip limits its observations; rule lets "
        "all nodes follow the rule of a residual team. Default: as trained.",
    ),
]

Queue = Annotated[
    int | None,
    typer.Option(help="Requests that a node can queue until the next step; default: 0."),
]
ForwardCost = Annotated[float | None, typer.Option(help="Cost of a forwarded request; default: 0.")]
WaitCost = Annotated[
    float | None, typer.Option(help="Cost of a queued request per step; default: 0.")
]
LinkLimit = Annotated[
    int | None, typer.Option(help="Requests per directed link and step; default: no limit.")
]
SecondOffer = Annotated[
    bool | None,
    typer.Option(
        "--second-offer/--no-second-offer",
        help="Offer a request that a neighbor refused once more, to all neighbors; default: yes. "
        "Without it, the request is lost.",
    ),
]
ReportDelay = Annotated[
    int | None,
    typer.Option(
        help="Steps until nodes know the spare capacity of the other nodes; 0: at once; default: 1."
    ),
]
