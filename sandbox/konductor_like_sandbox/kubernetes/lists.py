"""Lists: selected by labels and fields, in pages; all pages show the same moment."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from konductor_like_sandbox.http import Request
from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.resources import COMMON_FIELDS, SELECTABLE_FIELDS, Resource
from konductor_like_sandbox.kubernetes.store import Key, Store, Stored
from konductor_like_sandbox.kubernetes.validation import label_key_problems

Test = Callable[[Mapping[str, str]], bool]
"""A test of an object's labels, or of the fields that it may be selected by."""

_WORD = r"[^\s=!(),<>]+"
_REQUIREMENT = re.compile(
    rf"""\s*(?P<absent>!)?\s*(?P<key>{_WORD})\s*
    (?:(?P<operator>==|!=|=|<|>)\s*(?P<value>{_WORD})?
    |(?<=\s)(?P<set>in|notin)\s*\((?P<values>[^()=!<>]*)\))?\s*""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"(?P<name>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, "
    "or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - "
    "objects that were created, modified, or deleted between the time the first chunk was returned "
    "and now may show up in the list."
)
_LATEST = -1
"""The version in a token that continues with the present objects."""


class Selection:
    """The objects that a list or watch selects, by the request's parameters. Raises ``ApiError`` (400)."""

    def __init__(self, resource: Resource, namespace: str, request: Request, name: str = "") -> None:
        self.namespace = namespace
        self.everything = not (request.param("labelSelector") or request.param("fieldSelector"))
        self._labels: Test = parse_labels(request.param("labelSelector"))
        self._fields: Test = parse_fields(request.param("fieldSelector"), resource.plural)
        self._name = name

    def takes(self, item: Stored) -> bool:
        """Whether ``item`` is selected."""
        return (
            (not self.namespace or item.key.namespace == self.namespace)
            and (not self._name or item.key.name == self._name)
            and self._labels(item.labels)
            and self._fields(item.fields)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list."""

    version: int
    items: Sequence[Stored]
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """The list's metadata."""
        meta: dict[str, Any] = {"resourceVersion": str(self.version)}
        if self.continue_token:
            meta["continue"] = self.continue_token
            if self.remaining is not None:
                meta["remainingItemCount"] = self.remaining
        return meta


class Lists:
    """Answers lists, and keeps the moments that continue tokens refer to."""

    def __init__(self, store: Store, token_seconds: float = 300.0, moments: int = 16) -> None:
        self._store = store
        self._token_seconds = token_seconds
        self._limit = moments
        self._moments: OrderedDict[tuple[str, str, int], tuple[float, list[Stored]]] = OrderedDict()

    def expire_tokens(self) -> None:
        """Make every continue token that was given out too old."""
        with self._store.lock:
            self._moments.clear()

    def page(self, resource: Resource, selection: Selection, request: Request) -> Page:
        """Return the page that ``limit`` and ``continue`` ask for. Raises ``ApiError`` (400, 410, 504)."""
        limit = whole_number(request, "limit")
        token = request.param("continue")
        if token:
            version, items = self._resume(resource, selection, token)
        else:
            version, items = self._store.objects(resource.plural, selection.namespace)
            wanted = version_of(request)
            if wanted > version:
                raise errors.too_large_resource_version(wanted, version)
        chosen = [item for item in items if selection.takes(item)]
        if limit <= 0 or len(chosen) <= limit:
            return Page(version, chosen)
        if not token:  # a later page must not make the first page's token last longer
            self._remember((resource.plural, selection.namespace, version), items)
        last = chosen[limit - 1].key
        start = "/".join(filter(None, last)) if not selection.namespace else last.name
        remaining = len(chosen) - limit if selection.everything else None
        return Page(version, chosen[:limit], _token(version, start + "\0"), remaining)

    def _remember(self, moment: tuple[str, str, int], items: list[Stored]) -> None:
        with self._store.lock:
            self._moments[moment] = (time.monotonic(), items)
            self._moments.move_to_end(moment)
            while len(self._moments) > self._limit:
                self._moments.popitem(last=False)

    def _resume(self, resource: Resource, selection: Selection, token: str) -> tuple[int, list[Stored]]:
        version, start = _read_token(token)
        with self._store.lock:
            if version == _LATEST:
                version, items = self._store.objects(resource.plural, selection.namespace)
            else:
                moment = (resource.plural, selection.namespace, version)
                since, items = self._moments.get(moment, (0.0, []))
                if not since or time.monotonic() - since > self._token_seconds:
                    raise errors.expired(TOO_OLD, _token(_LATEST, start))
        first = _start_key(start, resource.namespaced, selection.namespace)
        return version, [item for item in items if item.key >= first]


def whole_number(request: Request, name: str) -> int:
    """Return a number from the query; 0 if it is absent. Raises ``ApiError`` (400)."""
    text = request.param(name) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def version_of(request: Request) -> int:
    """Return the ``resourceVersion`` of the query; 0 if any will do. Raises ``ApiError`` (400)."""
    text = request.param("resourceVersion") or "0"
    if not text.isdecimal():
        problem = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.bad_request(f"invalid resource version: resourceVersion: {problem}")
    return int(text)


def _start_key(start: str, namespaced: bool, namespace: str) -> Key:
    path = start.removeprefix("/")
    if not namespaced or namespace:
        return Key(namespace, path)
    return Key(*path.partition("/")[::2])


def _token(version: int, start: str) -> str:
    content = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    problem = "invalid continue token: continue key is not valid"
    try:
        decoded = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        content = json.loads(decoded)
        kind, version, start = content["v"], int(content["rv"]), str(content["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise errors.bad_request(f"{problem}: {error}") from error
    if kind != "meta.k8s.io/v1":
        raise errors.bad_request(f"{problem}: server does not recognize this encoded version {kind}")
    if not version:
        raise errors.bad_request(
            f"{problem}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        )
    return version, start


def parse_labels(text: str) -> Test:
    """Return a test for ``labelSelector``. Raises ``ApiError`` (400) if it cannot be read."""
    parts = re.split(r",(?![^(]*\))", text) if text.strip() else []  # at commas outside of parentheses
    tests = [_requirement(part) for part in parts]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(text: str) -> Test:
    found = _REQUIREMENT.fullmatch(text)
    if found is None or (found["absent"] and (found["operator"] or found["set"])):
        raise _unreadable(f"found '{text}', expected: a label and what it must be")
    key, operator, value = found["key"], found["operator"], found["value"] or ""
    if problems := label_key_problems(key):
        raise _unreadable(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
    if found["set"]:
        values = {one.strip() for one in found["values"].split(",")}
        if any(re.search(r"\s", one) for one in values):
            raise _unreadable(f"found '{found['values']}', expected: ',' or ')'")
        return lambda labels: (labels.get(key) in values) == (found["set"] == "in")
    if operator in ("<", ">"):
        return _comparison(key, operator, value)
    if operator:
        return lambda labels: (labels.get(key) == value) == (operator != "!=")
    return lambda labels: (key in labels) != bool(found["absent"])


def _comparison(key: str, operator: str, bound: str) -> Test:
    if not re.fullmatch(r"-?\d+", bound):
        raise _unreadable(
            f"values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )

    def test(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > int(bound) if operator == ">" else int(value) < int(bound)

    return test


def _unreadable(why: str) -> errors.ApiError:
    return errors.bad_request(f"unable to parse requirement: {why}")


def parse_fields(text: str, table: str) -> Test:
    """Return a test for ``fieldSelector``. Raises ``ApiError`` (400) for an invalid one or another field."""
    tests: list[Test] = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = _FIELD_TERM.fullmatch(term)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        tests.append(_field_test(match["name"], match["operator"], match["value"], table))
    return lambda fields: all(test(fields) for test in tests)


def _field_test(name: str, operator: str, value: str, table: str) -> Test:
    if name not in SELECTABLE_FIELDS.get(table, COMMON_FIELDS):
        raise errors.bad_request(f"field label not supported: {name}")
    wanted = re.sub(r"\\([\\,=])", r"\1", value)
    if operator == "!=":
        return lambda fields: fields[name] != wanted
    return lambda fields: fields[name] == wanted
