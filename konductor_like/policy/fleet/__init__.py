"""The fleet: evidence of many nodes, failure groups, escalation, and the brake."""
