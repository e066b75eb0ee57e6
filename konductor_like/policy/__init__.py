"""The decision: what the controller does about faults. Values in, a ``Plan`` out.

``decide.decide`` is the one path: controller, dry run, demo and every command render its ``Plan``.
"""
