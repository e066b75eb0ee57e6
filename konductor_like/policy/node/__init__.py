"""One node: its record, what faults, reboots and people make of it, and what it needs."""
