"""Reads a saved incident, replays it, and says the outcome in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from konductor_like.backtest import replay as replays
from konductor_like.backtest.incident import BYTES_MOST, IncidentFileError, SavedIncident, decode
from konductor_like.build import this_program
from konductor_like.catalog import RulesError, UserRules, load_catalog, read_user_rules
from konductor_like.cli.columns import count, fault_name, stamp, stamp_of_ns
from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.output import Paragraph
from konductor_like.cli.rules import load
from konductor_like.detection.validate_rules import validated
from konductor_like.exits import Exit
from konductor_like.model import Source
from konductor_like.policy.wording import on_device

_CONTROLS = "a pause and a reset of the brake are not saved: `konductor-like history --timeline` shows them"
_OTHER_RULES = "use --rules FILE with rules that this program reads"


def read_file(path: Path) -> SavedIncident:
    """Read a file. Raises CommandError in one sentence, with the status of a wrong configuration."""
    try:
        if path.stat().st_size > BYTES_MOST:
            raise CommandError(f"{path} is no saved incident: it is too large", status=Exit.USAGE)
        return decode(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: it is no text in UTF-8", status=Exit.USAGE) from error
    except IncidentFileError as error:
        raise CommandError(f"{path}: {error}", status=Exit.USAGE) from error
    except OSError as error:
        raise CommandError(describe(error), status=Exit.USAGE) from error


def rules_of(incident: SavedIncident, other: Path | None) -> UserRules:
    """Return the saved rules, or those of another file. Raises CommandError."""
    if other is not None:
        return load(other)
    if incident.rules is None:
        return UserRules(load_catalog())
    try:
        return validated(read_user_rules(incident.rules, "the saved rules", load_catalog()))
    except RulesError as error:
        problems = (str(each) for each in error.problems)
        raise CommandError(*problems, hint=_OTHER_RULES, status=Exit.USAGE) from error


def summary(incident: SavedIncident, rules: UserRules, other: Path | None) -> Iterator[Paragraph]:
    """Yield what is replayed."""
    yield "Incident", f"{incident.node}, {stamp(incident.start)} to {stamp(incident.end)}"
    program = str(this_program())
    by = "this build" if program == incident.program else f"{incident.program}; this is {program}"
    yield "Saved", f"{stamp(incident.saved_at)} by {by}"
    lines = [line for line in incident.lines if line.source is Source.KERNEL]
    pods = len(incident.lines) - len(lines)
    told = count(pods, "pod line") if incident.with_pods else "pod lines were not saved"
    yield "Lines", f"{count(len(lines), 'kernel line')} of {count(len(incident.nodes), 'node')}; {told}"
    yield "Rules", f"{other}, instead of the saved ones" if other else f"as saved ({rules.digest})"
    yield "Missing", list(incident.missing)


def outcome(incident: SavedIncident, rules: UserRules) -> tuple[list[str], bool]:
    """Return the outcome of a replay in words, and whether it is the same."""
    result = replays.replay(incident, rules)
    if result.nothing:
        return [f"nothing to replay: {result.nothing}"], True
    if not result.same:
        hint = [_CONTROLS] if result.controls else []
        return [*(f"differs: {each}" for each in result.differences), *hint], False
    own = next((each for each in result.verdicts.outages if each.node == incident.node), None)
    held = next((span.why.value for span in result.verdicts.held if span.node == incident.node), "")
    if own is None:
        return [f"the same: {incident.node} is not tainted{f' (held back: {held})' if held else ''}"], True
    key = own.incident.key
    fault = f"{fault_name(key.rule)}{on_device(key)}"
    others = len({each.node for each in result.verdicts.outages}) - 1
    more = (
        f"; so {'is' if others == 1 else 'are'} {count(others, 'node')} of its failure group"
        if others
        else ""
    )
    return [f"the same: {incident.node} is tainted for {fault} at {stamp_of_ns(own.start_ns)}{more}"], True
