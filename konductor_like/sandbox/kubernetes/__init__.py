"""A stand-in Kubernetes API server on loopback: Nodes, Namespaces, Events and Leases over real HTTP.

What it does is stated by the contract suite (``tests/contract``), which a real API server has passed too.
What it does not: pods, server-side apply, YAML, protobuf (but for two requests of kubectl's), finalizers,
admission.
"""

from konductor_like.sandbox.kubernetes.access import Rule
from konductor_like.sandbox.kubernetes.calls import Call
from konductor_like.sandbox.kubernetes.faults import expired_watch, matching, refusal
from konductor_like.sandbox.kubernetes.server import KubernetesServer

__all__ = ["Call", "KubernetesServer", "Rule", "expired_watch", "matching", "refusal"]
