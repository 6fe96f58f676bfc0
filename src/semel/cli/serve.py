"""`semel serve`: the reference payment service on any store."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from semel.cli.failures import ExitCode, explained
from semel.cli.parameters import DEFAULT_PREFIX, Prefix, Schema, Store
from semel.core.model import Mode
from semel.core.options import Options
from semel.errors import UsageError
from semel.opening import dialect_of
from semel.service.settings import Settings, read_clients

PORT = 8000
DEFAULTS = Options()


def serve(  # noqa: PLR0913 - one parameter for each option
    store: Store,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="The port; 0 takes a free one.")
    ] = PORT,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes; one that dies is replaced.")
    ] = 1,
    mode: Annotated[
        Mode | None, typer.Option(help="How claim, effect and answer share transactions.")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="A claim whose owner stopped is free after this."),
    ] = DEFAULTS.lease,
    idle_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="The database ends the transaction of a silent owner after this.",
        ),
    ] = DEFAULTS.idle_timeout,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Make or renew the tables first.")
    ] = False,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TOKEN",
            help="A client; repeat for more. Without any: shop-1=demo-1 and shop-2=demo-2.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTER",
            help="A body field that makes no different request, such as /metadata/sent_at.",
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECRET",
            envvar="SEMEL_SECRET",
            help="A secret for fingerprints, the current one first; repeat for older ones.",
        ),
    ] = None,
    handler_log: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Append a line whenever a handler starts."),
    ] = None,
    test_faults: Annotated[
        bool,
        typer.Option(
            "--test-faults", help="Obey the header X-Semel-Test; on a loopback address only."
        ),
    ] = False,
    schema: Schema = "",
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run the reference payment service."""
    # Only this command needs a web framework, which takes its time to import.
    from semel.service import server  # noqa: PLC0415

    with explained(store), ExitStack() as stack:
        settings = Settings(
            store=store,
            schema=schema,
            prefix=prefix,
            mode=mode,
            lease=lease,
            idle_timeout=idle_timeout,
            clients=read_clients(client or []),
            ignore=tuple(ignore or ()),
            secrets=tuple(secret or ()),
            handler_log=str(handler_log.absolute()) if handler_log else None,
        )
        if workers > 1 and dialect_of(store) == "memory":
            raise UsageError("memory:// belongs to one process: use --workers 1 or another store")
        if test_faults and not server.is_loopback(host):
            raise UsageError(
                "--test-faults lets callers kill the service: only with --host 127.0.0.1, ::1 "
                "or localhost"
            )
        server.check_log(settings.handler_log)
        asyncio.run(server.prepare(settings, migrate=migrate))
        if test_faults:
            settings = stack.enter_context(server.holding(settings))
        served = server.run(settings, host=host, port=port, workers=workers, announce=_announce)
    if not served:
        raise typer.Exit(ExitCode.USAGE)


def _announce(url: str) -> None:
    typer.echo(f"Semel reference service on {url}")
