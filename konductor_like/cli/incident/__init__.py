"""``konductor-like incident``: save what happened to a node as a file, and replay such a file."""
