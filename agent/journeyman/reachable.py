"""What of this host is reached from elsewhere, put together: who registers what, and what the proxy shows."""

from __future__ import annotations

from journeyman import __version__
from journeyman.adapters.durable_json import JsonFile
from journeyman.core.proxy.routes import Route
from journeyman.core.registration import Registrar, shown_to_others
from journeyman.loops.fleet_service_loop import FleetServices
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.loops.proxy_loop import ProxyLoop
from journeyman.loops.registration_loop import RegistrationLoop, Served
from journeyman.ports import Clock, ControlPlane
from journeyman.settings import Settings


def routes_of_this_host(settings: Settings, models: ModelServerLoop, services: FleetServices) -> list[Route]:
    """Where each model answers, and which of them others may use."""
    routes = models.routes()
    return list(routes) if settings.reach is None else shown_to_others(routes, services.served())


def registrations_of_this_host(
    settings: Settings,
    plane: ControlPlane,
    clock: Clock,
    *,
    node: str,
    services: FleetServices,
    proxy: ProxyLoop,
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
        served=Served(services.served, services.are_known, proxy.why_not_reachable),
    )
