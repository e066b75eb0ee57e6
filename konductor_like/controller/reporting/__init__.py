"""Reports of a reconcile: log lines, the audit trail, metrics, and the Lease's attempts."""
