"""`agent/node.json`: who this host is and how it reaches its control plane, for the updater.

`join` and the agent keep it current, so that the updater needs no YAML and no exec plugins.  It holds paths
of credentials and never the credentials.

The agent's user writes it: whoever reads a file that it names must do so as that user.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FORMAT_VERSION = 1


@dataclass(frozen=True)
class NodeFile:
    """The whole file.

    Attributes:
        name: of this host's FleetNode.
        server: URL of the control plane's API.
        ca_file: PEM file of the CA that signed the server's certificate, or an empty string.
        token_file: file with the bearer token, or an empty string.
        certificate_file: PEM file of a client certificate, or an empty string.
        key_file: PEM file of the certificate's key, or an empty string.
        tls_server_name: the name in the server's certificate, if not that of the URL.
        proxy_url: the proxy on the way there, or an empty string.
        insecure_skip_tls_verify: `true` where the server is not proven, as a kubeconfig and the settings say.
    """

    name: str
    server: str
    ca_file: str = ""
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    tls_server_name: str = ""
    proxy_url: str = ""
    insecure_skip_tls_verify: str = ""

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> NodeFile:
        """Reads what `to_json` wrote; unknown fields of a newer writer are ignored.

        Raises:
            ValueError: it is not such a file.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a node file in format {FORMAT_VERSION}")
        fields = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        if not all(isinstance(item, str) for item in fields.values()) or not {"name", "server"} <= set(
            fields
        ):
            raise ValueError("not a node file: name and server are needed, and each field is text")
        return cls(**fields)
