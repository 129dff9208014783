"""``corral serve``: decide for servers over HTTP, with a run or a rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.declared import Declared, declared
from corral.cli.mistakes import expect
from corral.cli.output import out, reported
from corral.cli.run_options import RunModel

if TYPE_CHECKING:
    from corral.loads.serve.service import Service

__all__ = ["serve"]


def _service_of() -> Callable[..., Service]:
    from corral.loads.serve.service import service_of

    return service_of


@declared(_service_of)
@reported
def serve(
    run: Annotated[
        str | None,
        typer.Argument(
            help="Folder of a run of dfaas_v0, or a checkpoint: RUN@best. Or a folder written by "
            "corral export, or by corral advise, to serve its verdict."
        ),
    ] = None,
    rule: Declared = ...,
    fallback: Declared = ...,
    shadow: Annotated[Declared, typer.Option(metavar="<FILE>")] = ...,
    margin: Declared = ...,
    arrivals: Declared = ...,
    nodes: Annotated[
        str,
        typer.Option(
            metavar="run|any|NAME,...",
            help="Node names accepted in requests. run: the nodes of the run; NAME,...: these "
            "names also; any: all names. Nodes outside the run need a rule, or a policy for any "
            "set of nodes.",
        ),
    ] = "run",
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free port.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<NAME>",
            help="Name or address that clients use for this server, in addition to localhost and "
            "the address of --host; may be repeated.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<ORIGIN>",
            help="Website allowed to send requests, for example https://ops.example.com; may be "
            "repeated. Default: none.",
        ),
    ] = None,
    model: RunModel = None,
) -> None:
    """Serve each node's decisions about its requests over HTTP.

    POST /decide takes the current measurements as JSON; GET /healthz and GET /metrics report the
    service's state. See docs/gateway.md. Ends with Ctrl-C or SIGTERM.
    """
    from corral.extras import require
    from corral.trainers.runs.run import load_run

    expect("serve", run)
    assert run is not None
    for module in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        require(module, extra="serve", purpose="serve a run")
    from corral.loads.export.standalone import ABOUT
    from corral.loads.serve.advised import ADVICE
    from corral.loads.serve.app import listen
    from corral.loads.serve.app import serve as answer
    from corral.loads.serve.door import LOOPBACK

    with listen(host, port) as bound:  # bind the port before the slower steps
        is_run = not any((Path(run) / name).is_file() for name in (ABOUT, ADVICE))
        source = load_run(run, model=model) if is_run else run
        service = _service_of()(
            source,
            rule=rule,
            fallback=fallback,
            shadow=shadow,
            margin=margin,
            arrivals=arrivals,
            nodes=nodes if nodes in ("run", "any") else nodes.split(","),
        )
        for line in service.lines:
            out.print(line, soft_wrap=True)
        if host not in LOOPBACK:
            out.print("No password: every client that reaches this address can send requests.")
        answer(
            service,
            bound,
            lambda url: out.print(f"POST {url}/decide", soft_wrap=True),
            hosts=allow_host or (),
            origins=allow_origin or (),
        )
