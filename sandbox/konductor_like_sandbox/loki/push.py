"""Decode and make the bodies of pushes: OTLP JSON, whose attributes become labels, and Loki's own JSON.

Sources: pkg/loghttp/push/otlp.go, pkg/loghttp/push/otlplabels; seen on a real Loki.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from konductor_like_sandbox.http import Request
from konductor_like_sandbox.loki.ingest import Pushed
from konductor_like_sandbox.loki.labels import LABEL_NAME, label_set, normalized, with_service_name
from konductor_like_sandbox.loki.limits import LokiError
from konductor_like_sandbox.loki.store import Entry

INDEX_ATTRIBUTES = frozenset(
    {
        *("service.name", "service.namespace", "service.instance.id"),
        *("deployment.environment", "deployment.environment.name"),
        *("cloud.region", "cloud.availability_zone", "container.name", "k8s.cluster.name"),
        *("k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "k8s.replicaset.name"),
        *("k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name"),
        *("k8s.cronjob.name", "k8s.job.name"),
    }
)
"""Resource attributes that are index labels by default. ``k8s.node.name`` is not among them."""

SHIPPING_NS = 200_000_000
"""Nanoseconds between the container's writing of a line and the collector's reading."""

_RECORD_FIELDS = {
    "severityText": "severity_text",
    "droppedAttributesCount": "dropped_attributes_count",
    "traceId": "trace_id",
    "spanId": "span_id",
    "flags": "flags",
    "eventName": "event_name",
}


def read_export(request: Request) -> object:
    """Decode the JSON body of one export. Raises ``LokiError`` if it is not JSON."""
    content_type = request.headers.get("content-type", "")
    if content_type != "application/json":
        raise LokiError(400, f"content type: {content_type} is not supported")
    try:
        return cast("object", json.loads(_body_text(request)))
    except ValueError as error:
        raise LokiError(400, f"ReadObject: {error}") from None


def streams_of(export: Any, promoted: frozenset[str], now_ns: int) -> list[Pushed]:
    """Return the streams of one export request. Raises ``LokiError`` if Loki could not read all of it."""
    try:
        resources = export.get("resourceLogs", [])
        return [pushed for resource in resources for pushed in _resource(resource, promoted, now_ns)]
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise LokiError(400, f"ReadObject: {error}") from None


def otlp_body(
    resource: Mapping[str, str], records: Iterable[Mapping[str, object]]
) -> dict[str, list[dict[str, object]]]:
    """Make an export request with one resource, for senders. :func:`otlp_record` makes the ``records``."""
    scope_logs = [{"logRecords": list(records)}]
    return {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": scope_logs}]}


def otlp_record(
    line: str, time_ns: int, observed_ns: int | None = None, attributes: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Make one log record, for senders; ``observed_ns`` is when the collector read the line."""
    record: dict[str, object] = {"timeUnixNano": str(time_ns), "body": {"stringValue": line}}
    if observed_ns is not None:
        record["observedTimeUnixNano"] = str(observed_ns)
    if attributes:
        record["attributes"] = _attributes(attributes)
    return record


def shipped(
    node: str,
    lines: Iterable[tuple[int, str]],
    *,
    namespace: str = "dmesg-logging",
    pod: str = "",
    container: str = "dmesg",
    read_ns: int | None = None,
    attributes: Mapping[str, str] | None = None,
) -> dict[str, list[dict[str, object]]]:
    """Make the export request of our collector for lines of one container, by default the kernel-log reader.

    ``lines`` are pairs of time (ns since the epoch) and text. The collector adds the pod's uid, the log file
    and more to each line: a line of 290 bytes takes 1.1 KiB in the messages between Loki's parts. With an
    empty ``node`` the lines name no node. The collector reads the lines at ``read_ns``, by default a little
    after each was written. ``attributes`` are added to the resource.
    """
    pod = pod or f"{container}-{node}"
    uid = str(uuid5(NAMESPACE_URL, f"{namespace}/{pod}"))
    of_file = {
        "log.file.path": f"/var/log/pods/{namespace}_{pod}_{uid}/{container}/0.log",
        "log.iostream": "stdout",
        "logtag": "F",
    }
    resource = {
        "k8s.cluster.name": "default",
        "k8s.namespace.name": namespace,
        "k8s.pod.name": pod,
        "k8s.pod.uid": uid,
        "k8s.container.name": container,
        "k8s.container.restart_count": "0",
        **({"k8s.node.name": node} if node else {}),
        **(attributes or {}),
    }
    records = (otlp_record(text, at_ns, read_ns or at_ns + SHIPPING_NS, of_file) for at_ns, text in lines)
    return otlp_body(resource, records)


def _attributes(values: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _resource(resource_logs: dict[str, Any], promoted: frozenset[str], now_ns: int) -> Iterator[Pushed]:
    attributes = resource_logs.get("resource", {}).get("attributes", [])
    indexed = [one for one in attributes if one["key"] in INDEX_ATTRIBUTES | promoted]
    others = [one for one in attributes if one["key"] not in INDEX_ATTRIBUTES | promoted]
    labels = with_service_name(dict(_labels(indexed)))
    entries = [
        _entry(record, [*_scope(scope_logs.get("scope", {})), *_labels(others)], now_ns)
        for scope_logs in resource_logs.get("scopeLogs", [])
        for record in scope_logs.get("logRecords", [])
    ]
    if entries:
        yield Pushed(labels, entries)


def _scope(scope: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _labels(scope.get("attributes", []))
    for name in ("name", "version"):
        if scope.get(name):
            yield f"scope_{name}", str(scope[name])


def _entry(record: dict[str, Any], shared: list[tuple[str, str]], now_ns: int) -> Entry:
    own = list(_labels(record.get("attributes", [])))
    event_ns, observed_ns = int(record.get("timeUnixNano", 0)), int(record.get("observedTimeUnixNano", 0))
    if event_ns and observed_ns:
        own.append(("observed_timestamp", str(observed_ns)))
    if number := int(record.get("severityNumber", 0)):
        own.append(("severity_number", str(number)))
    own += [(label, str(record[field])) for field, label in _RECORD_FIELDS.items() if record.get(field)]
    line = _text(record.get("body", {}))
    line.encode()  # refuses a lone surrogate
    return Entry(event_ns or observed_ns or now_ns, line, label_set([*own, *shared]))


def _labels(attributes: Iterable[dict[str, Any]], prefix: str = "") -> Iterator[tuple[str, str]]:
    for attribute in attributes:
        key = f"{prefix}_{attribute['key']}" if prefix else attribute["key"]
        value = attribute.get("value", {})
        try:
            name = normalized(key)
        except ValueError as error:
            raise LokiError(400, f"symbolizer lookup: {error}") from None
        if "kvlistValue" in value:
            yield from _labels(value["kvlistValue"].get("values", []), name)
        else:
            yield name, _text(value)


def _text(value: dict[str, Any]) -> str:
    """Return an attribute value or a body as text, as Go's collector library makes it."""
    plain = _plain(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, dict | list):
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return "" if plain is None else str(plain)


def _plain(value: dict[str, Any]) -> object:
    if "arrayValue" in value:
        return [_plain(one) for one in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        return {one["key"]: _plain(one.get("value", {})) for one in value["kvlistValue"].get("values", [])}
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()), None)


def _body_text(request: Request) -> str:
    """Uncompress the body. Bytes that are not UTF-8 become U+FFFD, as in Loki. Raises ``LokiError``."""
    encoding = request.headers.get("content-encoding", "")
    if encoding not in ("", "gzip"):
        raise LokiError(400, f'Content-Encoding "{encoding}" not supported')
    try:
        raw = gzip.decompress(request.body) if encoding else request.body
    except (OSError, EOFError, zlib.error):
        raise LokiError(400, "unexpected EOF") from None
    return raw.decode("utf-8", "replace")


def parse_push(request: Request) -> list[Pushed]:
    """Return the streams of one push. Raises ``LokiError`` if Loki could not read all of it."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise LokiError(400, "snappy: corrupt input")  # Loki takes any other type for compressed protobuf
    text = _body_text(request)
    if not text:
        raise LokiError(400, "EOF")
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise LokiError(400, f"loghttp.PushRequest.readFieldHash: {error}") from None
    if not isinstance(body, dict):
        raise LokiError(400, "readObjectStart: expect { or n, but found something else")
    try:
        return [_own_stream(stream) for stream in body.get("streams", [])]
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise LokiError(400, f"loghttp.PushRequest.Streams: []loghttp.LogProtoStream: {error}") from None


def _own_stream(stream: dict[str, object]) -> Pushed:
    labels, values = stream["stream"], stream["values"]
    if not isinstance(labels, dict) or not isinstance(values, list):
        raise TypeError("a stream has an object of labels and a list of values")
    for name in labels:
        if not LABEL_NAME.fullmatch(name):
            raise LokiError(400, f"couldn't parse labels: unexpected character in label name {name!r}")
    entries = [_own_entry(*value) for value in values]
    return Pushed(with_service_name({name: str(value) for name, value in labels.items()}), entries)


def _own_entry(timestamp: object, line: object, metadata: object = None) -> Entry:
    if not isinstance(timestamp, str) or not isinstance(line, str):
        raise TypeError("timestamp and line are strings")
    line.encode()  # a lone surrogate is refused here, as in Loki
    pairs = metadata or {}
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise TypeError("Value is string, but can't find closing '\"' symbol")
    return Entry(int(timestamp), line, label_set(pairs))
