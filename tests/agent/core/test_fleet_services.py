"""Which services of the fleet are this node's, and how each is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from journeyman.core.fleet_rules import Reason, Rules
from journeyman.core.fleet_services import Asked, Order, is_still_allowed, orders
from journeyman.errors import ConfigError
from journeyman.model.inference import InferenceService, Model
from journeyman.settings import Inference
from tests.support.services import SOURCE, model, service

RULES = Rules(node="mine", hub_url="https://hub.example")
METAL: dict[str, Any] = {"hardware": {"accelerator": "metal"}}


def decide(
    asked: InferenceService | Sequence[Asked],
    weights: Model | None = None,
    rules: Rules = RULES,
    taken: frozenset[str] = frozenset(),
) -> list[Order]:
    given = [Asked(asked)] if isinstance(asked, InferenceService) else asked
    models = {"default/weights": weights or model()}
    return orders(given, models, rules, taken)


def options(asked: InferenceService, weights: Model | None = None, rules: Rules = RULES) -> dict[str, Any]:
    (order,) = decide(asked, weights, rules)
    assert order.options is not None, order
    return dict(order.options)


def refusal(asked: InferenceService, weights: Model | None = None, rules: Rules = RULES) -> Reason | None:
    (order,) = decide(asked, weights, rules)
    assert order.options is None
    assert order.message
    return order.reason


def test_a_service_that_is_placed_here_is_served_on_any_host() -> None:
    """The annotation needs no metal and no list; its model goes by the name of the service."""
    (order,) = decide(service())
    assert (order.reference, order.uid, order.port, order.reason) == (
        "default/chat",
        "uid-of-chat",
        8080,
        None,
    )
    assert options(service()) == {
        "name": "chat",
        "model": SOURCE,
        "runtime": "native",
        "priority": "normal",
        "eviction_protection": False,
    }


@pytest.mark.parametrize("rules", [RULES, replace(RULES, has_metal=True, allow=("default/*",))])
def test_a_service_of_another_node_is_not_ours(rules: Rules) -> None:
    """What is placed elsewhere is left alone, whatever list it is on."""
    assert decide(service(node="peer"), model(**METAL), rules) == []


@pytest.mark.parametrize(
    ("rules", "weights", "ours"),
    [
        (replace(RULES, has_metal=True, allow=("default/ch*",)), METAL, True),
        (replace(RULES, has_metal=True, allow=("default/other",)), METAL, False),
        (replace(RULES, has_metal=True), METAL, False),
        (replace(RULES, allow=("default/chat",)), METAL, False),
        (replace(RULES, has_metal=True, allow=("default/chat",)), {}, False),
    ],
    ids=["listed", "another is listed", "no list", "no metal here", "not for metal"],
)
def test_what_is_placed_nowhere_is_served_by_metal_that_has_it_listed(
    rules: Rules, weights: dict[str, Any], *, ours: bool
) -> None:
    """Two hosts that took all that asks for metal would fight over it."""
    assert bool(decide(service(node=None), model(**weights), rules)) is ours


def test_what_another_node_serves_already_is_left_to_it() -> None:
    """The first that said so keeps it, until people place it; what is placed here is ours all the same."""
    rules = replace(RULES, has_metal=True, allow=("default/*",))
    (order,) = decide([Asked(service(node=None), held_by="peer")], model(**METAL), rules)
    assert order.reason is Reason.SERVED_ELSEWHERE
    (mine,) = decide([Asked(service(node=None), held_by="mine")], model(**METAL), rules)
    assert mine.options is not None
    (placed,) = decide([Asked(service(), held_by="peer")], model(**METAL), rules)
    assert placed.options is not None


def test_a_list_is_the_last_word() -> None:
    """Where this host has one, a service that is placed here and not on it is refused."""
    assert refusal(service(), rules=replace(RULES, allow=("default/other",))) is Reason.NOT_ALLOWED


def test_a_service_that_is_being_deleted_is_none() -> None:
    """Its server ends while finalizers of others still hold it."""
    gone = service()
    meta = gone.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    assert decide(gone.model_copy(update={"metadata": meta})) == []


@pytest.mark.parametrize(
    ("spec", "reason"), [({"suspend": True}, Reason.SUSPENDED), ({"replicas": 0}, Reason.STOPPED)]
)
def test_people_can_stop_a_service(spec: dict[str, Any], reason: Reason) -> None:
    """Suspended and no replicas are two words for people, and no server either way."""
    assert refusal(service(**spec)) is reason


def test_every_option_that_we_have_is_taken_over() -> None:
    """The context is that of all slots together, as on the wire; priority and protection come along."""
    asked = service(
        mode="embedding",
        contextSize=8192,
        parallelSlots=4,
        flashAttention=True,
        jinja=False,
        cacheTypeK="q8_0",
        cacheTypeV="q8_0",
        noKvOffload=True,
        batchSize=1024,
        uBatchSize=256,
        ropeScaling={"type": "yarn", "factor": "2.0", "originalContext": 1024},
        priority="high",
        evictionProtection=True,
        endpoint={"port": 9000},
    )
    weights = model(sha256="a" * 64, hardware={"accelerator": "metal", "gpu": {"layers": 20}})
    found = options(asked, weights)
    assert found == {
        "name": "chat",
        "model": SOURCE,
        "runtime": "native",
        "sha256": "a" * 64,
        "mode": "embedding",
        "context_tokens": 2048,
        "slots": 4,
        "flash_attention": "on",
        "jinja": False,
        "cache_type_k": "q8_0",
        "cache_type_v": "q8_0",
        "gpu_layers": 20,
        "kv_offload": False,
        "batch_tokens": 1024,
        "micro_batch_tokens": 256,
        "rope_scaling": "yarn",
        "rope_scale": 2.0,
        "rope_original_tokens": 1024,
        "priority": "high",
        "eviction_protection": True,
    }
    assert Inference.of(found).context_tokens == 2048
    assert decide(asked)[0].port == 9000


def test_an_option_of_one_runtime_is_refused_by_the_other() -> None:
    """What a budget of thinking does is known of llama-server alone; the words say which runtime is short."""
    asked = service(reasoningBudget=0)
    with pytest.raises(ConfigError, match="runtime native has no use for reasoning_budget"):
        Inference.of(options(asked))
    found = options(asked, rules=replace(RULES, runtime="llama-server"))
    assert Inference.of(found).reasoning_budget == 0


def test_too_many_slots_for_the_context_are_refused() -> None:
    """A slot of a few tokens answers nobody."""
    assert refusal(service(contextSize=1024, parallelSlots=64)) is Reason.OPTION_REFUSED


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"source": "file:///etc/passwd.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "/etc/passwd.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "/srv/models/../../etc/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "file:///srv/models/%2e%2e/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "/srv/models-of-others/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "http://127.0.0.1:8080/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "http://192.0.2.1/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "https://models.example/x.safetensors"}, Reason.SOURCE_REFUSED),
        ({"source": "s3://bucket/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "pvc://claim/x.gguf"}, Reason.SOURCE_REFUSED),
        ({"source": "owner/repo"}, Reason.SOURCE_REFUSED),
        ({"sourceSecretRef": {"name": "hub"}}, Reason.SECRET_REFUSED),
        ({"format": "pytorch"}, Reason.FORMAT_UNSUPPORTED),
        ({"format": "mlx"}, Reason.SOURCE_REFUSED),
        ({"source": "hf://owner/repo/"}, Reason.SOURCE_REFUSED),
        ({"source": "hf://owner/repo/", "format": "mlx", "sha256": "a" * 64}, Reason.OPTION_REFUSED),
    ],
)
def test_a_model_that_this_host_does_not_take_is_refused_with_a_reason(
    spec: dict[str, Any], reason: Reason
) -> None:
    """Nobody on the wire names a file of this host, or has it ask its own local services."""
    rules = replace(RULES, model_folders=("/srv/models",))
    assert refusal(service(), model(**spec), rules) is reason


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"source": "/srv/models/x.gguf"}, "/srv/models/x.gguf"),
        ({"source": "file:///srv/models/sub/x%20y.gguf"}, "/srv/models/sub/x y.gguf"),
        ({"source": "/srv/models/mlx-dir/", "format": "mlx"}, "/srv/models/mlx-dir"),
        ({"source": "http://inside.example/x.gguf"}, "http://inside.example/x.gguf"),
        ({"source": "owner/repo", "format": "mlx"}, "hf://owner/repo/"),
        ({"source": "hf://owner/repo@v1", "format": "mlx"}, "hf://owner/repo@v1/"),
        ({"source": "hf://owner/repo/x.gguf"}, "hf://owner/repo/x.gguf"),
    ],
)
def test_what_the_settings_of_this_host_allow_is_taken(spec: dict[str, Any], wanted: str) -> None:
    """Folders and hosts are named by whoever owns the host; the hub is where the settings say it is."""
    rules = replace(
        RULES,
        model_folders=("/srv/models/",),
        plain_http_hosts=frozenset({"inside.example"}),
        hub_url="http://hub.example",
    )
    found = options(service(), model(**spec), rules)
    assert found["model"] == wanted
    assert Inference.of(found).model == wanted


def test_arguments_of_a_program_need_a_setting_and_that_program() -> None:
    """They are as good as a shell on this host."""
    asked = service(extraArgs=["--seed", "1"])
    assert refusal(asked) is Reason.ARGUMENTS_REFUSED
    assert refusal(asked, rules=replace(RULES, extra_args=True)) is Reason.ARGUMENTS_REFUSED
    assert refusal(asked, rules=replace(RULES, runtime="llama-server")) is Reason.ARGUMENTS_REFUSED
    found = options(asked, rules=replace(RULES, extra_args=True, runtime="llama-server"))
    assert (found["runtime"], found["extra_args"]) == ("llama-server", ("--seed", "1"))
    assert Inference.of(found).extra_args == ("--seed", "1")


def test_a_model_for_mlx_is_no_embedder() -> None:
    """Its server knows chats alone, and would answer something else than what was asked for."""
    weights = model(source="owner/repo", format="mlx")
    assert refusal(service(mode="embedding"), weights) is Reason.OPTION_REFUSED
    assert options(service(mode="chat"), weights)["runtime"] == "mlx"


@pytest.mark.parametrize("runtime", ["vllm", "tgi", "llamacpp-router", "generic"])
def test_a_runtime_of_containers_is_refused(runtime: str) -> None:
    """No host outside a cluster has it."""
    assert refusal(service(runtime=runtime)) is Reason.RUNTIME_UNSUPPORTED


def test_a_service_without_its_model_waits_for_it() -> None:
    """People apply the two in any order."""
    (order,) = orders([Asked(service(modelRef="later"))], {}, RULES, frozenset())
    assert order.reason is Reason.MODEL_NOT_FOUND


def test_a_name_is_served_once() -> None:
    """The settings of this host come first, then the older service; the other one is told."""
    (order,) = decide(service(), taken=frozenset({"chat"}))
    assert order.reason is Reason.NAME_TAKEN
    elder, younger = service(), service()
    for each, namespace, created in ((elder, "late", 1), (younger, "early", 2)):
        update = {"namespace": namespace, "creation_timestamp": f"2026-01-0{created}T00:00:00Z"}
        object.__setattr__(
            each, "metadata", each.metadata.model_validate(each.metadata.model_dump() | update)
        )
    models = {"late/weights": model(), "early/weights": model()}
    found = orders([Asked(younger), Asked(elder)], models, RULES, frozenset())
    assert [(each.namespace, each.reason) for each in found] == [("late", None), ("early", Reason.NAME_TAKEN)]


def test_what_is_not_honoured_is_told() -> None:
    """A field that changes nothing here would be believed."""
    (order,) = decide([Asked(service(replicas=3), unhonoured=("turboQuantBits",))])
    assert order.message == "not honoured here: turboQuantBits, replicas beyond one"
    weights = model(source="owner/repo", format="mlx", hardware={"memoryBudget": "8Gi"})
    (order,) = decide(service(jinja=True), weights)
    assert order.message == "not honoured here: memoryBudget of the Model, jinja"
    assert decide(service())[0].message == ""


@pytest.mark.parametrize(
    ("options", "rules", "stands"),
    [
        ({"model": SOURCE}, RULES, True),
        ({"model": SOURCE}, replace(RULES, allow=("default/chat",)), True),
        ({"model": SOURCE}, replace(RULES, allow=("default/other",)), False),
        ({"model": SOURCE, "extra_args": ["--x"]}, RULES, False),
        ({"model": SOURCE, "extra_args": ["--x"]}, replace(RULES, extra_args=True), True),
        ({"model": "/srv/x.gguf"}, RULES, False),
        ({"model": "/srv/x.gguf"}, replace(RULES, model_folders=("/srv",)), True),
        ({"model": "http://127.0.0.1/x.gguf"}, RULES, False),
        ({"model": "hf://owner/repo/x.gguf"}, RULES, True),
    ],
)
def test_an_order_of_an_earlier_life_stands_by_the_rules_of_this_one(
    options: dict[str, Any], rules: Rules, *, stands: bool
) -> None:
    """What the owner of the host has taken back is not served because the plane cannot be asked."""
    assert is_still_allowed(Order("default", "chat", "uid", options=options), rules) is stands
