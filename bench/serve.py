"""One measured server: `python -m bench.serve bench.apps.on_psycopg:guarded`.

uvicorn with uvloop and httptools, one process, no access log. It prints its port, and
stops when its standard input ends. With `--profile FILE` it profiles itself and
writes FILE at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import threading
from pathlib import Path

import uvicorn

from bench.profilers import PROFILERS


def stop_at_end_of_input(server: uvicorn.Server) -> None:
    """Wait until whoever started this process closes its pipe, or is gone; then stop."""
    sys.stdin.read()
    server.should_exit = True


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--profiler", choices=PROFILERS, default="cprofile")
    arguments = parser.parse_args()
    config = uvicorn.Config(
        arguments.app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
    )
    config.load()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(config)
    threading.Thread(target=stop_at_end_of_input, args=(server,), daemon=True).start()
    with contextlib.ExitStack() as stack:
        if arguments.profile:
            stack.enter_context(PROFILERS[arguments.profiler](arguments.profile))
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
