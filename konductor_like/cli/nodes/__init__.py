"""``konductor-like reset``, ``taint`` and ``ack``: what people do to nodes."""
