"""What of this host is reached from elsewhere, put together: who registers what, and what the proxy shows."""

from __future__ import annotations

from journeyman import __version__
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.host_addresses import has_address
from journeyman.core.proxy.routes import Route
from journeyman.core.registration import Registrar, shown_to_others
from journeyman.loops.fleet_service_loop import FleetServices
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.loops.proxy_loop import ProxyLoop
from journeyman.loops.registration_loop import RegistrationLoop, Served
from journeyman.ports import Clock, ControlPlane, JsonObject
from journeyman.settings import Settings


def routes_of_this_host(settings: Settings, models: ModelServerLoop, services: FleetServices) -> list[Route]:
    """Where each model answers, and which of them others may use."""
    routes = models.routes()
    return list(routes) if settings.reach is None else shown_to_others(routes, services.served())


class Reachability:
    """Whether clients on other machines can connect, where they shall.

    Args:
        settings: whether and where.
        proxy: which listens for them.
    """

    def __init__(self, settings: Settings, proxy: ProxyLoop) -> None:
        self._reach = settings.reach
        self._key_file = settings.root.reach_key_file
        self._proxy = proxy

    def why_not(self) -> str:
        """Why they cannot at this moment; empty if they can."""
        if self._reach is None:
            return "nobody has asked for it: proxy_reach_address is not set"
        why_not = self._proxy.why_not_reachable()
        if not why_not and not has_address(self._reach.address):
            return f"{self._reach.address} is no address of this host any more"
        return why_not

    def shown(self) -> JsonObject:
        """What people are shown; the key is not among it, only its file."""
        if self._reach is None or not self._proxy.is_wanted:
            return {}
        why_not = self.why_not()
        return {
            "reachableAt": str(self._reach),
            "reachable": not why_not,
            "whyNotReachable": why_not,
            "reachKeyFile": str(self._key_file) if self._reach.has_key else None,
        }


def registrations_of_this_host(
    settings: Settings,
    plane: ControlPlane,
    clock: Clock,
    *,
    node: str,
    services: FleetServices,
    reachability: Reachability,
) -> RegistrationLoop:
    """The loop that tells the cluster where the services of this host are reached."""
    reach = settings.reach
    return RegistrationLoop(
        plane=plane,
        clock=clock,
        settings=settings,
        registrar=None if reach is None else Registrar(node, __version__, reach),
        node=node,
        memory=JsonFile(settings.root.registrations),
        served=Served(services.served, services.are_known, reachability.why_not),
    )
