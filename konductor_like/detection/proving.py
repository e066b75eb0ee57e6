"""Whether the rules of a user's file work where they will be used: in detection, and in time.

A pattern that fits its examples is not enough. Detection takes some lines for quotations, an earlier rule may
decide, and a pattern may be slow on lines that it does not even fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from konductor_like.catalog import Catalog, CatalogError, Mode, PatternRule, RulesError, UserRules
from konductor_like.catalog.errors import quoted
from konductor_like.detection.detector import Detector
from konductor_like.detection.reason import why_no_fault
from konductor_like.model import Source

LINE_CHARS = 4096
RULE_SECONDS_MOST = 0.002
RULES_SECONDS_MOST = 0.010
"""What one line may cost: by one rule, and by all of a file together. A flood has thousands a second."""
_TRIES = 3
"""The fastest counts, since anything else on the machine only slows one down."""
_FILLERS = ("a", "a ", "0", "x=1, ", "é")


def proved(rules: UserRules, clock: Callable[[], float]) -> UserRules:
    """The same rules, with what deserves a second look among their warnings.

    ``clock`` counts seconds. Raises RulesError with every rule that finds nothing or takes too long. Rules
    that are off find nothing and cost nothing, and are passed over.
    """
    own = [
        rule
        for rule in (*rules.catalog.kernel_rules, *rules.catalog.pod_rules)
        if rule.id in rules.own and rule.mode is not Mode.OFF
    ]
    detector = Detector(rules.catalog)
    problems: list[CatalogError] = []
    warnings: list[str] = []
    for rule in own:
        record = rules.records[rule.id]
        for number, example in enumerate(rule.examples):
            finding = detector.find(example, rule.source)
            if finding is None:
                why = why_no_fault(rules.catalog, example, rule.source)
                reason = f"detection passes over {quoted(example)}"
                problems.append(record.error("match", f"{reason}: {why}" if why else reason, number))
            elif finding.rule != rule.id:
                reason = f"{finding.rule} comes first and decides on {quoted(example)}."
                warnings.append(str(record.error("match", reason, number)))
    problems += _too_slow(rules, own, clock)
    if problems:
        raise RulesError(problems)
    return replace(rules, warnings=(*rules.warnings, *warnings))


def _too_slow(
    rules: UserRules, own: Sequence[PatternRule], clock: Callable[[], float]
) -> Iterator[CatalogError]:
    slow = False
    for rule in own:
        seconds = _slowest(_only(rules.catalog, [rule]), _texts(rule), RULE_SECONDS_MOST, clock)
        if seconds is not None:
            slow = True
            yield rules.records[rule.id].error("patterns", _reason("takes", seconds, RULE_SECONDS_MOST))
    for source in Source:
        those = [rule for rule in own if rule.source is source]
        if slow or not those:
            continue  # a slow rule has been named
        literals = [f"{literal} a" for rule in those for literal in rule.contains]
        texts = chain([_full(literals)], *map(_texts, those))
        seconds = _slowest(_only(rules.catalog, those), texts, RULES_SECONDS_MOST, clock)
        if seconds is not None:
            file = rules.records[those[0].id].file
            reason = _reason(f"those for {source} lines take", seconds, RULES_SECONDS_MOST)
            yield CatalogError(file, "rules", "patterns", reason)


def _reason(what: str, seconds: float, limit: float) -> str:
    line = f"a line of {LINE_CHARS} characters"
    return f"{what} {1000 * seconds:.1f} ms for {line}; {1000 * limit:.0f} ms at most"


def _only(catalog: Catalog, rules: Iterable[PatternRule]) -> Detector:
    """A detector with nothing else, so that nothing else is timed."""
    given = tuple(rules)
    return Detector(
        replace(
            catalog,
            kernel_rules=tuple(rule for rule in given if rule.source is Source.KERNEL),
            pod_rules=tuple(rule for rule in given if rule.source is Source.POD),
        )
    )


def _slowest(
    detector: Detector, texts: Iterable[str], limit: float, clock: Callable[[], float]
) -> float | None:
    """The seconds that the first text beyond the limit takes; None where each keeps within it."""
    source = Source.KERNEL if detector.catalog.kernel_rules else Source.POD
    for text in texts:
        best = limit
        for attempt in range(_TRIES):
            begun = clock()
            detector.find(text, source)
            taken = clock() - begun
            best = taken if attempt == 0 else min(best, taken)
            if best <= limit:
                break
        else:
            return best
    return None


def _texts(rule: PatternRule) -> Iterator[str]:
    """Lines that begin as an example does, and go on for long in different ways."""
    example = rule.examples[0]
    literal = next(each for each in rule.contains if each in example)
    head, _, tail = example.partition(literal)
    tail = literal + tail
    for filler in (*_FILLERS, literal, example):
        room = max(0, LINE_CHARS - len(head) - len(tail))
        filled = _full([filler])
        yield head + filled[:room] + tail
        yield (example + filled)[:LINE_CHARS]
        yield _full([literal, filler])


def _full(parts: Sequence[str]) -> str:
    """The parts over and over, to the length of a line."""
    once = "".join(parts)
    return (once * (LINE_CHARS // len(once) + 1))[:LINE_CHARS]
