"""``corral serve``: a run decides for servers, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.declared import Declared, declared
from corral.cli.mistakes import expect
from corral.cli.output import out, reported
from corral.cli.run_options import OwnModel

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
            help="Folder of a run of dfaas_v0, or a checkpoint: RUN@best; or of what corral export "
            "wrote; or of corral advise: its verdict."
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
            help="Names that requests may have: those of the run; further ones besides, by name; "
            "or any, for a rule or a policy that decides for nodes which come and go.",
        ),
    ] = "run",
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: every one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<NAME>",
            help="A name, or an address, by which clients call this server, besides localhost and "
            "the address of --host. Repeat it for more.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<ORIGIN>",
            help="A site whose pages may ask, for example https://ops.example.com. Repeat it for "
            "more; default: none.",
        ),
    ] = None,
    model: OwnModel = None,
) -> None:
    """Answer what each node does with its requests, over HTTP.

    POST /decide takes the numbers of the moment as JSON, GET /healthz and GET /metrics tell how it
    goes: docs/gateway.md. Ends with Ctrl-C or SIGTERM.
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

    with listen(host, port) as bound:  # before anything that takes longer
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
            out.print("Whoever reaches this address may ask it: there is no password.")
        answer(
            service,
            bound,
            lambda url: out.print(f"POST {url}/decide", soft_wrap=True),
            hosts=allow_host or (),
            origins=allow_origin or (),
        )
