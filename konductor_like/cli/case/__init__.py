"""``konductor-like case``: what a GPU's vendor asks for, in one archive."""
