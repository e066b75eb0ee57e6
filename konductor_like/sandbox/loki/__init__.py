"""A stand-in Loki: an HTTP server on loopback that behaves as Loki does where konductor-like relies on it.

What that is, is stated in ``tests/contract``, which runs against this server and against a real Loki alike.
"""

from konductor_like.sandbox.loki.limits import BigAnswer, LokiError, LokiLimits
from konductor_like.sandbox.loki.push import SHIPPING_NS, otlp_body, otlp_record, shipped
from konductor_like.sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER, LokiServer
