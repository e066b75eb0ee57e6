"""Fault injection with real processes: the real controller, killed and frozen, over stand-ins that misbehave.

A schedule follows from its seed. ``machines`` are what the kernels say, ``world`` is everything around the
controllers, ``journal`` holds every write in the order of its effect, ``actors`` are the processes under
test, ``schedule`` is what happens to them, ``play`` lets it happen, and ``invariants`` says what must never
be. ``python -m tests.chaos.processes`` runs many.
"""
