"""How requests reach a service: over HTTP/1.1 or HTTP/2, or inside this process."""

from semel.check.wire.protocol import Race, UnsupportedError, Wire

__all__ = ["Race", "UnsupportedError", "Wire"]
