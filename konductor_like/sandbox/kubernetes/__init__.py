"""A stand-in Kubernetes API server on loopback: Nodes, Namespaces, Events and Leases over real HTTP.

The kinds that manifests hold can be created, applied and read, and are acted upon by nobody.
What it does is stated by the contract suite (``tests/contract``), which a real API server has passed too.
What it does not: pods, YAML, protobuf, Events of ``events.k8s.io``, finalizers, and server-side apply by
several managers. Schemas and admission are the business of whoever starts it.
"""

from konductor_like.sandbox.kubernetes.access import Review, Rule
from konductor_like.sandbox.kubernetes.errors import expired_watch, matching, refusal
from konductor_like.sandbox.kubernetes.schema import FieldProblem, Flaw
from konductor_like.sandbox.kubernetes.server import Call, KubernetesServer
