"""Everything known about faults: tables and pattern rules as data files, loaded and checked once.

The files in ``data`` hold the facts, with their sources; ``load_catalog`` reads them, refuses a broken one
with its file, entry and field, and lets every pattern rule prove itself on its own examples.
"""

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Advice, Detail, Entry, LinkRule, Mode, Needs, SxidEntry, XidEntry
from konductor_like.catalog.load import load_catalog, read_catalog
from konductor_like.catalog.patterns import PatternRule
from konductor_like.catalog.rules_file import CatalogError, RulesError
from konductor_like.catalog.user_rules import UserRules, read_user_rules
