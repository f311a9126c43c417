"""The runtimes whose programs we start, by the name that the settings give them."""

from __future__ import annotations

from collections.abc import Mapping

from journeyman.core.runtimes.base import Runtime
from journeyman.core.runtimes.llama_cpp_python import LlamaCppPython
from journeyman.core.runtimes.llama_server import LlamaServer
from journeyman.core.runtimes.mlx import MlxServer

PROGRAMS: Mapping[str, Runtime] = {
    "llama-server": LlamaServer(),
    "llama-cpp-python": LlamaCppPython(),
    "mlx": MlxServer(),
}
