#!/usr/bin/env python3
"""A `llama-server` that misbehaves as it is told: `--behave WORD`.  Without a word it is a good one.

crash          ends with 1 before it listens
sigill         dies as a build for another processor does
prints-key     writes its key to its log, and ends
loading        says 503 to the first five questions
silent         accepts connections and never answers
hangs          answers three questions, and none after them
deaf           ignores SIGTERM
leaves-child   ends after its first answer, and leaves a process behind
public         listens on all addresses
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

OPTIONS = (
    *("--model", "--host", "--port", "--api-key-file", "--ctx-size", "--parallel", "--alias", "--threads"),
    "--behave",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in OPTIONS:
        parser.add_argument(option, default="")
    told = parser.parse_args()
    key = Path(told.api_key_file).read_text().strip()
    if told.behave == "crash":
        sys.exit(1)
    if told.behave == "sigill":
        os.kill(os.getpid(), signal.SIGILL)
    if told.behave == "prints-key":
        sys.exit(f"the key is {key}")
    if told.behave == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    host = "0.0.0.0" if told.behave == "public" else told.host
    server = http.server.ThreadingHTTPServer((host, int(told.port)), handler(told.behave, key))
    server.daemon_threads = True
    server.serve_forever()


def handler(behave: str, key: str) -> type[http.server.BaseHTTPRequestHandler]:
    """What answers, and how."""
    count = iter(range(1, 1_000_000))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            number = next(count)
            if behave == "silent" or (behave == "hangs" and number > 3):
                threading.Event().wait()
            if behave == "loading" and number <= 5:
                self.answer(503, {"error": {"message": "Loading model"}})
            elif self.headers["Authorization"] != f"Bearer {key}":
                self.answer(401, {})
            else:
                self.answer(200, {"choices": [{}], "usage": {"completion_tokens": 1}})
                if behave == "leaves-child":
                    subprocess.Popen(["sleep", "600"])
                    os._exit(3)

        def answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

    return Handler


if __name__ == "__main__":
    main()
