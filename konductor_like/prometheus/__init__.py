"""The edge to Prometheus, and to what speaks its API: which alerts fire."""
