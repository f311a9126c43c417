"""The OpenAI-compatible proxy of this host: `python -m journeyman.workers.proxy`.

Runs in the folder that holds `config.json`, `api-key` and `routes.json`, of which the agent replaces the
last one whenever something changes.  `endpoint.json` tells where it listens.  Where other machines shall
reach it, `reach-key` is what they have to show, and `reach.json` tells whether they can.  SIGTERM frees the
ports at once and ends it when its last reply is complete; it ends with 0 then, with 70 and one line in
`reason.txt` when its port on loopback is taken, with 71 when it may not listen.

Everything is imported at the start, as the release that this file belongs to may be gone when it ends.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  Looked for at the first connection otherwise.
import json
import sys
from pathlib import Path

from journeyman.core.completion import KEY_FILE
from journeyman.core.proxy.config import Keys, ProxyConfig
from journeyman.core.proxy.routes import ROUTES_FILE
from journeyman.core.worker_specs import CONFIG_FILE, ENDPOINT_FILE, REACH_FILE, REACH_KEY_FILE, REASON_FILE
from journeyman.errors import ConfigError, JourneymanError
from journeyman.proxy.life import serve
from journeyman_updater.contract import write_durably


def main() -> int:
    """Serves until SIGTERM.

    Returns:
        The exit code.
    """
    try:
        config, keys = _told()
        asyncio.run(serve(config, keys, Path(ROUTES_FILE), _listening, _reachable))
    except JourneymanError as error:
        write_durably(Path(REASON_FILE), error.message.encode())
        print(f"journeyman-worker-error: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


def _told() -> tuple[ProxyConfig, Keys]:
    try:
        config = ProxyConfig.from_json(Path(CONFIG_FILE).read_bytes())
        wanted = config.reach is not None and config.reach.has_key
        elsewhere = Path(REACH_KEY_FILE).read_bytes().strip() if wanted else b""
        return config, Keys(Path(KEY_FILE).read_bytes().strip(), elsewhere)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no usable configuration: {error}") from error


def _listening(url: str) -> None:
    write_durably(Path(ENDPOINT_FILE), json.dumps({"base_url": url}).encode())
    print(f"serving on {url}", flush=True)


def _reachable(why_not: str) -> None:
    write_durably(Path(REACH_FILE), json.dumps({"why_not": why_not}).encode())


if __name__ == "__main__":
    sys.exit(main())
