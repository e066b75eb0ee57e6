"""``konductor-like explain``."""
