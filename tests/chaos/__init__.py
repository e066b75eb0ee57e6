"""Fault injection in simulated time: random schedules of troubles, and the invariants of the program."""
