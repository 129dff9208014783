"""Options of dfaas_v0 that several commands have, in the same words."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Arrivals",
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
        help="Whether nodes know the requests of a step before they choose. A gateway does not.",
    ),
]

Queue = Annotated[
    int | None,
    typer.Option(help="Requests that a node can hold until the next step; default: 0."),
]
ForwardCost = Annotated[float | None, typer.Option(help="Cost of a forwarded request; default: 0.")]
WaitCost = Annotated[
    float | None, typer.Option(help="Cost of a request that waits a step; default: 0.")
]
LinkLimit = Annotated[
    int | None, typer.Option(help="Requests per directed link and step; default: no limit.")
]
SecondOffer = Annotated[
    bool | None,
    typer.Option(
        "--second-offer/--no-second-offer",
        help="Offer refused requests once more to all neighbours; default: yes.",
    ),
]
ReportDelay = Annotated[
    int | None,
    typer.Option(
        help="Steps after which nodes know what others had spare; 0: at once; default: 1."
    ),
]
