"""The configuration as text: values in effect and problems, each with the variable's name.

Secrets and the user part of URLs never leave this module. The module does not read the environment: the
caller passes the mapping from which the settings were loaded.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, get_args

from pydantic import AliasChoices, SecretStr, ValidationError

from konductor_like.settings import NEVER_WATCHED, PREFIX, Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

HIDDEN = "********"
UNSET = "<none>"
_SHOWN_CHARS = 120
_NEARLY_OURS = 0.91
"""Similarity (1.0 is equal) from which a variable without our prefix counts as a misspelt setting:
`LOG_ENDPONT` counts (0.96); other programs' `WATCH_NAMESPACE` (0.909) and `LOKI_ENDPOINT` (0.88) do not."""
_SERVICE_LINK = re.compile(
    r"KONDUCTOR_\w*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""The variables that Kubernetes sets for a Service ``konductor-like``: ``KONDUCTOR_LIKE_PORT`` and so on."""
_USERINFO = re.compile(r"(?<=://)[^/\s]*@")
_UP_TO_THE_HOST = re.compile(r"^(\s*\w+://)?.*@", re.DOTALL)
"""Hides everything before the last @ even in a wrong address: a password may contain a /, a blank or a #."""
_NO_PORT = re.compile(r"(?<=\w:)(?!//|\d{1,5}(/|$)).+", re.DOTALL)
"""Hides what is in the place of the port but is none: the password of an address that lacks its ``@host``."""

_MEANINGS = {
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:.12g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:.12g}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}
"""Pydantic's error types in words that fit an environment variable."""


REMOVED: Mapping[str, str] = {
    "KONDUCTOR_COMMON_NODE_JOBS": "`status` lists failed jobs, the node with most of them first",
    "KONDUCTOR_REFUSED_PODS": "load manifests/gpu_alerts.yaml, which has an alert for such nodes",
    "KONDUCTOR_FIRST_START_HISTORY_SECONDS": "it is a day now",
    "KONDUCTOR_FUTURE_SKEW_SECONDS": "it is 600 now, as far ahead as Loki accepts lines",
    "KONDUCTOR_GAP_REVISIT_SECONDS": "it is 600 now",
    "KONDUCTOR_HOLD_MAX_SECONDS": "it is a day now",
    "KONDUCTOR_KERNEL_OVERLAP_SECONDS": "it is 180 now; KONDUCTOR_LATENESS_SECONDS finds later lines",
    "KONDUCTOR_KUBE_TIMEOUT_SECONDS": "it is 10 now",
    "KONDUCTOR_LEASE_RENEW_DEADLINE_SECONDS": "it is two thirds of KONDUCTOR_LEASE_DURATION_SECONDS now",
    "KONDUCTOR_LEASE_RENEW_INTERVAL_SECONDS": "it is a third of KONDUCTOR_LEASE_DURATION_SECONDS now",
    "KONDUCTOR_LOKI_CONNECT_TIMEOUT_SECONDS": "it is 5 now",
    "KONDUCTOR_POD_LATENESS_SECONDS": "it is 900 now",
    "KONDUCTOR_POD_OVERLAP_SECONDS": "it is 15 now",
    "KONDUCTOR_POD_POLL_INTERVAL_SECONDS": "it is 15 now",
    "KONDUCTOR_POD_SWEEP_INTERVAL_SECONDS": "it is 1200 now",
    "KONDUCTOR_RECORD_INTERVAL_SECONDS": "it is 600 now",
    "KONDUCTOR_SUSPECT_TAINT": "the label `trainy.konduktor.ai/health=suspect` names the suspect nodes",
    "KONDUCTOR_SWEEP_INTERVAL_SECONDS": "it is 120 now, or a 30th of KONDUCTOR_LATENESS_SECONDS if longer",
    "KONDUCTOR_UNKNOWN_NODE_SECONDS": "it is 600 now",
}
"""By a variable that an earlier version read, what to do instead. It is a warning, no error."""


class Effective(NamedTuple):
    """One setting in effect: the variable's name, its value as text, and the value's origin."""

    name: str
    value: str
    origin: str
    """``default`` or ``environment``."""


def explain_settings_error(error: ValidationError, environ: Mapping[str, str]) -> list[str]:
    """Return a line per problem: the variable, its value (secrets hidden) and what is wrong."""
    return [_explain(problem, environ) for problem in error.errors()]


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """Return a line per variable that no setting reads, if it has our prefix or resembles a setting's name.

    A line also names the namespace that is never watched, if the value has it. Case does not matter in a
    variable's name. Variables of the test suite (``KONDUCTOR_TEST_...``) are ignored.
    """
    known = [name for field in Settings.model_fields for name in _variables(field)]
    watching, lines = _variables("watched_namespaces"), []
    for name in sorted(environ):
        upper = name.upper()
        if upper in watching and NEVER_WATCHED in map(str.strip, environ[name].split(",")):
            lines.append(f"{name}: {NEVER_WATCHED} is left out; its pods run no jobs, and some quote faults")
        ours = upper.startswith(PREFIX)
        if upper in known or upper in REMOVED or upper.startswith(PREFIX + "TEST_"):
            continue
        if _SERVICE_LINK.fullmatch(name):
            continue
        meant = difflib.get_close_matches(upper, known, n=1, cutoff=0.75 if ours else _NEARLY_OURS)
        if meant or ours:
            lines.append(f"{name}: no such setting" + (f"; did you mean {meant[0]}?" if meant else ""))
    return lines


def removed(environ: Mapping[str, str]) -> list[str]:
    """Return a line per variable that an earlier version read and this version does not."""
    return [
        f"{name}: this version has no such setting; {REMOVED[name.upper()]}"
        for name in sorted(environ)
        if name.upper() in REMOVED
    ]


def effective(settings: Settings, environ: Mapping[str, str]) -> list[Effective]:
    """Return every setting, in the order of the reference page."""
    return [
        Effective(
            _variable(field, environ),
            _shown(field, getattr(settings, field)),
            "environment" if field in settings.model_fields_set else "default",
        )
        for field in Settings.model_fields
    ]


def _explain(problem: ErrorDetails, environ: Mapping[str, str]) -> str:
    meaning = _MEANINGS.get(problem["type"])
    reason = meaning.format(**problem.get("ctx", {})) if meaning else problem["msg"]
    if not problem["loc"]:
        return reason  # a problem of several settings, which the sentence names
    field = str(problem["loc"][0])
    return f"{_variable(field, environ)}={_quoted(field, problem['input'])}: {reason}"


def _quoted(field: str, value: object) -> str:
    if _is_secret(field):
        return HIDDEN
    text = _without_password(field, str(value))
    if field == "log_endpoint":
        text = _NO_PORT.sub(HIDDEN, text)
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")


def _without_password(field: str, text: str) -> str:
    if field == "log_endpoint":
        return _UP_TO_THE_HOST.sub(rf"\1{HIDDEN}@", text)
    return _USERINFO.sub(f"{HIDDEN}@", text)


def _shown(field: str, value: object) -> str:
    match value:
        case None | () | "":
            return UNSET
        case SecretStr():
            return HIDDEN
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.12g}"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return _without_password(field, str(value))


def _is_secret(field: str) -> bool:
    info = Settings.model_fields.get(field)
    return info is not None and SecretStr in (info.annotation, *get_args(info.annotation))


def _variables(field: str) -> tuple[str, ...]:
    """Return the environment variables that set a field, the documented one first."""
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(name for name in alias.choices if isinstance(name, str) and name.isupper())
    return (PREFIX + field.upper(),)


def _variable(field: str, environ: Mapping[str, str]) -> str:
    """Return the variable that set the field, in any case; the documented variable if none did."""
    present = {name.upper(): name for name in environ}
    names = _variables(field) if field in Settings.model_fields else (field,)
    return next((present[name] for name in names if name in present), names[0])
