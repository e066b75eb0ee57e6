"""Stand-in servers on loopback, for the demo and the tests; ``tests/contract`` holds them to the real ones.

``server``, ``wire`` and ``mishaps`` are what both share: HTTP, a journal, things that go wrong on request.
``fleet`` makes Nodes. Both run alone: ``python -m konductor_like.sandbox.loki`` and ``….kubernetes``.
"""
