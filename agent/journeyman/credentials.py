"""Which credential of this node has to be renewed, and the loop that does it."""

from __future__ import annotations

from dataclasses import replace

from journeyman import __version__
from journeyman.adapters.client_certificate import CertificateFile, X509Certificates
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.token_file import TokenFile
from journeyman.enrolment import Enrolment
from journeyman.errors import NotFoundError
from journeyman.loops.certificate_loop import CertificateLoop
from journeyman.loops.token_loop import TokenLoop
from journeyman.model.resources import FLEET_NODES
from journeyman.ports import Clock, Collection
from journeyman.renewing import RenewalLoop
from journeyman.settings import Settings

NODES = Collection(FLEET_NODES.group, FLEET_NODES.version, FLEET_NODES.plural)


def renewal_of(settings: Settings, plane: HttpControlPlane, clock: Clock, node: str) -> RenewalLoop:
    """The loop for this node.  A file elsewhere is somebody else's to renew.

    Args:
        settings: all settings.
        plane: the agent's client, as whom the next credential is asked for.
        clock: time.
        node: the name of the FleetNode.
    """
    root = settings.root
    if plane.access.certificate_file == str(root.certificate_file):
        return _certificate_loop(settings, plane, clock, node)
    file = TokenFile(root.token_file)
    is_ours = plane.access.token_file == str(root.token_file)
    return TokenLoop(
        api=plane,
        clock=clock,
        read=file.read if is_ours else str,
        write=file.write,
        interval_seconds=settings.token_check_seconds,
    )


def _certificate_loop(
    settings: Settings, plane: HttpControlPlane, clock: Clock, node: str
) -> CertificateLoop:
    root, certificates = settings.root, X509Certificates()

    async def prove(certificate: str, key: str) -> None:
        access = replace(
            plane.access, certificate_file="", key_file="", certificate_data=certificate, key_data=key
        )
        newcomer = HttpControlPlane(settings, clock, version=__version__, access=access)
        try:
            await newcomer.get(NODES.named(node))
        except NotFoundError:
            pass  # Whoever may hear that is let in.
        finally:
            await newcomer.aclose()

    return CertificateLoop(
        enrolment=Enrolment(
            api=plane,
            certificates=certificates,
            memory=JsonFile(root.certificate_request),
            clock=clock,
            server=plane.access.server,
            node=node,
            life_seconds=settings.certificate_life_seconds,
        ),
        certificates=certificates,
        keeper=CertificateFile(root.certificate_file),
        clock=clock,
        offset_seconds=plane.clock_offset_seconds,
        prove=prove,
        fraction=settings.certificate_renewal_fraction,
        interval_seconds=settings.token_check_seconds,
    )
