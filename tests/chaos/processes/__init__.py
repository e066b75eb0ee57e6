"""Fault injection with real processes: the real controller, killed and stopped, over failing stand-ins.

A schedule follows from its seed. ``machines`` has the kernels and their lines, ``world`` the stand-ins and
people, ``journal`` every write in the order of its effect, ``actors`` the processes under test, ``schedule``
the steps. ``play`` takes the steps and ``invariants`` checks the result. ``python -m tests.chaos.processes``
runs many schedules.
"""
