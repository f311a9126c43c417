"""How a control plane is reached: where it is, whom we trust there, and as whom we speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CredentialPlugin:
    """A program that prints a credential, as `client.authentication.k8s.io` has it.

    Attributes:
        command: its path, or its name on PATH.
        arguments: what follows it.
        environ: what is added to its environment.
        api_version: `client.authentication.k8s.io/v1` or `/v1beta1`; its answer must be of the same.
        wants_cluster: whether it is told which cluster it is for.
        hint: what to do where it is missing, in the words of the kubeconfig.
    """

    command: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    api_version: str = ""
    wants_cluster: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Access:
    """All that a client of one control plane needs.

    Of each pair of file and data at most one is set; empty texts are what nobody said.

    Attributes:
        server: the base URL, without a trailing slash.
        place: where that was said, for messages.
        ca_file: PEM file of the CA, or
        ca_data: its content; neither means the CAs of this system.
        token_file: file with a bearer token, which is read again when it changes, or
        token: the token itself.
        certificate_file: PEM file of a client certificate, or
        certificate_data: its content.
        key_file: PEM file of its key, or
        key_data: its content.
        plugin: what is asked for token or certificate.
        tls_server_name: the name that the server's certificate must carry, if not that of the URL.
        proxy_url: the proxy to use, whatever the environment says.
        insecure: do not prove the server's certificate.
    """

    server: str
    place: str = ""
    ca_file: str = ""
    ca_data: str = ""
    token_file: str = ""
    token: str = field(default="", repr=False)
    certificate_file: str = ""
    certificate_data: str = ""
    key_file: str = ""
    key_data: str = field(default="", repr=False)
    plugin: CredentialPlugin | None = None
    tls_server_name: str = ""
    proxy_url: str = ""
    insecure: bool = False
