"""A model hub on loopback: the API and the redirects of huggingface.co, as far as a fetch uses them."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulator import release_server as faults
from tests.simulator.release_server import Exchange, ReleaseServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Repository:
    """One repository at one commit.

    Attributes:
        server: serves it.
        name: OWNER/REPO.
        files: by their paths; those that end in .safetensors are kept in LFS, as on the real hub.
        told: what the list says in place of the truth, by path.
        commit: which one it is.
        page_size: entries on a page of the list.
    """

    server: ReleaseServer
    name: str
    files: Mapping[str, bytes]
    told: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    commit: str = COMMIT
    page_size: int = 1000

    def publish(self, *, branch: str = "main") -> Repository:
        """Serves the commit by itself and as what the branch means now."""
        api = f"/api/models/{self.name}"
        answer = json.dumps({"id": self.name, "sha": self.commit}).encode()
        self.server.publish(f"{api}/revision/{branch}", answer, etag="")
        for path, body in self.files.items():
            self._publish_file(path, body)
        entries = [self._entry(path) for path in self.files]
        pages = [entries[at : at + self.page_size] for at in range(0, max(len(entries), 1), self.page_size)]
        for number, page in enumerate(pages):
            following = f"{api}/tree/{self.commit}/{number + 1}" if number + 1 < len(pages) else ""
            where = f"{api}/tree/{self.commit}" + (f"/{number}" if number else "")
            self.server.publish(where, json.dumps(page).encode(), _page(self.server.url(following)), etag="")
            if not following:
                self.server.publish(where, json.dumps(page).encode(), etag="")
        return self

    def moved_to(self, commit: str, files: Mapping[str, bytes]) -> Repository:
        return replace(self, commit=commit, files=files).publish()

    def sent(self, path: str) -> int:
        """How many bytes of a file were sent so far."""
        return self.server.sent_bytes.get(self._where(path), 0)

    def where(self, path: str) -> str:
        """Under which path of the server the content of a file lies."""
        return self._where(path)

    def _where(self, path: str) -> str:
        if path.endswith(".safetensors"):
            return f"/cdn/{hashlib.sha256(self.files[path]).hexdigest()}"
        return f"/{self.name}/resolve/{self.commit}/{path}"

    def _publish_file(self, path: str, body: bytes) -> None:
        self.server.publish(self._where(path), body, etag=f'"{hashlib.sha256(body).hexdigest()}"')
        if path.endswith(".safetensors"):
            link = faults.linked(self._where(path), hashlib.sha256(body).hexdigest(), len(body))
            self.server.publish(f"/{self.name}/resolve/{self.commit}/{path}", b"", link)

    def _entry(self, path: str) -> dict[str, Any]:
        body = self.files[path]
        entry: dict[str, Any] = {"type": "file", "path": path, "oid": git_sha1(body), "size": len(body)}
        if path.endswith(".safetensors"):
            pointer = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 135}
            entry |= {"oid": git_sha1(b"a pointer"), "lfs": pointer}
        return entry | self.told.get(path, {})


def git_sha1(body: bytes) -> str:
    """What git calls a blob."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def _page(following: str) -> faults.Fault:
    def serve(exchange: Exchange) -> None:
        exchange.head(200, Content_Length=str(len(exchange.body)), Link=f'<{following}>; rel="next"')
        exchange.send(exchange.body)

    return serve


def weights(size: int, *, seed: int = 0) -> bytes:
    """A safetensors file with one tensor of so many bytes."""
    header = {"model.norm.weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes([seed % 256]) * size


def tiny_repository(size: int = 300_000, *, parts: int = 2, seed: int = 0) -> dict[str, bytes]:
    """The files of a model that was split, among what nobody needs."""
    names = [f"model-{number:05d}-of-{parts:05d}.safetensors" for number in range(1, parts + 1)]
    index = {"metadata": {}, "weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "max_position_embeddings": 2048,
    }
    template = "{% for tool in tools %}{{ tool }}{% endfor %}"
    return {
        ".gitattributes": b"*.safetensors filter=lfs",
        "README.md": b"# A model",
        "config.json": json.dumps(config).encode(),
        "generation_config.json": b"{}",
        "tokenizer.json": b'{"version": "1.0"}',
        "tokenizer_config.json": json.dumps({"chat_template": template}).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "modeling_evil.py": b"raise SystemExit",
        "pytorch_model.bin": b"\x80\x04",
        "original/model.safetensors": weights(10),
        **{name: weights(size, seed=seed * 10 + number) for number, name in enumerate(names)},
    }
