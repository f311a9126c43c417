"""Asks a model hub which files a repository has; what its answers mean is in `core/model_hub.py`."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from journeyman.adapters.model_download import ModelDownloader
from journeyman.core import model_hub
from journeyman.core.model_source import Part, Source
from journeyman.errors import DownloadError
from journeyman_updater.contract.http_rules import origin

CHECK_URL = "Check model_hub_url."
MOST_PAGES = 50
LARGEST_ANSWER_BYTES = 8_000_000


class ModelHub:
    """The hub that the rules of a downloader name.

    Args:
        downloader: asks it, with its token and its trust.
    """

    def __init__(self, downloader: ModelDownloader) -> None:
        self._downloader = downloader
        self._url = downloader.rules.hub_url

    def files(self, source: Source) -> tuple[str, tuple[Part, ...]]:
        """The commit that a repository is at, and its files that a runtime needs, the small ones first.

        Raises:
            DownloadError: it cannot be asked, has no such repository, or its answer cannot be read.
            ModelError: the repository is no whole model.
            HostError: the token file cannot be read.
        """
        commit = source.revision
        if not model_hub.COMMIT.fullmatch(commit):
            answer, _ = self._asked(model_hub.commit_url(self._url, source))
            commit = model_hub.read_commit(answer, source)
        pages: list[Any] = []
        url = model_hub.tree_url(self._url, source, commit)
        while url and len(pages) < MOST_PAGES:
            page, url = self._asked(url)
            pages.append(page)
        return commit, model_hub.read_tree(pages, source, commit, self._url)

    def _asked(self, url: str) -> tuple[Any, str]:
        """An answer, and the URL of its next page or an empty string."""
        return self._downloader.retrying(lambda: self._ask(url), lambda: 0)

    def _ask(self, url: str) -> tuple[Any, str]:
        body = b""
        with self._downloader.get(url, {"Accept": "application/json"}) as response:
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise DownloadError(f"{urlsplit(url).hostname} answers without an end", CHECK_URL)
            following = str(response.links.get("next", {}).get("url", ""))
        if following and origin(following) != origin(self._url):
            raise DownloadError(f"the hub continues its list at {following[:200]}", CHECK_URL)
        try:
            return json.loads(body), following
        except (ValueError, RecursionError) as error:
            raise DownloadError(
                f"{urlsplit(url).hostname} does not answer as a model hub: {error}", CHECK_URL
            ) from error
