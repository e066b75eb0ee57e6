"""Entries of the catalogue, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from konductor_like.model import FaultKind, Severity


class Needs(StrEnum):
    """The repair that a machine needs before a fault can be called gone."""

    NOTHING = "nothing"
    APPLICATION_RESTART = "application restart"
    SOFTWARE_UPDATE = "software update"
    GPU_RESET = "gpu reset"
    FABRIC_RESET = "fabric reset"
    """GPUs and NVSwitches (of the node, or of its NVLink domain) are reset together."""
    REBOOT = "reboot"
    INSPECTION = "inspection"
    REPLACEMENT = "replacement"
    SUPPORT = "support"
    """Nobody but the vendor can say."""


class Mode(StrEnum):
    """The effect of a rule's findings."""

    ENFORCE = "enforce"
    """As their severity says."""
    SHADOW = "shadow"
    """Counted and logged, never recorded and never acted upon: a rule on trial."""
    OFF = "off"
    """Nothing is found."""


class Detail(StrEnum):
    """How the text behind an Xid's code changes what it means."""

    RECOVERY_ACTION = "recovery_action"
    """Xid 154: the action it changes to."""
    CONTAINMENT = "containment"
    """Xid 94 and 95: ``RST`` and ``D-RST``."""
    NVLINK_REGISTERS = "nvlink_registers"
    """Xid 74: seven registers behind the link."""
    NVLINK5 = "nvlink5"
    """Xid 144 to 150: INTRINFO and ERRORSTATUS."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The way to repair a fault: in words for people, and as the machine's need."""

    text: str
    needs: Needs


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault that the catalogue knows. ``rule`` is its name: ``xid.79``, ``nvrm.init_failed``."""

    rule: str
    kind: FaultKind
    severity: Severity
    title: str
    advice: Advice
    code: int | None = None
    mode: Mode = field(default=Mode.ENFORCE, kw_only=True)
    link: str = field(default="", kw_only=True)
    """A page about it, where the rule's author gave one."""
    origin: str = field(default="built-in", kw_only=True)
    """``built-in``, or the user's file that made it or changed it."""
    fixed: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The fields that a user's file set, such as ``severity``: a line's details no longer change them."""

    @property
    def line_decides(self) -> bool:
        """Whether details of its line change the severity, unless a user's file has set it."""
        return False


@dataclass(frozen=True, slots=True)
class XidEntry(Entry):
    """One Xid, with what NVIDIA's catalogue says about it.

    ``bucket`` and ``investigate`` are NVIDIA's immediate and later action, under NVIDIA's names.
    ``generations`` are the GPUs it is listed for; ``recovery_since`` the driver branch since which an Xid 154
    comes with it (``always``: since there is such a code; empty: none does). ``clears`` is the Xid that this
    one takes back.
    """

    detail: Detail | None = None
    mnemonic: str = ""
    bucket: str = ""
    investigate: str = ""
    generations: tuple[str, ...] = ()
    recovery_since: str = ""
    clears: int | None = None

    @property
    def line_decides(self) -> bool:
        return self.detail is not None and "severity" not in self.fixed


@dataclass(frozen=True, slots=True)
class SxidEntry(Entry):
    """One SXid. ``group`` is NVIDIA's class, ``guide`` that of the Fabric Manager guide (may be empty)."""

    word_decides: bool = False
    """The driver prints this code as Fatal and as Non-fatal, and only Fatal has ``severity``."""
    name: str = ""
    group: str = ""
    guide: str = ""

    @property
    def line_decides(self) -> bool:
        return self.word_decides and "severity" not in self.fixed


@dataclass(frozen=True, slots=True)
class LinkRule:
    """One row of the decode table of Xid 144 to 150, in the layouts before and since driver R575."""

    unit: str
    masks: tuple[int, int]
    values: tuple[int, int]
    status: int
    bucket: str
    investigate: str

    @property
    def severity(self) -> Severity:
        """``RESET_GPU`` is fatal; everything else is recorded, and an Xid 154 beside it decides."""
        return Severity.FATAL if self.bucket == "RESET_GPU" else Severity.SUSPECT

    def fits(self, intrinfo: int) -> bool:
        """Whether the row speaks about this INTRINFO, in either layout."""
        return intrinfo & self.masks[0] == self.values[0] or intrinfo & self.masks[1] == self.values[1]
