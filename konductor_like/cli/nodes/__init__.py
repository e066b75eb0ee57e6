"""``konductor-like reset``, ``taint`` and ``ack``: the commands that write nodes."""
