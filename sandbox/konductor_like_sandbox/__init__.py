"""Stand-in servers on loopback, for the demo and the tests; ``tests/contract`` compares them with real ones.

Both use ``server``, ``http`` and ``fault_injection``: HTTP, a journal of requests, and failures on request.
``fleet`` makes Nodes.
"""
