"""A stand-in Kubernetes API server on loopback: Nodes, Namespaces, Events and Leases over real HTTP.

The kinds that manifests hold can be created, applied and read, and are acted upon by nobody.
What it does is stated by the contract suite (``tests/contract``), which a real API server has passed too.
What it does not: pods, YAML, protobuf (but for two requests of kubectl's), finalizers, and server-side apply
by several managers. Schemas and admission are the business of whoever starts it.
"""

from konductor_like.sandbox.kubernetes.access import Rule
from konductor_like.sandbox.kubernetes.admission import Review
from konductor_like.sandbox.kubernetes.calls import Call
from konductor_like.sandbox.kubernetes.faults import expired_watch, matching, refusal
from konductor_like.sandbox.kubernetes.fieldcheck import FieldProblem, Flaw
from konductor_like.sandbox.kubernetes.server import KubernetesServer

__all__ = [
    "Call",
    "FieldProblem",
    "Flaw",
    "KubernetesServer",
    "Review",
    "Rule",
    "expired_watch",
    "matching",
    "refusal",
]
