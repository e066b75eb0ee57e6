"""Entries of the catalogue, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from konductor_like.model import FaultKind, Severity
from konductor_like.model import Needs as Needs


class Mode(StrEnum):
    """The effect of a rule's findings."""

    ENFORCE = "enforce"
    """Findings have the effect of their severity."""
    SHADOW = "shadow"
    """Findings are counted and logged, but not recorded or acted upon: the rule is on trial."""
    OFF = "off"
    """The rule finds nothing."""


class Detail(StrEnum):
    """How the text behind an Xid's code changes the meaning of the code."""

    RECOVERY_ACTION = "recovery_action"
    """Xid 154: the action that the recovery action changes to."""
    CONTAINMENT = "containment"
    """Xid 94 and 95: ``RST`` (reset now) and ``D-RST`` (drain, then reset)."""
    NVLINK_REGISTERS = "nvlink_registers"
    """Xid 74: seven registers behind the link."""
    NVLINK5 = "nvlink5"
    """Xid 144 to 150: INTRINFO and ERRORSTATUS."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How to repair a fault: in words for people, and as what the machine needs."""

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
    """A page about the fault, where the rule's author named one."""
    origin: str = field(default="built-in", kw_only=True)
    """``built-in``, or the user's file that added or changed the entry."""
    fixed: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The fields that a user's file set, such as ``severity``; a line's details do not change them."""

    @property
    def line_decides(self) -> bool:
        """Whether a line's details can change the severity; they cannot where a user's file has set it."""
        return False


@dataclass(frozen=True, slots=True)
class XidEntry(Entry):
    """One Xid, with the contents of NVIDIA's catalogue.

    ``bucket`` is NVIDIA's immediate action and ``investigate`` NVIDIA's later one, by NVIDIA's names.
    ``generations`` are the GPUs for which NVIDIA lists it. ``recovery_since`` is the driver branch from which
    on an Xid 154 accompanies it: ``always`` means since Xid 154 exists, empty means never. ``clears`` is the
    Xid whose fault is over with this one.
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
    """One SXid. ``group`` is NVIDIA's class, ``guide`` the class in the Fabric Manager guide or empty."""

    word_decides: bool = False
    """Whether ``severity`` counts only with the word Fatal, because the driver prints Non-fatal for it
    too."""
    name: str = ""
    group: str = ""
    guide: str = ""

    @property
    def line_decides(self) -> bool:
        return self.word_decides and "severity" not in self.fixed


@dataclass(frozen=True, slots=True)
class LinkRule:
    """One row of the decode table of Xid 144 to 150.

    Masks and values are pairs: the layout before driver R575, and the layout since.
    """

    unit: str
    masks: tuple[int, int]
    values: tuple[int, int]
    status: int
    bucket: str
    investigate: str

    @property
    def severity(self) -> Severity:
        """Return fatal for ``RESET_GPU``, else suspect: there an Xid 154 beside it decides."""
        return Severity.FATAL if self.bucket == "RESET_GPU" else Severity.SUSPECT

    def fits(self, intrinfo: int) -> bool:
        """Whether the row applies to this INTRINFO, in either layout."""
        return intrinfo & self.masks[0] == self.values[0] or intrinfo & self.masks[1] == self.values[1]
