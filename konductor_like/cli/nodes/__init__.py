"""``konductor-like reset`` and ``taint``: the commands that write nodes."""
