"""The generated pages: ``make docs`` rewrites them, a test holds them to the code.

A page is a template in ``tools/pages``, in which ``{{name}}`` stands for a generated part.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import typer
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from konductor_like.catalog import Catalog, Entry, Mode, PatternRule, load_catalog
from konductor_like.catalog.escalation_text import texts_of
from konductor_like.cli.app import build
from konductor_like.cluster.events import _NORMAL
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.exits import Exit
from konductor_like.model import EventReason, FaultKind, Severity
from konductor_like.settings import EVERYDAY, PREFIX, Settings
from tools.quality.report import detection_quality

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "konductor_like"
_TEMPLATES = Path(__file__).parent / "pages"
_HELP_WIDTH = 100
_WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}


class Runbook(NamedTuple):
    """What to do about an alert or an Event reason."""

    link: str
    """Its file in docs/runbooks, with the anchor where the file has several runbooks."""
    text: str
    """Its sections."""

    @property
    def summary(self) -> str:
        """Return the first sentence of its meaning."""
        meaning = self.text.split("# What it means\n")[1]
        return _cell(re.split(r"(?<=[.:])\s", meaning.strip(), maxsplit=1)[0]).rstrip(":.") + "."


def runbooks() -> dict[str, Runbook]:
    """Return every runbook by the name of its alert or Event reason."""
    found: dict[str, Runbook] = {}
    for page in sorted((DOCS / "runbooks").glob("*.md")):
        title, text = page.read_text("utf-8").split("\n", 1)
        if page.name == "other-events.md":
            for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
                name, text = section.split("\n", 1)
                found[name] = Runbook(f"{page.name}#{name.lower()}", text)
        elif page.name != "README.md":
            for name in title.removeprefix("# ").split(", "):
                found[name] = Runbook(page.name, text)
    return found


class Command(NamedTuple):
    """A command of the program, below its parents."""

    command: Any
    name: str
    parent: Any

    def context(self, arguments: list[str], *, resilient: bool = False) -> Any:
        """Let the command read its arguments; it does not run. Raises the program's error about them."""
        return self.command.make_context(
            self.name, arguments, parent=self.parent, resilient_parsing=resilient
        )


def commands() -> dict[str, Command]:
    """Return each command, by its full name without ``konductor-like``: ``brake status``."""

    def below(group: Any, context: Any, prefix: str) -> Iterator[tuple[str, Command]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                inner = command.make_context(name, [], parent=context, resilient_parsing=True)
                if command.invoke_without_command:  # a command too: `demo` and `demo xid`
                    yield prefix + name, Command(command, name, context)
                yield from below(command, inner, f"{prefix}{name} ")
            else:
                yield prefix + name, Command(command, name, context)

    program = typer.main.get_command(build())
    context = program.make_context("konductor-like", [], resilient_parsing=True, terminal_width=_HELP_WIDTH)
    return dict(below(program, context, ""))


def _root_help() -> str:
    program = typer.main.get_command(build())
    context = program.make_context("konductor-like", [], resilient_parsing=True, terminal_width=_HELP_WIDTH)
    return program.get_help(context).split("\nCommands:")[0].rstrip()


def _commands() -> Mapping[str, str]:
    known = commands()
    texts = "\n".join(f"## {name}\n\n```text\n{_help(each)}\n```\n" for name, each in known.items())
    links = " · ".join(f"[{name}](#{name.replace(' ', '-')})" for name in known)
    index = f"{textwrap.fill(links, 120, **_WHOLE)}\n"
    meanings = _docstrings(SOURCE / "exits.py", "Exit")
    exits = _list(f"`{code.value}`: {meanings[code.name]}" for code in Exit)
    return {"index": index, "exits": exits, "commands": texts.rstrip(), "root": _root_help()}


def _help(command: Command) -> str:
    """Return the help of a command without the options that most commands have; the page tells those once."""
    text = command.command.get_help(command.context([], resilient=True)).rstrip()
    common = r"\n  (--context NAME|--kubeconfig FILE|-v, --verbose|-h, --help) .*(\n {10,}\S.*)*"
    return re.sub(common, "", text).replace("\nOptions:\n\n", "\n").removesuffix("\nOptions:").rstrip()


def _settings() -> Mapping[str, str]:
    items = {
        name: f"`{_variable(name, info)}` ({_default(info)}): {info.description}"
        for name, info in Settings.model_fields.items()
    }
    return {
        "everyday": _list(items[name] for name in EVERYDAY),
        "others": _list(item for name, item in items.items() if name not in EVERYDAY),
    }


class Family(NamedTuple):
    """A metric of the controller, under the name of its samples."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def families() -> Iterator[Family]:
    """Yield every metric of the controller."""
    collector: Any
    for collector in Metrics().registry._collector_to_names:
        for family in collector.describe():  # that of single nodes has several
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = getattr(family, "_labelnames", getattr(collector, "_labelnames", ()))
            yield Family(name, family.type, tuple(labels), family.documentation)


def _metrics() -> Mapping[str, str]:
    items = (
        f"`{each.name}` ({', '.join([each.kind, *(f'`{label}`' for label in each.labels)])}): {each.meaning}"
        for each in families()
    )
    return {"metrics": _list(sorted(items))}


def _events() -> Mapping[str, str]:
    sources = "".join(path.read_text("utf-8") for path in SOURCE.glob("controller/**/*.py"))
    fleet = set(re.findall(r"_fleet_event\(\s*EventReason\.(\w+)", sources))
    nodes = set(re.findall(r"_announce\([^()]*?EventReason\.(\w+)", sources))
    items = []
    for reason in EventReason:
        places = [name for name, used in (("Node", nodes), ("Lease", fleet)) if reason.name in used]
        runbook = runbooks()[reason.value]
        kind = "Normal" if reason in _NORMAL else "Warning"
        on = " and ".join(places or ["owner of pods" if reason is EventReason.JOBS_NODE else "Node"])
        items.append(f"[`{reason}`](../runbooks/{runbook.link}) ({kind}, on {on}): {runbook.summary}")
    return {"events": _list(items)}


def _rules() -> Mapping[str, str]:
    catalog = load_catalog()
    waits: dict[str, list[str]] = {}
    for rule, escalation in catalog.escalations.items():
        texts = texts_of(escalation)
        waits.setdefault("; ".join(_taints_when(*each) for each in texts.items()), []).append(rule)

    def row(entry: Entry, *further: str) -> tuple[str, ...]:
        title = entry.title.removeprefix("CUDA: ")
        return (f"`{entry.rule}`", *further, entry.severity.value, title, entry.advice.needs.value)

    def pattern(rule: PatternRule) -> tuple[str, ...]:
        if rule.entry is not None:
            return row(rule.entry, _where(rule))
        return (f"`{rule.id}`", _where(rule), "by code", f"Finds the codes of `{rule.table}`", "by code")

    def of_kind(kind: FaultKind) -> dict[str, Entry]:
        return {f"`{each.rule}`": each for each in named if each.kind is kind}

    head = ("rule", "severity", "title", "needs")
    patterns = [each for each in (*catalog.kernel_rules, *catalog.pod_rules) if each.id != each.table]
    named = {entry.rule: entry for entry in catalog.named_entries.values()}.values()
    tabled = (Severity.FATAL, Severity.TEST, Severity.APPLICATION)
    return {
        "patterns": _table((head[0], "where", *head[1:]), map(pattern, patterns)),
        "xids": _table(head, map(row, (each for each in catalog.xids.values() if each.severity in tabled))),
        "other_xids": _by_need(
            {str(code): each for code, each in catalog.xids.items() if each.severity not in tabled}
        ),
        "sxids": _by_need({str(code): each for code, each in catalog.sxids.items()}),
        "cuda": _by_need(of_kind(FaultKind.CUDA)),
        "facts": _table(head, map(row, (each for each in named if each.kind is FaultKind.NODE))),
        "conditions": _by_need(of_kind(FaultKind.CONDITION)),
        "alerts": _by_need(of_kind(FaultKind.ALERT)),
        "when": _list(f"{', '.join(f'`{rule}`' for rule in rules)}: {when}" for when, rules in waits.items()),
    }


def _by_need(entries: Mapping[str, Entry]) -> str:
    """Return names or codes as a list by severity and need, the fatal ones first."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].severity is not Severity.FATAL):
        names.setdefault((entry.severity.value, entry.advice.needs.value), []).append(name)
    return _list(f"`{does}`, needs {needs}: {', '.join(same)}." for (does, needs), same in names.items())


def _faults() -> Mapping[str, str]:
    catalog = load_catalog()
    return {
        "xid_most": str(max(catalog.xids)),
        "sxid_count": str(len(catalog.sxids)),
        "fatal_codes": _codes(catalog, (11004, 12028, 19084), Severity.FATAL),
        "harmless_codes": _codes(catalog, (20008, 20014, 20035, 25007), Severity.SUSPECT),
    }


def _page(name: str, parts: Mapping[str, str]) -> str:
    text = (_TEMPLATES / name).read_text("utf-8")
    for part, generated in parts.items():
        text = text.replace(f"{{{{{part}}}}}", generated)
    return text


PAGES: dict[str, Callable[[], str]] = {
    "detection-quality.md": detection_quality,
    "reference/commands.md": lambda: _page("commands.md", _commands()),
    "reference/settings.md": lambda: _page("settings.md", _settings()),
    "reference/metrics.md": lambda: _page("metrics.md", _metrics()),
    "reference/events.md": lambda: _page("events.md", _events()),
    "reference/rules.md": lambda: _page("rules.md", _rules()),
    "reference/faults.md": lambda: _page("faults.md", _faults()),
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return _words(text).replace("|", "\\|")


def _words(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _list(items: Iterable[str]) -> str:
    """Return a list in Markdown. No line is broken inside of code."""
    texts = (re.sub("`[^`]*`", lambda code: code[0].replace(" ", "\0"), _words(item)) for item in items)
    lines = (
        textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", **_WHOLE) for text in texts
    )
    return "".join(f"{line}\n" for line in lines).replace("\0", " ")


def _docstrings(module: Path, name: str) -> dict[str, str]:
    """Return the docstring under each member of a class."""
    tree = ast.parse(module.read_text("utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {
        member.targets[0].id: text.value.value
        for member, text in pairwise(body)
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def _variable(name: str, info: FieldInfo) -> str:
    if isinstance(info.validation_alias, AliasChoices):
        return str(info.validation_alias.choices[1])
    return PREFIX + name.upper()


def _default(info: FieldInfo) -> str:
    value: Any = info.default
    if value is None or value in ("", ()):
        return "no default"
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"default `{value}`"


def _taints_when(field: str, text: str) -> str:
    return {"together_with": f"with {text}", "defer_seconds": f"after {text} s"}.get(field, text)


def _where(rule: PatternRule) -> str:
    return "off" if rule.mode is Mode.OFF else "scan only" if rule.scan_only else rule.source.value


def _codes(catalog: Catalog, codes: tuple[int, ...], severity: Severity) -> str:
    """Return the codes as a list. Raises ValueError if one of them has another severity."""
    if any((catalog.sxid(code).severity is Severity.FATAL) != (severity is Severity.FATAL) for code in codes):
        raise ValueError(f"not all of {codes} are {severity.value}")
    return f"{', '.join(map(str, codes[:-1]))} and {codes[-1]}"


if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
