"""What the agent needs of the world, as small protocols whose docstrings are contracts.

Adapters under `journeyman.adapters` implement them for real; fakes under `tests/support` implement them
for tests and pass the same suite in `tests/contracts`.  Errors are those of `journeyman.errors`; an
adapter lets no other exception out, not even from an iterator.
"""

from journeyman.ports.certificates import Certificates
from journeyman.ports.clock import Clock
from journeyman.ports.control_plane import Collection, ControlPlane, ObjectList, ObjectRef, WatchEvent
from journeyman.ports.documents import DeadLetter, Document, RemovableDocument, Spool
from journeyman.ports.host import HostProbe, Memory, PowerEvents, Sensor, SleepAssertion
from journeyman.ports.inference import Endpoint, InferenceProbe, ModelStore
from journeyman.ports.json_object import JsonObject
from journeyman.ports.workers import Usage, Workers

__all__ = [
    "Certificates",
    "Clock",
    "Collection",
    "ControlPlane",
    "DeadLetter",
    "Document",
    "Endpoint",
    "HostProbe",
    "InferenceProbe",
    "JsonObject",
    "Memory",
    "ModelStore",
    "ObjectList",
    "ObjectRef",
    "PowerEvents",
    "RemovableDocument",
    "Sensor",
    "SleepAssertion",
    "Spool",
    "Usage",
    "WatchEvent",
    "Workers",
]
