"""What happened to the fleet: outages, from the audit trail in Loki and from the nodes' records."""
