"""A stand-in Loki: an HTTP server on loopback that behaves like Loki where konductor-like relies on it.

``tests/contract`` states this behaviour; the suite runs against this server and against a real Loki.
"""

from konductor_like_sandbox.loki.limits import BigAnswer, LokiError, LokiLimits
from konductor_like_sandbox.loki.push import SHIPPING_NS, otlp_body, otlp_record, shipped
from konductor_like_sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER, LokiServer
