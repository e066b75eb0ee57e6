"""The loop: take the Lease, lead, and reconcile one batch of lines after the other."""
