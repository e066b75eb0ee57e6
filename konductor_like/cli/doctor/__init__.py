"""``konductor-like doctor``: gathers the facts of the whole chain, and shows each link."""
