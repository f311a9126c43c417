"""The routes as the file says at this moment."""

from __future__ import annotations

from pathlib import Path

from journeyman.core.proxy.routes import Route, routes_from_json
from journeyman.proxy.log import tell


class RouteTable:
    """Reads the file again whenever it was replaced; between two requests it costs nothing.

    Args:
        path: the file, see `core/proxy/routes.py`.  Where there is none, there are no routes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._routes: dict[str, Route] = {}

    def routes(self) -> dict[str, Route]:
        """All routes by model, in the order of the file.  One that cannot be read keeps the last ones."""
        try:
            facts = self._path.stat()
            seen = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if seen != self._seen:
                self._routes = routes_from_json(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._routes = None, {}
        except (OSError, ValueError) as error:
            tell("routes_not_read", error=str(error))
        return self._routes

    def key_of(self, route: Route) -> bytes:
        """The key of a server.  Raises OSError: it is gone together with the server."""
        return Path(route.key_file).read_bytes().strip() if route.key_file else b""
