"""Fault injection: random schedules of everything that can go wrong, and what must hold all the same."""
