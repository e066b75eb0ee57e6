"""The parameters of a query, read and checked as Loki does (source: pkg/loghttp/params.go, query.go)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

from konductor_like.sandbox.loki.clock import (
    go_duration,
    model_duration,
    parse_duration_ns,
    parse_step_ns,
    parse_time_ns,
)
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like.sandbox.wire import Request

_DEFAULT_LIMIT = 100
_DEFAULT_SINCE_NS = 3600 * SECOND_NS
_MAX_POINTS = 11_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """[start, end) in ns."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


def with_form(request: Request) -> Request:
    """The request with the parameters of a posted form among its own, which come second."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return request
    form = parse_qs(request.body.decode("utf-8", "replace"), keep_blank_values=True)
    names = {*form, *request.params}
    return replace(
        request, params={name: [*form.get(name, ()), *request.params.get(name, ())] for name in names}
    )


def bounds(request: Request, now_ns: int) -> Bounds:
    """The range of a query, by default the last hour. Raises ``LokiError``."""
    since_ns = _read("since", request.param("since"), parse_duration_ns, _DEFAULT_SINCE_NS)
    end_ns = _read("end", request.param("end"), parse_time_ns, now_ns)
    start_ns = _read("start", request.param("start"), parse_time_ns, min(end_ns, now_ns) - since_ns)
    return Bounds(start_ns, end_ns)


def query_bounds(request: Request, now_ns: int) -> Bounds:
    """The range of ``query_range``. Raises ``LokiError`` if it runs backwards."""
    found = bounds(request, now_ns)
    if found.end_ns < found.start_ns:
        raise LokiError(400, "end timestamp must not be before or equal to start time")
    return found


def check_length(asked: Bounds, limits: LokiLimits) -> None:
    """Raises ``LokiError`` if the range is longer than a tenant may ask for."""
    longest_ns = limits.max_query_length_seconds * SECOND_NS
    if asked.length_ns > longest_ns:
        raise LokiError(
            400,
            f"the query time range exceeds the limit (query length: {go_duration(asked.length_ns)}, "
            f"limit: {model_duration(longest_ns)})",
        )


def line_limit(request: Request) -> int:
    """How many lines are wanted. Raises ``LokiError``."""
    text = request.param("limit")
    if text and not re.fullmatch(r"[+-]?\d+", text):
        raise LokiError(400, f'strconv.Atoi: parsing "{text}": invalid syntax')
    limit = int(text) if text else _DEFAULT_LIMIT
    if limit <= 0:
        raise LokiError(400, "limit must be a positive value")
    return limit


def check_line_limit(limit: int, limits: LokiLimits) -> None:
    """Raises ``LokiError`` if a log query asks for more lines than a tenant may have."""
    most = limits.max_entries_limit_per_query
    if limit > most:
        raise LokiError(
            400,
            f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {most})",
        )


def is_forward(request: Request) -> bool:
    """Whether the oldest lines come first; the default is the newest. Raises ``LokiError``."""
    direction = request.param("direction")
    if direction.upper() not in ("", "FORWARD", "BACKWARD"):
        raise LokiError(400, f"invalid direction '{direction}'")
    return direction.upper() == "FORWARD"


def steps_ns(request: Request, asked: Bounds) -> list[int]:
    """The points of a metric query over a range: multiples of the step around it. Raises ``LokiError``."""
    default_ns = max(asked.length_ns // (250 * SECOND_NS), 1) * SECOND_NS
    try:
        step_ns = parse_step_ns(request.param("step")) if request.param("step") else default_ns
    except ValueError as error:
        raise LokiError(400, str(error)) from None
    if step_ns <= 0:
        raise LokiError(
            400, "zero or negative query resolution step widths are not accepted. Try a positive integer"
        )
    if asked.length_ns // step_ns > _MAX_POINTS:
        raise LokiError(
            400,
            "exceeded maximum resolution of 11,000 points per time series. "
            "Try increasing the value of the step parameter",
        )
    first, last = asked.start_ns // step_ns, -(-asked.end_ns // step_ns)
    return [point * step_ns for point in range(first, last + 1)]


def instant_ns(request: Request, now_ns: int) -> int:
    """The time of an instant query. Raises ``LokiError``."""
    try:
        return parse_time_ns(request.param("time")) if request.param("time") else now_ns
    except ValueError as error:
        raise LokiError(400, str(error)) from None


def _read(name: str, text: str, parse: Callable[[str], int], default: int) -> int:
    try:
        return parse(text) if text else default
    except ValueError as error:
        raise LokiError(400, f"could not parse '{name}' parameter: {error}") from None
