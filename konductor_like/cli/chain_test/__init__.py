"""``konductor-like test``: one test of the whole chain, from a node's kernel log to its taint."""
