"""A stand-in Kubernetes API server on loopback: Nodes, Namespaces, Events and Leases over real HTTP.

Jobs get pods, a scheduler places them, and tests say what the pods do. Other kinds that the manifests contain
can be created, applied and read, but nothing acts on them. The contract suite (``tests/contract``) states
what the API does; a real API server has passed that suite too, but not yet its part about Jobs. The stand-in
lacks pods of other owners, YAML, protobuf, Events of ``events.k8s.io``, finalizers, and server-side apply by
several managers. Whoever starts it may pass a schema and an admission check.
"""

from konductor_like_sandbox.kubernetes.access import Denial, Review, Rule
from konductor_like_sandbox.kubernetes.errors import expired_watch, matching, refusal
from konductor_like_sandbox.kubernetes.schema import FieldProblem, Flaw
from konductor_like_sandbox.kubernetes.server import Call, KubernetesServer
