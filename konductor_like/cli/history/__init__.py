"""``konductor-like history``: outages of the past, from the audit trail and the nodes' records."""
