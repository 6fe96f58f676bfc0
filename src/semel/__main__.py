"""`python -m semel` is the command `semel`."""

from __future__ import annotations

from semel.cli import main

if __name__ == "__main__":
    main()
