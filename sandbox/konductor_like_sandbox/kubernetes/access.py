"""Access control: bearer tokens, users with rules like RBAC's, denials for everybody, and admission."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from konductor_like_sandbox.kubernetes import errors

ADMIN = "kubernetes-admin"
ANONYMOUS = "system:anonymous"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One verb on one resource, in RBAC's terms. ``resource`` includes the subresource: ``nodes/status``."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a Role or ClusterRole; ``*`` matches anything, and so do empty names or namespaces."""

    verbs: Collection[str]
    resources: Collection[str]
    groups: Collection[str] = ("",)
    names: Collection[str] = ()
    namespaces: Collection[str] = ()

    def covers(self, attempt: Attempt) -> bool:
        """Whether the rule matches this attempt."""
        return (
            _among(attempt.verb, self.verbs)
            and _among(attempt.resource, self.resources)
            and _among(attempt.group, self.groups)
            and (not self.names or attempt.name in self.names)
            and (not self.namespaces or attempt.namespace in self.namespaces)
        )


def _among(value: str, allowed: Collection[str]) -> bool:
    return value in allowed or "*" in allowed


@dataclass(frozen=True, slots=True)
class User:
    """A user with a token. A user without rules may do everything."""

    name: str
    rules: tuple[Rule, ...] | None = None


class Access:
    """The server's users, tokens, rules and denials."""

    def __init__(self, require_token: bool) -> None:
        self.admin_token = secrets.token_urlsafe(24)
        self._users = {self.admin_token: User(ADMIN)}
        self._denials: list[Rule] = []
        self._require_token = require_token

    def add_user(self, name: str, rules: Collection[Rule] | None = None) -> str:
        """Add a user; return the token."""
        token = secrets.token_urlsafe(24)
        self._users[token] = User(name, None if rules is None else tuple(rules))
        return token

    def revoke(self, token: str) -> None:
        """Answer the token with 401 from now on, like an expired one."""
        self._users.pop(token, None)

    def deny(self, verb: str, resource: str, group: str = "", name: str = "", namespace: str = "") -> None:
        """Forbid this to everybody; ``*`` matches any verb, resource or group."""
        names, namespaces = (name,) if name else (), (namespace,) if namespace else ()
        self._denials.append(Rule((verb,), (resource,), (group,), names, namespaces))

    def who(self, headers: Mapping[str, str]) -> User:
        """Return the user who sent a request; ``kubectl --as`` is supported.

        Raises ``ApiError``: 401 for an unknown token, 403 for an impersonation that is not allowed. kubectl
        and client-go send no token over plain HTTP, so a request without a token is the admin's unless
        ``require_token`` is set.
        """
        user = self._bearer(headers.get("authorization", ""))
        name = headers.get("impersonate-user")
        if name is None:
            return user
        self.check(user, _impersonating(name))
        return next((known for known in self._users.values() if known.name == name), User(name, ()))

    def _bearer(self, authorization: str) -> User:
        scheme, _, token = authorization.partition(" ")
        if not token:
            return User(ANONYMOUS, ()) if self._require_token else User(ADMIN)
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise errors.unauthorized()
        return user

    def permits(self, user: User, attempt: Attempt) -> bool:
        """Whether the user may do it."""
        if any(rule.covers(attempt) for rule in self._denials):
            return False
        return user.rules is None or any(rule.covers(attempt) for rule in user.rules)

    def check(self, user: User, attempt: Attempt) -> None:
        """Raises ``ApiError`` (403) unless the user may do it."""
        if not self.permits(user, attempt):
            raise errors.forbidden(
                user.name, attempt.verb, attempt.group, attempt.resource, attempt.name, attempt.namespace
            )


def _impersonating(name: str) -> Attempt:
    """Return what a request in the name of this user needs; a ServiceAccount is a resource of its own."""
    match name.split(":"):
        case ["system", "serviceaccount", namespace, account]:
            return Attempt("impersonate", "serviceaccounts", namespace=namespace, name=account)
    return Attempt("impersonate", "users", name=name)


@dataclass(frozen=True, slots=True)
class Review:
    """One write that the server is about to carry out."""

    user: str
    operation: str
    """CREATE, UPDATE (every patch is one) or DELETE."""
    group: str
    resource: str
    """The plural: ``nodes``."""
    name: str
    subresource: str
    object: Mapping[str, Any] | None
    """The object after the write; None for a deletion."""
    old_object: Mapping[str, Any] | None
    """The object before the write; None for a creation."""


class Denial(str):
    """Why a write is denied, by a policy that gives a reason of its own: ``Invalid`` is a 422."""

    reason: str

    def __new__(cls, why: str, reason: str = "Forbidden") -> Denial:
        """Return the text with the reason."""
        denial = super().__new__(cls, why)
        denial.reason = reason
        return denial


Admission = Callable[[Review], str]
"""Returns why a write is denied; an empty text if it is allowed."""


def admit_all(_review: Review) -> str:
    """Allow every write."""
    return ""


def check_admission(admission: Admission, review: Review) -> None:
    """Raises ``ApiError`` (403, or by the denial's reason) when the write is denied."""
    why = admission(review)
    if why:
        reason = why.reason if isinstance(why, Denial) else "Forbidden"
        raise errors.denied(review.group, review.resource, review.name, why, reason=reason)
