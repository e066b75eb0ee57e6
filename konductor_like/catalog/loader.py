"""Reads the catalogue's files, checks them and puts them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeVar

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import (
    Advice,
    Detail,
    Entry,
    LinkRule,
    Needs,
    RegisterBit,
    SxidEntry,
    XidEntry,
)
from konductor_like.catalog.errors import CatalogError
from konductor_like.catalog.escalations import read_escalations
from konductor_like.catalog.patterns import read_rules
from konductor_like.catalog.tables import Record, read_csv, read_toml
from konductor_like.model import FaultKind, Severity, Source

T = TypeVar("T", bound=Entry)


@cache
def load_catalog() -> Catalog:
    """The package's own catalogue, read once. Raises CatalogError where a file of it is broken."""
    return read_catalog(files("konductor_like.catalog") / "data")


def read_catalog(folder: Traversable) -> Catalog:
    """The catalogue in ``folder``. Raises CatalogError with file, entry and field."""
    advice = dict(_advice(folder))
    cuda = dict(_cuda_errors(folder, advice))
    rules = tuple(read_rules(folder, advice, cuda))
    return Catalog(
        xids=_by_code(_xids(folder, advice)),
        sxids=_by_code(_sxids(folder, advice)),
        recovery_actions=_by_code(_recovery_actions(folder, advice)),
        link_rules=_link_rules(folder),
        register_bits=dict(_register_bits(folder)),
        cuda_errors=cuda,
        kernel_rules=tuple(rule for rule in rules if rule.source is Source.KERNEL),
        pod_rules=tuple(rule for rule in rules if rule.source is Source.POD),
        advice=advice,
        escalations=read_escalations(folder, advice),
    )


def _advice(folder: Traversable) -> Iterator[tuple[str, Advice]]:
    for record in read_toml(folder, "advice.toml"):
        record.only(frozenset({"text", "needs"}))
        yield record.name, Advice(record.text("text"), record.one_of("needs", Needs))


def _xids(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[Record, XidEntry]]:
    for record in read_csv(folder, "xid.csv"):
        code = record.integer("code")
        yield (
            record,
            XidEntry(
                rule=f"xid.{code}",
                kind=FaultKind.XID,
                severity=record.one_of("severity", Severity),
                title=record.text("title"),
                advice=_advice_of(record, advice),
                code=code,
                detail=record.one_of("detail", Detail) if record.optional_text("detail") else None,
                mnemonic=record.text("mnemonic"),
                bucket=record.optional_text("bucket"),
                investigate=record.optional_text("investigate"),
                generations=tuple(record.optional_text("generations").split()),
                recovery_since=record.optional_text("recovery_since"),
                clears=record.optional_integer("clears"),
            ),
        )


def _sxids(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[Record, SxidEntry]]:
    for record in read_csv(folder, "sxid.csv"):
        code = record.integer("code")
        word = record.optional_text("word")
        if word not in ("", "decides"):
            raise record.error("word", f"{word!r} is neither empty nor 'decides'")
        yield (
            record,
            SxidEntry(
                rule=f"sxid.{code}",
                kind=FaultKind.SXID,
                severity=record.one_of("severity", Severity),
                title=record.text("title"),
                advice=_advice_of(record, advice),
                code=code,
                word_decides=word == "decides",
                name=record.optional_text("name"),
                group=record.text("class"),
                guide=record.optional_text("guide"),
                printed=record.text("printed"),
            ),
        )


def _recovery_actions(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[Record, Entry]]:
    for record in read_csv(folder, "recovery_actions.csv"):
        yield (
            record,
            Entry(
                "xid.154",
                FaultKind.XID,
                record.one_of("severity", Severity),
                record.text("title"),
                _advice_of(record, advice),
                record.integer("value"),
            ),
        )


def _cuda_errors(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[str, Entry]]:
    for record in read_csv(folder, "cuda_errors.csv"):
        severity = record.one_of("severity", Severity)
        if severity.taints:
            raise record.error("severity", "a pod's line is never more than suspect (design rule 17)")
        code = record.optional_integer("code")
        texts = record.text("texts").split("|")
        rule = f"cuda.{record.text('name') if code is None else code}"
        entry = Entry(rule, FaultKind.CUDA, severity, f"CUDA: {texts[0]}", _advice_of(record, advice), code)
        for text in texts:
            yield text.lower(), entry


def _link_rules(folder: Traversable) -> dict[int, tuple[LinkRule, ...]]:
    rules: dict[int, list[LinkRule]] = {}
    for record in read_csv(folder, "nvlink5.csv"):
        masks = (record.integer("mask_before"), record.integer("mask_since"))
        values = (record.integer("value_before"), record.integer("value_since"))
        for mask, value in zip(masks, values, strict=True):
            if value & ~mask:
                raise record.error("value", f"{value:#x} has bits outside its mask {mask:#x}: never true")
        rule = LinkRule(
            unit=record.text("unit"),
            masks=masks,
            values=values,
            status=record.integer("status"),
            bucket=record.text("bucket"),
            investigate=record.text("investigate"),
            printed=record.text("printed"),
        )
        rules.setdefault(record.integer("xid"), []).append(rule)
    return {code: tuple(rows) for code, rows in rules.items()}


def _register_bits(folder: Traversable) -> Iterator[tuple[tuple[int, int], RegisterBit]]:
    for record in read_csv(folder, "xid74_registers.csv"):
        bit = RegisterBit(record.one_of("severity", Severity), record.text("meaning"))
        yield (record.integer("register"), record.integer("bit")), bit


def _advice_of(record: Record, advice: Mapping[str, Advice]) -> Advice:
    key = record.text("advice")
    if key not in advice:
        raise record.error("advice", f"{key!r} is not in advice.toml")
    return advice[key]


def _by_code(entries: Iterator[tuple[Record, T]]) -> dict[int, T]:
    table: dict[int, T] = {}
    for record, entry in entries:
        if entry.code is None:
            raise record.error("code", "is missing")
        if entry.code in table:
            raise CatalogError(record.file, record.name, "code", f"{entry.code} stands there twice")
        table[entry.code] = entry
    return table
