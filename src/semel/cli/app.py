"""All commands together, and what every one of them has in common."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from semel.cli.demo import demo
from semel.cli.failures import EPILOG, ExitCode, complain
from semel.cli.keys import keys
from semel.cli.migrate import migrate
from semel.cli.serve import serve

app = typer.Typer(
    name="semel",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, serve, migrate):
    app.command(epilog=EPILOG)(command)
app.add_typer(keys)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        arguments: without the name of the command; those of this process by default.

    Returns:
        The exit code.
    """
    try:
        code = app(
            args=None if arguments is None else list(arguments),
            prog_name="semel",
            standalone_mode=False,
        )
    except typer.TyperException as error:
        complain(f"{error.format_message()} Try `semel --help`.")
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    return int(code or 0)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - how Typer calls it
    if asked:
        typer.echo(f"semel {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return version("semel")
    except PackageNotFoundError:
        return "(run from its sources)"


@app.callback(invoke_without_command=True)
def semel(
    context: typer.Context,
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Retries are inevitable; with Semel their effects happen once."""
    del show_version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
