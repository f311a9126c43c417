"""The services that the fleet asks this host for: which are its own, and how each is served.

The control plane is not trusted with this host: what an InferenceService or a Model may name are models on
the network and options of a server, unless a setting says otherwise.  See docs/inference.md, "Serving what
the fleet asks for".  Pure: objects and rules in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from journeyman.core.fleet_model_source import check_plain_http, file_of, source_of
from journeyman.core.fleet_rules import Reason, RefusedError, Rules
from journeyman.model.inference import (
    PLACED_ON,
    InferenceService,
    Model,
    ModelAccelerator,
    ModelFormat,
    RopeScaling,
    RuntimeName,
    ServingMode,
)

USUAL_PORT = 8080
LEAST_CONTEXT_TOKENS = 128
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class ServedService:
    """One InferenceService that this host serves, or is about to.

    Attributes:
        namespace: of the InferenceService.
        name: of the InferenceService.
        uid: of that very object; another one of the same name has another uid.
        model: the name under which the proxy offers it.
        port: the one that its Service shall have.
        is_ready: whether it answers now, or as soon as somebody asks.
    """

    namespace: str
    name: str
    uid: str
    model: str
    port: int
    is_ready: bool


@dataclass(frozen=True)
class Order:
    """One InferenceService that is this node's, and what is to be done about it.

    Attributes:
        namespace: of the InferenceService.
        name: of the InferenceService, and of the model that the proxy offers.
        uid: of that very object.
        port: the one that its Service shall have.
        options: of the `[[inference]]` table that serves it; None where it is not served.
        reason: why it is not served; None where it is.
        message: one line about that, or about what is not honoured.
    """

    namespace: str
    name: str
    uid: str
    port: int = USUAL_PORT
    options: Mapping[str, Any] | None = None
    reason: Reason | None = None
    message: str = ""

    @property
    def reference(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Asked:
    """One InferenceService as the control plane has it.

    Attributes:
        service: the object.
        held_by: the node that says in its status that it serves it; empty if none does.
        unhonoured: fields of its spec that are there and that we do not know.
    """

    service: InferenceService
    held_by: str = ""
    unhonoured: tuple[str, ...] = ()


def orders(
    asked: Iterable[Asked], models: Mapping[str, Model], rules: Rules, taken: AbstractSet[str]
) -> list[Order]:
    """What this node has to do with all services, the oldest service first.

    Args:
        asked: all services of its namespaces.
        models: all Models there, by `namespace/name`.
        rules: what this host allows.
        taken: names of models that the settings of this host serve.
    """
    found, names = [], set(taken)
    for one in sorted(asked, key=_age):
        service = one.service
        model = models.get(f"{service.metadata.namespace}/{service.spec.model_ref}")
        if not _is_ours(service, model, rules):
            continue
        order = _order(one, model, rules, names)
        found.append(order)
        if order.options is not None:
            names.add(order.name)
    return found


def is_still_allowed(order: Order, rules: Rules) -> bool:
    """Whether an order of an earlier life stands under the rules of this one, which may be stricter."""
    options = order.options or {}
    source = str(options.get("model", ""))
    try:
        if source.startswith("/"):
            file_of(source, rules.model_folders)
        else:
            check_plain_http(source, rules)
    except RefusedError:
        return False
    may_have_arguments = rules.extra_args or not options.get("extra_args")
    return may_have_arguments and (not rules.allow or _is_listed(order.reference, rules.allow))


def _age(one: Asked) -> tuple[datetime, str, str]:
    meta = one.service.metadata
    return (meta.creation_timestamp or _LONG_AGO, meta.namespace, meta.name)


def _is_ours(service: InferenceService, model: Model | None, rules: Rules) -> bool:
    """Placed here by people, or for any host with metal and on the list of this one.

    Two hosts that took whatever asks for metal would both serve it, and fight over its status.
    """
    meta = service.metadata
    if meta.deletion_timestamp is not None:
        return False
    placed_on = meta.annotations.get(PLACED_ON)
    if placed_on is not None:
        return placed_on == rules.node
    wants_metal = model is not None and model.spec.hardware.accelerator is ModelAccelerator.METAL
    return wants_metal and rules.has_metal and _is_listed(f"{meta.namespace}/{meta.name}", rules.allow)


def _is_listed(reference: str, allow: Sequence[str]) -> bool:
    return any(fnmatchcase(reference, pattern) for pattern in allow)


def _order(one: Asked, model: Model | None, rules: Rules, names: AbstractSet[str]) -> Order:
    service = one.service
    meta, endpoint = service.metadata, service.spec.endpoint
    port = USUAL_PORT if endpoint is None else endpoint.port
    try:
        _check_service(one, rules, names)
        options = _options(service, model, rules)
    except RefusedError as refusal:
        return Order(meta.namespace, meta.name, meta.uid, port, None, refusal.reason, str(refusal))
    passed_over = [*one.unhonoured, *_passed_over(service, model, str(options["runtime"]))]
    told = f"not honoured here: {', '.join(passed_over)}" if passed_over else ""
    return Order(meta.namespace, meta.name, meta.uid, port, options, None, told)


def _passed_over(service: InferenceService, model: Model | None, runtime: str) -> list[str]:
    """What people have set and that changes nothing here: passed over in silence, it would be believed."""
    assert model is not None, "or there were no options"
    hardware = model.spec.hardware
    found = ["memoryBudget of the Model"] if hardware.memory_budget else []
    found += ["memoryFraction of the Model"] if hardware.memory_fraction is not None else []
    if runtime == "mlx":
        found += [name for name, value in _llama_cpp(service, model).items() if value not in {None, ""}]
    if service.spec.replicas > 1:
        found.append("replicas beyond one")
    return found


def _check_service(one: Asked, rules: Rules, names: AbstractSet[str]) -> None:
    service = one.service
    reference = f"{service.metadata.namespace}/{service.metadata.name}"
    if rules.allow and not _is_listed(reference, rules.allow):
        raise RefusedError(Reason.NOT_ALLOWED, "it is not in fleet_service_allow of this host")
    if service.spec.suspend:
        raise RefusedError(Reason.SUSPENDED, "spec.suspend is set")
    if service.spec.replicas == 0:
        raise RefusedError(Reason.STOPPED, "spec.replicas is 0")
    is_placed = PLACED_ON in service.metadata.annotations
    if not is_placed and one.held_by and one.held_by != rules.node:
        raise RefusedError(
            Reason.SERVED_ELSEWHERE,
            f"node {one.held_by} serves it; the annotation {PLACED_ON} gives it to another one",
        )
    if service.metadata.name in names:
        raise RefusedError(Reason.NAME_TAKEN, "this host serves another model of that name")


def _options(service: InferenceService, model: Model | None, rules: Rules) -> dict[str, Any]:
    """The `[[inference]]` table that serves it.  Raises RefusedError."""
    spec = service.spec
    if model is None:
        raise RefusedError(Reason.MODEL_NOT_FOUND, f"there is no Model {spec.model_ref}")
    if spec.runtime is not RuntimeName.LLAMACPP:
        raise RefusedError(Reason.RUNTIME_UNSUPPORTED, f"runtime {spec.runtime.value} is for containers")
    slots = spec.parallel_slots or None
    runtime = _runtime(model, rules)
    options: dict[str, Any] = {
        "name": service.metadata.name,
        "model": source_of(model, rules),
        "runtime": runtime,
        "context_tokens": _context_of_a_slot(spec.context_size, slots),
        "slots": slots,
        "priority": spec.priority.value,
        "eviction_protection": spec.eviction_protection,
    }
    if runtime == "mlx":
        _check_mlx(service, model)
    else:
        options |= _llama_cpp(service, model)
    if spec.extra_args:
        options["extra_args"] = _arguments(spec.extra_args, runtime, rules)
    return {name: value for name, value in options.items() if value is not None}


def _check_mlx(service: InferenceService, model: Model) -> None:
    if model.spec.sha256:
        raise RefusedError(Reason.OPTION_REFUSED, "sha256 is of one file, and a model for MLX is a folder")
    if service.spec.mode not in {None, ServingMode.CHAT}:
        raise RefusedError(Reason.OPTION_REFUSED, "a model for MLX is served for chats alone")


def _llama_cpp(service: InferenceService, model: Model) -> dict[str, Any]:
    """What llama.cpp is told, whichever form of it serves the model."""
    spec, gpu = service.spec, model.spec.hardware.gpu
    # Without a number of layers, or with none, the operator's own agents offload all of them.
    layers = gpu.layers if gpu is not None and gpu.layers is not None and gpu.layers > 0 else None
    flash = None if spec.flash_attention is None else "on" if spec.flash_attention else "off"
    return {
        "sha256": model.spec.sha256 or None,
        "mode": None if spec.mode is None else spec.mode.value,
        "gpu_layers": layers,
        "cache_type_k": spec.cache_type_k or None,
        "cache_type_v": spec.cache_type_v or None,
        "flash_attention": flash,
        "jinja": spec.jinja,
        "kv_offload": False if spec.no_kv_offload else None,
        "batch_tokens": spec.batch_size or None,
        "micro_batch_tokens": spec.u_batch_size or None,
        "reasoning_budget": spec.reasoning_budget,
        **_rope(spec.rope_scaling),
    }


def _rope(scaling: RopeScaling | None) -> dict[str, Any]:
    if scaling is None:
        return {}
    return {
        "rope_scaling": scaling.type,
        "rope_scale": float(scaling.factor) if scaling.factor else None,
        "rope_original_tokens": scaling.original_context,
    }


def _context_of_a_slot(context_size: int | None, slots: int | None) -> int | None:
    """On the wire it is the context of all slots together, as llama.cpp's own option has it."""
    if not context_size:
        return None
    tokens = context_size // (slots or 1)
    if tokens < LEAST_CONTEXT_TOKENS:
        raise RefusedError(
            Reason.OPTION_REFUSED, f"contextSize {context_size} leaves {tokens} tokens for each slot"
        )
    return tokens


def _runtime(model: Model, rules: Rules) -> str:
    if model.spec.format is ModelFormat.GGUF:
        return rules.runtime
    if model.spec.format is ModelFormat.MLX:
        return "mlx"
    raise RefusedError(
        Reason.FORMAT_UNSUPPORTED, f"no runtime here serves the format {model.spec.format.value}"
    )


def _arguments(extra_args: tuple[str, ...], runtime: str, rules: Rules) -> tuple[str, ...]:
    """Arguments can make a program read and write any file of this user, and listen for anybody."""
    if not rules.extra_args:
        raise RefusedError(
            Reason.ARGUMENTS_REFUSED, "extraArgs needs fleet_service_extra_args in the settings of this host"
        )
    if runtime == "native":
        raise RefusedError(
            Reason.ARGUMENTS_REFUSED, 'extraArgs needs fleet_service_runtime = "llama-server" on this host'
        )
    return extra_args
