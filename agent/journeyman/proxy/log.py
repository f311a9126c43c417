"""The log of the proxy: one line of JSON an event on standard output, which the shim keeps bounded.

Never a prompt, an answer or a key.
"""

from __future__ import annotations

import json
import sys
import time


def tell(event: str, **keys: object) -> None:
    """Logs an event, such as `stream_truncated`, with its facts."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stdout.write(json.dumps({"at": at, "event": event, **keys}, default=str) + "\n")
    sys.stdout.flush()
