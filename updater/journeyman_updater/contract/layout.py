"""Where everything lives below the state root.

In a system install `agent/`, `run/`, `outbox/`, `workers/` and `models/` belong to the agent's user; the
rest, and the root itself, to root.  So no file of the updater may lie in the former, nor one of the agent
outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from journeyman_updater.contract import names


@dataclass(frozen=True)
class StateRoot:
    """The folder that holds all durable state of one node; it may have spaces in its path."""

    path: Path

    @property
    def config_file(self) -> Path:
        """`config.toml`, written by people."""
        return self.path / names.CONFIG_FILE

    @property
    def installation_file(self) -> Path:
        """`install.json`: what `journeyman install` has made; read before anything else of the root."""
        return self.path / names.INSTALLATION_FILE

    @property
    def agent(self) -> Path:
        """Durable files of the agent, its credentials among them."""
        return self.path / "agent"

    @property
    def node_file(self) -> Path:
        """`agent/node.json`: name, server and paths of credentials; 0600, for the updater."""
        return self.agent / "node.json"

    @property
    def identity_file(self) -> Path:
        """`agent/identity.json`: who this installation is; made at the first start of the agent."""
        return self.agent / "identity.json"

    @property
    def token_file(self) -> Path:
        """`agent/token`: what `join` or `install` has put there for the agent and the updater; 0600."""
        return self.agent / "token"

    @property
    def certificate_file(self) -> Path:
        """`agent/client.pem`: a client certificate with its key, by a join with a request for it; 0600."""
        return self.agent / "client.pem"

    @property
    def certificate_request(self) -> Path:
        """`agent/certificate-request.json`: the key of a certificate that was asked for; 0600."""
        return self.agent / "certificate-request.json"

    @property
    def ca_file(self) -> Path:
        """`agent/ca.crt`: the CA of the control plane, by the same."""
        return self.agent / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """`agent/kubeconfig`: what a join was given in place of a token; 0600."""
        return self.agent / "kubeconfig"

    @property
    def credentials(self) -> Path:
        """What a kubeconfig or a plugin gave the agent, as files for the updater."""
        return self.agent / "credentials"

    @property
    def node_memory(self) -> Path:
        """`agent/node-memory.json`: what others gave our FleetNode; there once a beat was accepted."""
        return self.agent / "node-memory.json"

    @property
    def outbox(self) -> Path:
        """Results that the control plane has not taken yet."""
        return self.path / "outbox"

    @property
    def workers(self) -> Path:
        """One folder a worker, see `WorkerFolder`."""
        return self.path / "workers"

    @property
    def proxy_key_file(self) -> Path:
        """What clients of the OpenAI-compatible endpoint have to show; made by the agent, 0600."""
        return self.agent / "proxy.key"

    @property
    def reach_key_file(self) -> Path:
        """What its clients on other machines have to show, where it is reachable; made by the agent, 0600."""
        return self.agent / "proxy-reach.key"

    @property
    def registrations(self) -> Path:
        """In which namespaces the services of this host may be registered as reachable."""
        return self.agent / "registrations.json"

    @property
    def models(self) -> Path:
        """The model store."""
        return self.path / "models"

    @property
    def run(self) -> Path:
        """Files of the running agent; all of it may vanish at a boot."""
        return self.path / names.RUN

    @property
    def lock_file(self) -> Path:
        """Held by flock while an agent runs on this root."""
        return self.run / "agent.lock"

    @property
    def control_socket(self) -> Path:
        """The agent's control socket, unless an installation shares it; see `control_socket_of`."""
        return self.run / names.CONTROL_SOCKET

    @property
    def last_beat_file(self) -> Path:
        """Touched at each heartbeat that the control plane accepted."""
        return self.run / "last-beat"

    @property
    def wake_up_file(self) -> Path:
        """Touched when a heartbeat's reply carries an updateRequest."""
        return self.run / "update-wanted"

    @property
    def trial_file(self) -> Path:
        """What the running agent says of itself, see `TrialReport`."""
        return self.run / "trial.json"

    @property
    def pause_file(self) -> Path:
        """While it is there, the agent claims nothing and hands back what it has not started."""
        return self.path / "update-pause"

    @property
    def gates_file(self) -> Path:
        """What the agent's gates say, with the time of its writing."""
        return self.run / "gates.json"

    @property
    def progress_file(self) -> Path:
        """How the update goes, see `UpdateProgress`; written by the updater, told by the agent."""
        return self.path / "update.json"

    @property
    def check_file(self) -> Path:
        """Touched by the updater each time it has asked the control plane."""
        return self.path / "update-check"

    @property
    def guard_file(self) -> Path:
        """Which guard stays as the parent, on hosts without a service manager."""
        return self.run / "guard.json"

    @property
    def logs(self) -> Path:
        """Logs that no service manager keeps elsewhere."""
        return self.path / "logs"

    @property
    def versions(self) -> Path:
        """One folder a release, `<version>-<sha12>/`."""
        return self.path / "versions"

    @property
    def units(self) -> Path:
        """What starts the agent under each release, `<version>-<sha12>.json`, see `Unit`."""
        return self.path / "units"

    @property
    def downloads(self) -> Path:
        """Artifacts, whole and in part, by SHA-256."""
        return self.path / "downloads"

    @property
    def updater(self) -> Path:
        """Pinned copies of the updater itself, `<sha12>/`."""
        return self.path / "updater"

    @property
    def guard_launcher(self) -> Path:
        """What a service starts, and what becomes the agent: finds a Python for the guard."""
        return self.path / "guard"

    @property
    def updater_launcher(self) -> Path:
        """What a timer starts: runs the updater once, from its pinned copy."""
        return self.path / "update-once"

    @property
    def parent_launcher(self) -> Path:
        """What keeps agent and updater running where there is no service manager."""
        return self.path / "run-guard"

    @property
    def keys(self) -> Path:
        """Public keys that may sign a release, one file each."""
        return self.path / "keys"

    @property
    def state_file(self) -> Path:
        """`state.json`: which release runs, which is on trial, which were rejected."""
        return self.path / "state.json"

    @property
    def journal_file(self) -> Path:
        """`journal.jsonl`: the audit log of updates."""
        return self.path / "journal.jsonl"

    @property
    def attempts_file(self) -> Path:
        """`agent/attempts`: the starts of a trial, written by the guard, which runs as the agent's user."""
        return self.agent / "attempts"

    @property
    def updater_settings(self) -> Path:
        """`updater.json`: settings of the updater that are not their defaults."""
        return self.path / "updater.json"

    @property
    def update_lock(self) -> Path:
        """Held by flock during each mutation by the updater."""
        return self.path / "update.lock"
