"""Starts llama.cpp's server on a model and prints its log, in which it reports its buffers.

python reported_buffers.py MODEL '{"context": 8192, "slots": 1, "k": "F16", "v": "F16", "flash": true}'
"""

from __future__ import annotations

import json
import signal
import sys

import xllamacpp

READY = "reported buffers of"


def main() -> None:
    path, load = sys.argv[1], json.loads(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = load["context"] * load["slots"]
    params.n_parallel = load["slots"]
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{load['k']}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{load['v']}")
    flash = "AUTO" if load["flash"] else "DISABLED"
    params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    params.cache_ram_mib = 0
    params.verbosity = 4
    params.warmup = False
    params.offline = True
    # What shall be measured is what was asked for, not what would fit.
    params.fit_params = False
    server = xllamacpp.Server(params)
    sys.stderr.write(f"{READY} {server.listening_address}\n")
    sys.stderr.flush()
    # Its log is written by a thread of its own, so whoever reads it also ends this.
    signal.pause()


if __name__ == "__main__":
    main()
