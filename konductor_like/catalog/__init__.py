"""Everything known about faults: tables and pattern rules as data files, loaded and checked once.

The files in ``data`` contain the facts, with their sources. ``load_catalog`` reads them. It refuses a broken
file and names the file, entry and field, and it tries every pattern rule on the rule's own examples.
"""

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Advice, Detail, Entry, LinkRule, Mode, Needs, SxidEntry, XidEntry
from konductor_like.catalog.load import condition_rules, load_catalog, read_catalog
from konductor_like.catalog.patterns import PatternRule
from konductor_like.catalog.rules_file import CatalogError, RulesError
from konductor_like.catalog.user_rules import UserRules, read_user_rules
