"""Nodes: decoded, kept up to date, and changed by one JSON Patch each."""
