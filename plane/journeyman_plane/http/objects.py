"""The verbs on objects and collections, watches aside."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from journeyman.errors import ExpiredError, NotFoundError
from journeyman_plane.core import node_limits, status
from journeyman_plane.core.merge_patch import merge_patch
from journeyman_plane.core.paths import Target
from journeyman_plane.core.selectors import field_selector, label_selector
from journeyman_plane.core.table import table
from journeyman_plane.errors import Cause, RequestError, SchemaError
from journeyman_plane.http import bodies
from journeyman_plane.http.api import Api
from journeyman_plane.http.replies import json_response, wants_table, warnings_header
from journeyman_plane.model.builtins import NAMESPACES
from journeyman_plane.ports import Key, Preconditions

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request that names something that we serve; `node` is who asks, and empty for the admin."""

    api: Api
    request: Request
    target: Target
    node: str

    def parameter(self, name: str) -> str:
        """A query parameter, empty if it is not given."""
        return str(self.request.query_params.get(name, ""))

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return "All" in self.request.query_params.getlist("dryRun")

    def check_change(self, before: JsonObject, after: JsonObject) -> None:
        """Raises RequestError (403) for a change that a node may not make."""
        if self.node and (why := node_limits.change_refusal(self.node, self.target, before, after)):
            raise node_limits.forbidden(self.target, why)

    def check_removal(self, before: JsonObject) -> None:
        """Raises RequestError (403) for an object that a node may not delete."""
        if self.node and (why := node_limits.removal_refusal(self.node, self.target, before)):
            raise node_limits.forbidden(self.target, why)

    def selection(self) -> Callable[[JsonObject, Mapping[str, str]], bool]:
        """A predicate over (object, labels), from the selectors of the query.

        The labels are an argument of their own: a watch also asks about those that an object had before.
        """
        by_label = label_selector(self.parameter("labelSelector"))
        by_field = field_selector(self.parameter("fieldSelector"), self.target.resource.field_labels)
        return lambda stored, labels: by_label(labels) and by_field(stored)

    def reply(self, stored: JsonObject, code: int = 200, warnings: list[str] | None = None) -> Response:
        """The object, or a table of it where the client asks for one."""
        headers = warnings_header(warnings or [])
        if not wants_table(self.request):
            return json_response(stored, code, headers)
        return json_response(self.as_table([stored]), code, headers)

    def as_table(self, objects: list[JsonObject]) -> JsonObject:
        """A table of the objects; that of a single one has its version."""
        include = self.parameter("includeObject") or "Metadata"
        made = table(self.target.resource, objects, self.api.clock.now(), include=include)
        if len(objects) == 1:
            made["metadata"] = {"resourceVersion": objects[0]["metadata"]["resourceVersion"]}
        return made


async def get(call: Call) -> Response:
    """One object."""
    return call.reply(call.api.store.get(call.target.key))


async def list_objects(call: Call) -> Response:
    """All objects of a collection; `limit` is ignored, which the API allows: there is no `continue`."""
    selected = call.selection()
    resource = call.target.resource
    found, version = call.api.store.select(resource.group, resource.plural, call.target.namespace)
    _check_version(call, version)
    items = [each for each in found if selected(each, each["metadata"].get("labels") or {})]
    metadata = {"resourceVersion": str(version)}
    if wants_table(call.request):
        return json_response(call.as_table(items) | {"metadata": metadata})
    if resource.custom:
        metadata["continue"] = ""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return json_response(head | {"items": items})


def _check_version(call: Call, version: int) -> None:
    """Raises ExpiredError for a list at exactly a version that is not the newest: no older state is kept."""
    wanted = call.parameter("resourceVersion")
    if call.parameter("resourceVersionMatch") == "Exact" and wanted != str(version):
        raise ExpiredError(
            "The provided resource version is no longer available; list again without one.",
            status=410,
            reason="Expired",
        )


async def create(call: Call) -> Response:
    """A new object."""
    bodies.check_type(call.request, "application/json")
    proposed = await bodies.read_object(call.request, call.api.largest_body_bytes)
    resource, namespace = call.target.resource, call.target.namespace
    if resource.namespaced and not namespace:
        raise RequestError(
            "an object of this kind needs a namespace in the URL", status=405, reason="MethodNotAllowed"
        )
    if namespace:
        call.request.state.target = Target(NAMESPACES, name=namespace)
        call.api.store.get(call.request.state.target.key)
        call.request.state.target = call.target
    _settle_place(_metadata_of(proposed), namespace)
    admitted, warnings = call.api.admission.admit(resource, proposed, strict=_strict(call))
    if resource.plural == "namespaces":
        admitted["status"] = {"phase": "Active"}
    call.check_change({}, admitted)
    key = Key(resource.group, resource.plural, namespace, admitted["metadata"]["name"])
    # The URL names no object; an error is about this one.
    call.request.state.target = changed(call.target, name=key.name)
    stored = call.api.store.create(key, admitted, dry_run=call.dry_run)
    return call.reply(stored, 201, warnings)


def _metadata_of(proposed: JsonObject) -> JsonObject:
    """The metadata of a body; it is added where there is none."""
    metadata = proposed.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise RequestError("metadata must be an object", status=400, reason="BadRequest")
    return metadata


def _settle_place(metadata: JsonObject, namespace: str) -> None:
    """Checks the namespace of a new object, and makes up its name where a prefix is given."""
    if metadata.setdefault("namespace", namespace) not in (namespace, ""):
        raise RequestError(
            f"the namespace of the object ({metadata['namespace']}) is not that of the URL ({namespace})",
            status=400,
            reason="BadRequest",
        )
    if not namespace:
        del metadata["namespace"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}{secrets.token_hex(3)}"


async def replace(call: Call) -> Response:
    """A whole object in place of the stored one."""
    bodies.check_type(call.request, "application/json")
    proposed = await bodies.read_object(call.request, call.api.largest_body_bytes)
    metadata = _metadata_of(proposed)
    for name, right in (("name", call.target.name), ("namespace", call.target.namespace)):
        if metadata.get(name, right) != right:
            raise RequestError(
                f"the {name} of the object ({metadata[name]}) is not that of the URL ({right})",
                status=400,
                reason="BadRequest",
            )

    def replaced(_: JsonObject) -> JsonObject:
        resource = call.target.resource
        if resource.custom and not metadata.get("resourceVersion"):
            cause = Cause("metadata.resourceVersion", "FieldValueInvalid", "must be specified for an update")
            raise SchemaError(resource.plural, resource.group, call.target.name, [cause])
        return proposed

    return _write(call, replaced)


async def patch(call: Call) -> Response:
    """A merge patch.  kubectl sends strategic ones for the built-in kinds; plain ones mean the same here."""
    builtin = () if call.target.resource.custom else (bodies.STRATEGIC_PATCH,)
    bodies.check_type(call.request, bodies.MERGE_PATCH, *builtin)
    change = await bodies.read_object(call.request, call.api.largest_body_bytes)
    if call.request.headers.get("content-type", "").startswith(bodies.STRATEGIC_PATCH):
        bodies.check_strategic(change)

    def patched(current: JsonObject) -> Any:
        proposed = merge_patch(current, change)
        if not call.target.subresource:
            _check_uid(call, current, proposed)
        return proposed

    return _write(call, patched)


def _check_uid(call: Call, current: JsonObject, proposed: Any) -> None:
    """Raises SchemaError for a patch of another object's identity; for a PUT that is a conflict instead."""
    metadata = _metadata_of(proposed)
    if metadata.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
        cause = Cause("metadata.uid", "FieldValueInvalid", "field is immutable")
        resource = call.target.resource
        raise SchemaError(resource.kind, resource.group, call.target.name, [cause])


def _write(call: Call, change: Callable[[JsonObject], Any]) -> Response:
    """Stores what `change` makes of the object, if it is admitted."""
    warnings: list[str] = []
    is_status = call.target.subresource == "status"

    def admitted(current: JsonObject) -> JsonObject:
        proposed = change(current)
        if is_status:
            # The rest of the body does not count, so it is not judged either; only its preconditions do.
            wanted = _metadata_of(proposed)
            # Of a patch of the status Kubernetes compares no uid.
            compared = ("resourceVersion",) if call.request.method == "PATCH" else ("uid", "resourceVersion")
            kept = {name: wanted[name] for name in compared if name in wanted}
            proposed = {
                **current,
                "metadata": current["metadata"] | kept,
                "status": proposed.get("status", {}),
            }
        proposed, found = call.api.admission.admit(call.target.resource, proposed, strict=_strict(call))
        warnings.extend(found)
        call.check_change(current, proposed)
        return proposed

    stored = call.api.store.update(call.target.key, admitted, status=is_status, dry_run=call.dry_run)
    return call.reply(stored, 200, warnings)


async def delete(call: Call) -> Response:
    """Deletes an object, and with a namespace everything in it."""
    options = await bodies.read_object(call.request, call.api.largest_body_bytes)
    wanted, dry_runs = options.get("preconditions") or {}, options.get("dryRun") or []
    if not isinstance(wanted, dict) or not isinstance(dry_runs, list):
        raise RequestError("the body is no DeleteOptions", status=400, reason="BadRequest")
    dry_run = call.dry_run or "All" in dry_runs
    preconditions = Preconditions(wanted.get("uid"), wanted.get("resourceVersion"))
    call.check_removal(call.api.store.get(call.target.key))
    if call.target.resource.plural == "namespaces" and not dry_run:
        _empty_namespace(call, preconditions)
    last = call.api.store.delete(call.target.key, preconditions, dry_run=dry_run)
    if "deletionTimestamp" in last["metadata"]:
        return json_response(last)
    return json_response(status.deleted(call.target, last["metadata"]["uid"]))


def _empty_namespace(call: Call, preconditions: Preconditions) -> None:
    """Deletes all that lies in a namespace that is about to go."""
    store, name = call.api.store, call.target.name
    if name == "default":
        raise RequestError(
            'namespaces "default" is forbidden: this namespace may not be deleted',
            status=403,
            reason="Forbidden",
        )
    # Nothing is touched unless the namespace itself may be deleted.
    store.delete(call.target.key, preconditions, dry_run=True)
    for resource in (each for each in call.api.registry.resources if each.namespaced):
        for stored in store.select(resource.group, resource.plural, name)[0]:
            with suppress(NotFoundError):
                store.delete(Key(resource.group, resource.plural, name, stored["metadata"]["name"]))


def _strict(call: Call) -> bool:
    return call.parameter("fieldValidation") == "Strict"
