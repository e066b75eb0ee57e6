"""Rules files for the tests, as a user would write them."""

from __future__ import annotations

from konductor_like.catalog import UserRules, load_catalog, read_user_rules

OWN_RULE = """
rules:
  - id: site.nic_down
    source: kernel
    severity: suspect
    title: The NIC is gone
    advice: Look at the cable, then at the switch.
    contains: [health compromised]
    patterns: ['mlx5_core {pci}: .{0,80}health compromised']
    match: ['mlx5_core 0000:3d:00.0: device''s health compromised']
    no_match: ['mlx5_core 0000:3d:00.0: all is well']
"""
POD_RULE = """
rules:
  - id: site.flux
    source: pod
    severity: fatal
    title: The flux is broken
    advice: memory_error
    contains: [flux is broken]
    patterns: ['the flux is broken']
    match: ['ERROR: the flux is broken']
    no_match: ['ERROR: a flux is broken']
"""


def read(text: str) -> UserRules:
    """Return the file's rules, laid over the packaged ones."""
    return read_user_rules(text, "rules.yaml", load_catalog())
