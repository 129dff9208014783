"""Options of ``corral train`` for what looks on: callbacks, metrics, sinks, stop criteria."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from corral.cli.options import import_from_here, whole

__all__ = ["CallbackOption", "EvaluateEvery", "MetricOption", "SinkOption", "StopOption"]
__all__ += ["listeners_of"]

CallbackOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<file.py:name>",
        help="A corral.Callback, or a function that is called with each row of progress.csv; may "
        "be repeated.",
    ),
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<name=file.py:name>",
        help="A function that gives a number of each whole episode: its mean, min and max go into "
        "progress.csv. May be repeated.",
    ),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<name>",
        help="Where rows of progress.csv go besides: a name, or file.py:name; may be repeated.",
    ),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<column>=number>",
        help="Stop when a column of progress.csv meets a bound: --stop 'return_team>=15' or "
        "'wall_s>=600', in quotation marks; may be repeated.",
    ),
]
EvaluateEvery = Annotated[
    int | None,
    whole("Evaluate greedy play every so many env steps; the best checkpoint is the best by it."),
]


def listeners_of(
    callback: list[str] | None,
    metric: list[str] | None,
    sink: list[str] | None,
    stop: list[str] | None,
    evaluate_every: int | None,
) -> dict[str, Any]:
    """Return the arguments of ``corral.train`` that the options name. Raises ValueError."""
    from corral.trainers import Evaluate, StopWhen

    import_from_here()  # what a file of one's own imports lies beside it
    named: dict[str, str] = {}
    for text in metric or []:
        name, equals, function = text.partition("=")
        if not equals or not name or not function:
            raise ValueError(f"--metric {text}: give name=file.py:function")
        named[name] = function
    callbacks: list[Any] = [*(callback or [])]
    if evaluate_every is not None:
        callbacks.append(Evaluate(evaluate_every))
    for text in stop or []:
        try:
            callbacks.append(StopWhen(text))
        except ValueError as error:
            raise ValueError(
                f"--stop {text}: {error}. In quotation marks, as a shell reads > otherwise"
            ) from error
    return {"callbacks": callbacks, "metrics": named, "sinks": sink or []}
