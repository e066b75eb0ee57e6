"""Stand-in servers on loopback, for the demo and the tests; ``tests/contract`` holds them to the real ones.

``server``, ``http`` and ``fault_injection`` are what both share: HTTP, a journal, things that go wrong on
request. ``fleet`` makes Nodes.
"""
