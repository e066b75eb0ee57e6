"""``konductor-like status``."""
