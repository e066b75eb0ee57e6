"""Deciding: what faults mean for nodes, as values only.

``decide.decide`` is the one path: controller, dry run, demo and every command render its ``Plan``.
"""
