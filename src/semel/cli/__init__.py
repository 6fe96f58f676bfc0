"""The command `semel`; `semel.cli.app` has its commands.

Exit codes: 0 all went well, 1 what was asked for did not hold, 2 the command or
its set-up is wrong, 3 the store can not be reached.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and leave with its exit code."""
    try:
        from semel.cli.app import run  # noqa: PLC0415 - its libraries are an optional extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("semel"):
            raise
        sys.stderr.write(
            f"semel: error: {error.name} is not installed, which the command line needs: "
            "pip install 'semel[cli]'\n"
        )
        sys.exit(2)
    sys.exit(run())
