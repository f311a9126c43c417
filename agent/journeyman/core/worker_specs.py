"""How each kind of worker is started: its spec, and the files that it finds in its folder.

A worker runs in its `files/` folder.  Requests, configuration and keys come by files there, so nothing
secret is in argv or in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from journeyman.core.completion import KEY_FILE, REQUEST_FILE, CompletionRequest
from journeyman.core.proxy.config import Keys, ProxyConfig
from journeyman.core.proxy.routes import ROUTES_FILE
from journeyman.core.server_config import NATIVE, ServerConfig
from journeyman_updater.contract import WorkerSpec

FREEFORM = "freeform"
MODEL_SERVER = "model-server"
PROXY = "proxy"

MODEL_LABEL = "model"
# What a server was started for.  Not the spec's digest decides about adoption: that changes with the
# interpreter's path at each update of the agent, and no update shall cost a reload.
CONFIG_LABEL = "config"

CONFIG_FILE = "config.json"
ENDPOINT_FILE = "endpoint.json"
REASON_FILE = "reason.txt"
# What the clients of the proxy on other machines have to show, and whether they can connect.
REACH_KEY_FILE = "reach-key"
REACH_FILE = "reach.json"
# The same with its kind; an agent of an earlier release reads the other one.
FAILURE_FILE = "failure.json"

# All that a worker is given of the agent's environment.
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR")

# Without this the compute threads spin while they wait for each other, and on a host that has other work
# they take the cores from the very thread they wait for: with three busy processes on two cores 40 tokens
# took more than 40 s, and 1.3 s with it.
PASSIVE_WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}

Files = dict[str, bytes]


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs our worker programs, and the environment they get.

    Attributes:
        executable: its path.
        env: what workers may know of the environment.
        is_bare: it loads nothing from the host's site-packages, as a release brings all it needs, and as what
            lies there, `.pth` files above all, might even change the files of the release.
    """

    executable: str
    env: Mapping[str, str] = field(default_factory=dict)
    is_bare: bool = False

    @classmethod
    def of(cls, executable: str, environ: Mapping[str, str], *, is_bare: bool = False) -> Interpreter:
        """The running interpreter, with what its workers may know of its environment."""
        known = {name: environ[name] for name in INHERITED if environ.get(name)}
        return cls(executable, known, is_bare)

    def argv(self, module: str) -> tuple[str, ...]:
        """Runs a module; `-P` keeps the worker's own files from being imported in place of libraries."""
        return (self.executable, *(("-S",) if self.is_bare else ()), "-P", "-m", module)


def model_server_spec(
    config: ServerConfig, api_key: bytes, interpreter: Interpreter
) -> tuple[WorkerSpec, Files]:
    """A model server on a loopback port that the kernel chooses at its start, unless people have chosen one.

    Port and key are not in the spec.  The worker tells its URL in `endpoint.json` once it listens, and in
    `reason.txt` why it cannot.  llama.cpp's native server is the worker itself; the programs of other
    runtimes run below one that watches them.
    """
    program = "native_server" if config.runtime == NATIVE else "program_server"
    spec = WorkerSpec(
        kind=MODEL_SERVER,
        argv=interpreter.argv(f"journeyman.workers.{program}"),
        env={**interpreter.env, **PASSIVE_WAITING},
        labels={MODEL_LABEL: config.model, CONFIG_LABEL: config.to_json().decode()},
    )
    return spec, {CONFIG_FILE: config.to_json(), KEY_FILE: api_key}


def proxy_spec(
    config: ProxyConfig, label: str, keys: Keys, routes: bytes, interpreter: Interpreter
) -> tuple[WorkerSpec, Files]:
    """The OpenAI-compatible endpoint of this host; it tells its URL in `endpoint.json` once it listens.

    Args:
        config: where it listens, and its limits.
        label: what decides about its adoption.  Not `config`: that has the port of last time.
        keys: what its clients have to show.
        routes: the first content of `routes.json`.
        interpreter: what runs it.
    """
    spec = WorkerSpec(
        kind=PROXY,
        argv=interpreter.argv("journeyman.workers.proxy"),
        env=dict(interpreter.env),
        labels={CONFIG_LABEL: label},
    )
    files = {CONFIG_FILE: config.to_json(), KEY_FILE: keys.here, ROUTES_FILE: routes}
    return spec, files | ({REACH_KEY_FILE: keys.elsewhere} if keys.elsewhere else {})


def freeform_spec(
    request: CompletionRequest, api_key: bytes, interpreter: Interpreter, labels: Mapping[str, str]
) -> tuple[WorkerSpec, Files]:
    """One question to a model server; the outcome is in `result.json` when it exits with 0.

    Args:
        request: what to ask, and where.
        api_key: the server's key.
        interpreter: what runs it.
        labels: facts that the agent wants back at adoption, such as the claim.
    """
    spec = WorkerSpec(
        kind=FREEFORM,
        argv=interpreter.argv("journeyman.workers.freeform"),
        env=dict(interpreter.env),
        labels={**labels, MODEL_LABEL: request.model},
    )
    return spec, {REQUEST_FILE: request.to_json(), KEY_FILE: api_key}
