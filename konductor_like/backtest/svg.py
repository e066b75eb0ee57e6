"""The timeline as a picture, in one file without scripts; it follows the browser's light or dark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from xml.sax.saxutils import escape

from konductor_like.backtest.simulation import moment
from konductor_like.backtest.timeline import ranked
from konductor_like.backtest.values import HeldBack, Outage, Result, Span
from konductor_like.model import FaultKind

ROWS_MOST = 400
_LEFT, _WIDTH, _RIGHT, _TOP, _ROW, _CURVE = 200, 900, 20, 70, 16, 90
_TICKS = 8
_COLOURS = {
    FaultKind.XID: "#d1495b",
    FaultKind.SXID: "#8f5bd1",
    FaultKind.NVRM: "#d17f2a",
    FaultKind.NVLINK: "#3f88c5",
    FaultKind.AER: "#2f9e77",
    FaultKind.CUSTOM: "#b8860b",
}
_OTHER = "#777f8a"
_STYLE = (
    ":root{color-scheme:light dark}"
    "text{font:12px sans-serif;fill:#1d2530}.bg{fill:#fff}.grid{stroke:#8888;stroke-width:.5}"
    ".curve{fill:#d1495b55;stroke:#d1495b}.held{fill:url(#hatch)}.line{stroke:#667}"
    "@media (prefers-color-scheme:dark){text{fill:#e4e8ee}.bg{fill:#14181f}.line{stroke:#aab}}"
)


def drawing(result: Result) -> str:
    """The whole picture. Bars say on hovering what they stand for."""
    return "\n".join(_parts(result)) + "\n"


def _parts(result: Result) -> Iterator[str]:
    span, verdicts = result.history.asked, result.verdicts
    names = ranked(verdicts, result.history.read)
    shown = {name: place for place, name in enumerate(names[:ROWS_MOST])}
    bottom = _TOP + _CURVE + 20 + _ROW * len(shown)
    width, height = _LEFT + _WIDTH + _RIGHT, bottom + 60
    title = f"konductor-like backtest, {_day(span.start_ns)} to {_day(span.end_ns)} UTC"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    yield (
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="3" height="6" fill="#d9a400"/></pattern></defs>'
    )
    yield f'<rect class="bg" width="{width}" height="{height}"/><text x="12" y="24">{escape(title)}</text>'
    yield from _legend(result)
    yield from _axis(span, bottom)
    yield from _curve(result)
    for name, place in shown.items():
        yield f'<text x="12" y="{_row(place) + 11}">{escape(_short(name))}</text>'
    for held in verdicts.held:
        if held.node in shown:
            why = f"{held.node}: held back ({held.why.value}), {held.incident.key.rule}"
            yield _bar(held, span, shown[held.node], 'class="held"', why)
    for outage in verdicts.outages:
        if outage.node in shown:
            colour = f'fill="{_COLOURS.get(outage.incident.kind, _OTHER)}"'
            why = f"{outage.node}: {outage.incident.key.rule} from {_day(outage.start_ns)}"
            yield _bar(outage, span, shown[outage.node], colour, why)
    if len(names) > len(shown):
        yield f'<text x="12" y="{bottom + 45}">and {len(names) - len(shown)} more nodes</text>'
    yield "</svg>"


def _legend(result: Result) -> Iterator[str]:
    kinds = dict.fromkeys(outage.incident.kind for outage in result.verdicts.outages)
    entries = [(kind.value, f'fill="{_COLOURS.get(kind, _OTHER)}"') for kind in kinds]
    if result.verdicts.held:
        entries.append(("held back", 'class="held"'))
    for place, (label, look) in enumerate(entries):
        x = _LEFT + 110 * place
        yield f'<rect x="{x}" y="38" width="12" height="12" {look}/>'
        yield f'<text x="{x + 17}" y="48">{escape(label)}</text>'


def _axis(span: Span, bottom: int) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        ns = span.start_ns + (span.end_ns - span.start_ns) * tick // _TICKS
        x = _x(ns, span)
        yield f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{_tick(ns, span)}</text>'


def _curve(result: Result) -> Iterator[str]:
    """The share of the fleet that was out, over time."""
    span, verdicts = result.history.asked, result.verdicts
    floor = _TOP + _CURVE
    most = max([load.out for load in verdicts.loads], default=0)
    yield f'<line class="line" x1="{_LEFT}" y1="{floor}" x2="{_LEFT + _WIDTH}" y2="{floor}"/>'
    yield f'<text x="12" y="{_TOP + 11}">out: at most {most} ({verdicts.share(most):.1%})</text>'
    if not most:
        return
    path, out = [f"M{_LEFT},{floor}"], 0
    for load in verdicts.loads:
        x = _x(load.at_ns, span)
        path.append(f"L{x},{floor - _CURVE * out / most:.1f}L{x},{floor - _CURVE * load.out / most:.1f}")
        out = load.out
    end = _x(result.history.read.end_ns, span)
    path.append(f"L{end},{floor - _CURVE * out / most:.1f}L{end},{floor}Z")
    yield f'<path class="curve" d="{"".join(path)}"/>'


def _bar(one: Outage | HeldBack, span: Span, place: int, look: str, why: str) -> str:
    x = _x(one.start_ns, span)
    end = _x(span.end_ns if one.end_ns is None else one.end_ns, span)
    return (
        f'<rect x="{x}" y="{_row(place)}" width="{max(1.5, end - x):.1f}" height="{_ROW - 4}" {look}>'
        f"<title>{escape(why)}</title></rect>"
    )


def _row(place: int) -> int:
    return _TOP + _CURVE + 20 + _ROW * place


def _x(ns: int, span: Span) -> float:
    share = (ns - span.start_ns) / max(1, span.end_ns - span.start_ns)
    return round(_LEFT + _WIDTH * min(1.0, max(0.0, share)), 1)


def _tick(ns: int, span: Span) -> str:
    long = span.seconds > timedelta(days=3).total_seconds()
    return f"{moment(ns):%m-%d}" if long else f"{moment(ns):%d. %H:%M}"


def _day(ns: int) -> str:
    return f"{moment(ns):%Y-%m-%d %H:%M}"


def _short(name: str) -> str:
    return name if len(name) <= 26 else f"{name[:25]}…"
