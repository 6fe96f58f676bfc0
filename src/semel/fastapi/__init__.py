"""FastAPI: routes that are guarded after everything that FastAPI itself checks.

    api = APIRouter(route_class=semel.fastapi.route_class(guard, scope=tenant))

See `route_class`.
"""

from __future__ import annotations

from semel.fastapi.route import route_class

__all__ = ["route_class"]
