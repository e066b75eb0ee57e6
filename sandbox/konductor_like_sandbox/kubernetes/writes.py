"""Create, update, patch and delete, with every check that the API server makes before it stores anything."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from konductor_like_sandbox.kubernetes import errors, job_objects
from konductor_like_sandbox.kubernetes.access import Admission, Review, admit_all, check_admission
from konductor_like_sandbox.kubernetes.errors import Cause
from konductor_like_sandbox.kubernetes.managed_fields import record_write
from konductor_like_sandbox.kubernetes.patches import (
    MalformedPatchError,
    MergeFailedError,
    PatchFailedError,
    apply_json_patch,
    merge_patch,
    strategic_merge_patch,
)
from konductor_like_sandbox.kubernetes.resources import JOBS, NAMESPACED_TABLES, NAMESPACES, NODES, Resource
from konductor_like_sandbox.kubernetes.schema import (
    DecodeError,
    Schema,
    canonical,
    check_applicable,
    check_decodable,
    missing,
    no_schema,
)
from konductor_like_sandbox.kubernetes.store import Key, Store, Stored, dump
from konductor_like_sandbox.kubernetes.validation import problems

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_KEPT_META = ("creationTimestamp", "resourceVersion", "managedFields")
_SERVER_SET = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink")


@dataclass(frozen=True, slots=True)
class Target:
    """The object of a request."""

    resource: Resource
    key: Key
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and whether it is a dry run."""

    manager: str
    dry_run: bool = False
    user: str = ""
    operation: str = "Update"
    """The operation in managedFields: ``Update`` or ``Apply``."""
    strict: bool = False
    """Whether unknown fields are refused."""


class Writes:
    """The write half of the API, on one store."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        schema: Schema = no_schema,
        admission: Admission = admit_all,
    ) -> None:
        self._store = store
        self._clock = clock
        self._schema = schema
        self._admission = admission

    def create(self, target: Target, body: dict[str, Any], writer: Writer) -> dict[str, Any]:
        """POST. Returns the object as stored; raises ``ApiError``."""
        resource = target.resource
        item = self._decoded(resource, body, writer)
        meta = item["metadata"]
        if meta.get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        _check_namespace(meta, target.key.namespace)
        for field in _SERVER_SET:
            meta.pop(field, None)
        if resource is NAMESPACES:
            _prepare_namespace(item)
        with self._store.lock:
            key = Key(target.key.namespace, meta.get("name", ""))
            if key.namespace and self._store.get("namespaces", Key("", key.namespace)) is None:
                raise errors.not_found("", "namespaces", key.namespace)
            self._validate(resource, item, None)
            self._admit(target, "CREATE", key.name, writer, item, None)
            if self._store.get(resource.plural, key):
                raise errors.already_exists(resource.group, resource.plural, key.name)
            meta["uid"] = str(uuid.uuid4())
            meta["creationTimestamp"] = self._now()
            if resource is JOBS:
                job_objects.complete(item)
            self._record(canonical(resource, {}), item, target, writer)
            return self._keep(resource, item, writer)

    def update(self, target: Target, body: dict[str, Any], writer: Writer) -> dict[str, Any]:
        """PUT of an existing object. Returns the object as stored; raises ``ApiError``."""
        resource, key = target.resource, target.key
        item = self._decoded(resource, body, writer)
        _check_name(item["metadata"], key.name)
        with self._store.lock:
            old = self._store.get(resource.plural, key)
            if old is None:
                raise errors.not_found(resource.group, resource.plural, key.name)
            _check_namespace(item["metadata"], key.namespace)
            uid = item["metadata"].get("uid")
            if uid and uid != old.uid:
                why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
                raise errors.conflict(resource.group, resource.plural, key.name, why)
            if not item["metadata"].get("resourceVersion") and not resource.unconditional_update:
                cause = Cause.invalid("metadata.resourceVersion", "0", "must be specified for an update")
                raise errors.invalid(resource.group, resource.plural, key.name, [cause])
            return self._replace(target, old, item, writer)

    def patch(self, target: Target, content_type: str, patch: Any, writer: Writer) -> dict[str, Any]:
        """PATCH of one of the three kinds. Returns the object as stored; raises ``ApiError``."""
        resource, key = target.resource, target.key
        with self._store.lock:
            old = self._store.get(resource.plural, key)
            if old is None:
                raise errors.not_found(resource.group, resource.plural, key.name)
            patched = _patched(view(resource, old), content_type, patch)
            try:
                item = self._decoded_as(resource, patched, writer)
            except DecodeError as error:
                cause = Cause.invalid("patch", json.dumps(dump(patched).decode()), str(error))
                raise errors.invalid("", "", "", [cause]) from error
            return self._replace(target, old, item, writer)

    def apply(self, target: Target, body: dict[str, Any], writer: Writer) -> tuple[dict[str, Any], bool]:
        """Server-side apply. Returns the object as stored, and whether it was created; raises ``ApiError``.

        The whole object belongs to this writer: the applied object replaces the stored one.
        """
        resource, key = target.resource, target.key
        check_applicable(self._schema, resource, body, "/".join(filter(None, key)))
        item = self._decoded(resource, body, writer)
        _check_name(item["metadata"], key.name)
        with self._store.lock:
            old = self._store.get(resource.plural, key)
            if old is None:
                return self.create(target, body, writer), True
            _check_namespace(item["metadata"], key.namespace)
            if resource is NAMESPACES:
                _prepare_namespace(item)
            return self._replace(target, old, item, writer), False

    def delete(self, target: Target, options: dict[str, Any], writer: Writer) -> dict[str, Any]:
        """DELETE. Returns a ``Status``, or the object where the server does so; raises ``ApiError``."""
        resource, key = target.resource, target.key
        with self._store.lock:
            old = self._store.get(resource.plural, key)
            if old is None:
                raise errors.not_found(resource.group, resource.plural, key.name)
            found = {"UID": old.uid, "ResourceVersion": str(old.version)}
            wanted = options.get("preconditions") or {}
            for field, name in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
                if wanted.get(name) and wanted[name] != found[field]:
                    why = (
                        f"Precondition failed: {field} in precondition: {wanted[name]},"
                        f" {field} in object meta: {found[field]}"
                    )
                    raise errors.conflict(resource.group, resource.plural, key.name, why)
            self._admit(target, "DELETE", key.name, writer, None, view(resource, old))
            if not writer.dry_run:
                self._store.delete(resource.plural, key)
            if resource is NAMESPACES:
                return self._end_namespace(old, writer)
            about = {"name": key.name, "group": resource.group, "kind": resource.plural, "uid": old.uid}
            details = {field: value for field, value in about.items() if value}
            return {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }

    def _end_namespace(self, old: Stored, writer: Writer) -> dict[str, Any]:
        """Delete all objects of a Namespace at once; the controllers of a real cluster take some time."""
        if not writer.dry_run:
            for table in NAMESPACED_TABLES:
                for inside in self._store.objects(table, old.key.name)[1]:
                    self._store.delete(table, inside.key)
        item = view(NAMESPACES, old)
        item["metadata"]["deletionTimestamp"] = self._now()
        item["status"]["phase"] = "Terminating"
        return item

    def _replace(self, target: Target, old: Stored, item: dict[str, Any], writer: Writer) -> dict[str, Any]:
        resource = target.resource
        _check_name(item["metadata"], target.key.name)
        was = view(resource, old)
        meta, was_meta = item["metadata"], was["metadata"]
        if meta.get("resourceVersion", was_meta["resourceVersion"]) != was_meta["resourceVersion"]:
            raise errors.conflict(resource.group, resource.plural, target.key.name)
        meta.update({field: was_meta[field] for field in _KEPT_META if field in was_meta})
        for field in ("namespace", "uid"):
            if field in was_meta:
                meta.setdefault(field, was_meta[field])
        for part in _kept_parts(target):
            item[part] = was[part]
        self._validate(resource, item, was)
        self._admit(target, "UPDATE", old.key.name, writer, item, was)
        if item == was:
            return item
        if (
            "managedFields" in meta
        ):  # an object without managedFields is not tracked, like objects from before they existed
            self._record(was, item, target, writer)
        return self._keep(resource, item, writer)

    def _decoded(self, resource: Resource, body: dict[str, Any], writer: Writer) -> dict[str, Any]:
        try:
            return self._decoded_as(resource, body, writer)
        except DecodeError as error:
            kind = resource.kind
            detail = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {error}'
            raise errors.bad_request(detail) from error

    def _decoded_as(self, resource: Resource, body: dict[str, Any], writer: Writer) -> dict[str, Any]:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        check_decodable(self._schema, {**head, **body}, strict=writer.strict)
        return canonical(resource, body)

    def _validate(self, resource: Resource, item: dict[str, Any], old: dict[str, Any] | None) -> None:
        causes = [*problems(resource, item, old), *missing(self._schema, item)]
        if causes:
            raise errors.invalid(resource.group, resource.kind, item["metadata"].get("name", ""), causes)

    def _admit(
        self,
        target: Target,
        operation: str,
        name: str,
        writer: Writer,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
    ) -> None:
        group, plural = target.resource.group, target.resource.plural
        check_admission(
            self._admission,
            Review(writer.user, operation, group, plural, name, target.subresource, new, old),
        )

    def _record(self, old: dict[str, Any], new: dict[str, Any], target: Target, writer: Writer) -> None:
        record_write(old, new, writer.manager, target.subresource, self._now(), writer.operation)

    def _keep(self, resource: Resource, item: dict[str, Any], writer: Writer) -> dict[str, Any]:
        if not writer.dry_run:
            self._store.put(resource.plural, item)
        return item

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def view(resource: Resource, stored: Stored) -> dict[str, Any]:
    """Return a stored object as ``resource`` shows it."""
    return {"kind": resource.kind, "apiVersion": resource.api_version, **stored.load()}


def _patched(document: dict[str, Any], content_type: str, patch: Any) -> dict[str, Any]:
    merges = {MERGE_PATCH: merge_patch, STRATEGIC_MERGE_PATCH: strategic_merge_patch}
    try:
        if content_type == JSON_PATCH:
            return apply_json_patch(document, patch)
        if content_type not in merges:
            raise errors.unsupported_patch()
        if isinstance(patch, dict):
            return dict(merges[content_type](document, patch))
    except MalformedPatchError as error:
        raise errors.bad_request(str(error)) from error
    except PatchFailedError as error:
        raise errors.unprocessable_patch() from error
    except MergeFailedError as error:
        raise errors.ApiError(500, "", str(error)) from error
    raise errors.bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")


def _check_name(meta: dict[str, Any], name: str) -> None:
    given = meta.get("name", "")
    if not given:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _check_namespace(meta: dict[str, Any], namespace: str) -> None:
    if not namespace:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _prepare_namespace(item: dict[str, Any]) -> None:
    meta = item["metadata"]
    meta["labels"] = {**meta.get("labels", {}), "kubernetes.io/metadata.name": meta.get("name", "")}
    item["spec"].setdefault("finalizers", ["kubernetes"])
    item["status"]["phase"] = "Active"


def _kept_parts(target: Target) -> tuple[str, ...]:
    """Return the parts that a request cannot change: for ``/status`` the spec, otherwise the status."""
    if target.resource not in (NODES, NAMESPACES, JOBS):
        return ()
    return ("spec",) if target.subresource == "status" else ("status",)
