"""A user's rules file: what it changes, and the errors of an invalid one."""

from __future__ import annotations

from pathlib import Path

import pytest

from konductor_like.catalog import Mode, Needs, RulesError, load_catalog, user_rules
from konductor_like.catalog.escalation_text import texts_of
from konductor_like.catalog.user_rules import ANCHORS_MOST, RULES_MOST
from konductor_like.model import FaultKind, Severity, Source
from tests.catalog.user_files import OWN_RULE, POD_RULE, read


def problems(text: str) -> list[str]:
    with pytest.raises(RulesError) as caught:
        read(text)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def test_an_override_changes_one_field_of_one_rule_and_nothing_else() -> None:
    rules = read("overrides:\n  xid.94.severity: fatal\n")

    before, now = load_catalog().xid(94), rules.catalog.xid(94)
    assert (before.severity, now.severity) == (Severity.SUSPECT, Severity.FATAL)
    assert (now.title, now.advice, now.mode) == (before.title, before.advice, before.mode)
    assert (before.origin, now.origin, now.fixed) == (
        "built-in",
        "rules.yaml",
        frozenset({"severity"}),
    )
    assert rules.catalog.xid(95) is load_catalog().xid(95)
    assert load_catalog().xid(94) is before
    assert rules.overrides == {"xid.94.severity": "fatal"}


@pytest.mark.parametrize("rule", ["xid.79", "sxid.12028", "nvrm.init_failed", "nccl.socket", "cuda.719"])
def test_every_kind_of_rule_can_be_overridden_in_every_field(rule: str) -> None:
    catalog = read(
        f"overrides:\n  {rule}.severity: info\n  {rule}.mode: shadow\n  {rule}.title: Ours\n"
        f"  {rule}.advice: Call the site's own desk.\n"
    ).catalog

    entry = catalog.entry(rule)
    assert entry is not None
    assert (entry.severity, entry.mode, entry.title) == (Severity.INFO, Mode.SHADOW, "Ours")
    assert (entry.advice.text, entry.advice.needs) == ("Call the site's own desk.", Needs.INSPECTION)
    assert entry.fixed == {"severity", "title", "advice"}


@pytest.mark.parametrize("off", ["off", "'off'", '"off"', "false", "Off"])
def test_off_is_read_however_yaml_takes_it(off: str) -> None:
    if off == "Off":
        assert (
            "'Off' is not one of enforce, shadow, off" in problems(f"overrides:\n  xid.63.mode: {off}\n")[0]
        )
    else:
        assert read(f"overrides:\n  xid.63.mode: {off}\n").catalog.xid(63).mode is Mode.OFF


def test_a_code_that_the_catalogue_does_not_list_can_be_overridden_too() -> None:
    catalog = read("overrides:\n  xid.999.severity: fatal\n  sxid.31999.title: Ours\n").catalog

    assert catalog.xid(999).severity is Severity.FATAL
    assert catalog.sxid(31999).title == "Ours"


def test_a_users_rule_is_added_behind_the_built_in_ones() -> None:
    rules = read(OWN_RULE)

    rule = rules.catalog.kernel_rules[-1]
    assert (rule.id, rule.source) == ("site.nic_down", Source.KERNEL)
    assert rule.entry is not None
    assert rule.entry.kind is FaultKind.CUSTOM
    assert rule.entry.advice.text == "Look at the cable, then at the switch."
    assert rule.anchors == rule.contains == ("health compromised",)
    assert rules.catalog.kernel_rules[:-1] == load_catalog().kernel_rules
    assert set(rules.own) == {"site.nic_down"}


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("gpu-reset", Needs.GPU_RESET),
        ("gpu reset", Needs.GPU_RESET),
        ("application restart", Needs.APPLICATION_RESTART),
        ("nothing", Needs.NONE),
        ("none", Needs.NONE),
    ],
)
def test_the_old_spelling_of_needs_is_read_too(written: str, read_as: Needs) -> None:
    rules = read(OWN_RULE.replace("    advice: Look at", f"    needs: {written}\n    advice: Look at"))

    [rule] = [
        each for each in rules.catalog.kernel_rules if each.entry and each.entry.kind is FaultKind.CUSTOM
    ]
    assert rule.entry is not None
    assert rule.entry.advice.needs is read_as


def test_the_default_source_of_a_file_applies_to_its_rules() -> None:
    text = OWN_RULE.replace("    source: kernel\n", "")

    assert "source: is missing" in problems(text)[0]
    assert read(f"source: kernel\n{text}").catalog.kernel_rules[-1].id == "site.nic_down"


def test_an_empty_file_changes_nothing() -> None:
    for text in ("", "# only a comment\n", "overrides:\nrules:\n", "{}"):
        assert read(text).catalog == load_catalog()


def test_the_digest_names_the_content() -> None:
    assert read(OWN_RULE).digest == read(OWN_RULE).digest != read(POD_RULE).digest


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("xid.94.severity: fatl", "xid.94.severity: 'fatl' is not one of fatal, test, suspect"),
        ("xid.94.code: 7", "xid.94.code: only severity, mode, title, advice, threshold, "),
        ("xid.many.mode: 'off'", "xid.many.mode: there is no built-in rule 'xid.many'"),
        ("nccl.mode: 'off'", "nccl.mode: there is no built-in rule 'nccl'"),
        ("cuda.error.severity: fatal", "cuda.error.severity: covers a table of codes"),
        ("xid.94.advice: nothing_known", "xid.94.advice: 'nothing_known' is neither a sentence nor one of"),
        ("xid.94.title: " + 81 * "x", "xid.94.title: is longer than 80 characters"),
        ("xid.94: 'off'", "xid.94: there is no built-in rule 'xid'"),
        ("xid: 'off'", "xid: must be RULE.FIELD, such as xid.94.severity"),
        ("xid.94.mode: ['off']", "xid.94.mode: must be a text"),
        ("xid.94.mode:", "xid.94.mode: must be a text"),
    ],
)
def test_an_override_without_effect_is_refused_with_its_line(line: str, said: str) -> None:
    if line.startswith("xid.94: "):
        said = "xid.94: only severity, mode, title, advice, threshold, "
    [problem] = problems(f"overrides:\n  xid.63.mode: shadow\n  {line}\n")

    assert problem.startswith(f"rules.yaml:3, overrides, {said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: site.nic_down", "id: nicdown", "id: 'nicdown' must be like site.nic_down"),
        ("id: site.nic_down", "id: xid.nic_down", "id: 'xid' is a built-in family"),
        ("id: site.nic_down", "id: nccl.new", "id: 'nccl' is a built-in family"),
        ("id: site.nic_down", "id: node.gpus_missing", "id: 'node.gpus_missing' is defined twice"),
        ("source: kernel", "source: disk", "source: 'disk' is not one of kernel, pod"),
        ("severity: suspect", "severity: bad", "severity: 'bad' is not one of fatal"),
        (
            "severity: suspect",
            "severity: suspect\n    mode: loud",
            "mode: 'loud' is not one of enforce, shadow, off",
        ),
        (
            "advice: Look at",
            "link: nowhere\n    advice: Look at",
            "link: 'nowhere' is no http:// or https:// address",
        ),
        ("title: The NIC is gone", "kind: ib", "kind: is not a known field"),
        ("advice: Look at", "needs: luck\n    advice: Look at", "needs: 'luck' is not one of none"),
        ("[health compromised]", "[hea]", "contains: 'hea' must have 4 to 100 characters"),
        ("[health compromised]", "['h   ']", "contains: 'h   ' must have 4 to 100 characters"),
        ("[health compromised]", '["health\\tcompromised"]', "must be printable"),
        ("[health compromised]", "['health\\compromised']", "never occurs in a kernel line"),
        ("[health compromised]", "[hälth compromised]", "'hälth compromised' never occurs in a kernel line"),
        (
            "title: The NIC is gone",
            'title: "The NIC\\nis gone"',
            "title: 'The NIC\\nis gone' must be printable",
        ),
        (
            "Look at the cable, then at the switch.",
            '"Look\\e[31m at it."',
            "advice: 'Look\\x1b[31m at it.' must be",
        ),
        ("[health compromised]", "[health promised]", "contains: no literal of it is in"),
        ("'mlx5_core {pci}: ", "'mlx5_core {pci: (", "patterns: "),
        (
            "'mlx5_core {pci}: ",
            "'(?=mlx5_core)",
            "patterns: '(?=mlx5_core).{0,80}health compromised': invalid",
        ),
        ("'mlx5_core {pci}: ", "'(?P<gpu>\\d+)", "patterns: the group gpu is reserved: write {pci}"),
        ("'mlx5_core {pci}: .{0,80}health compromised'", "'(x{1000}){1000}'", "patterns: '(x{1000})"),
        ("'mlx5_core {pci}: .{0,80}health compromised'", "'(?:\\pL{900})'", "pattern too large"),
        ("'mlx5_core {pci}: .{0,80}health compromised'", "'(?:mlx5)*'", "matches an empty text"),
        ("'mlx5_core {pci}: .{0,80}health compromised'", "'\\C+'", r"\C fits half a character"),
        ("'mlx5_core {pci}: .{0,80}health compromised'", f"'{1001 * 'x'}'", "is longer than 1000"),
        ("['mlx5_core {pci}: .{0,80}health compromised']", str(["ab"] * 9), "patterns: are 9; 8 at most"),
        ("'mlx5_core {pci}: .{0,80}health", "'cx7 .{0,80}health", "match: no pattern fits"),
        ("all is well", "its health compromised", "no_match: a pattern fits"),
    ],
)
def test_a_users_rule_that_is_wrong_is_refused_with_its_line(old: str, new: str, said: str) -> None:
    assert old in OWN_RULE
    [problem] = problems(OWN_RULE.replace(old, new))

    place, _, rest = problem.partition(", ")
    assert said in rest
    field = said.partition(":")[0] if ":" in said else ""
    line = OWN_RULE.replace(old, new).splitlines()[int(place.removeprefix("rules.yaml:")) - 1]
    assert field in line or field == "severity"
    assert rest.startswith("rule 1 (")


def test_an_error_in_the_form_of_a_file_hides_no_error_in_its_values() -> None:
    text = "foo: 1\noverrides:\n  xid.94.severity: fatl\nrules:\n  - id: site.x\n    source: {a: b}\n"

    said = problems(text)

    assert [each.partition(":")[2].partition(": ")[0] for each in said] == [
        "1, foo",
        "3, overrides, xid.94.severity",
        "6, rule 1 (site.x), source",
    ]


def test_all_errors_are_reported_at_once_in_the_order_of_the_lines() -> None:
    text = OWN_RULE.replace("suspect", "bad") + "overrides:\n  xid.94.severity: fatl\n  no.such.mode: 'off'\n"

    said = problems(text)

    assert [problem.partition(",")[0] for problem in said] == [
        "rules.yaml:5",
        "rules.yaml:13",
        "rules.yaml:14",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [\n", "rules.yaml:2, column 1, syntax: "),
        ("- a\n- b\n", "rules.yaml:1: must be fields"),
        ("rule: []", "rules.yaml:1, rule: is not one of source, overrides, rules"),
        ("rules: 3", "rules.yaml:1, rules: must be a list"),
        ("rules:\n  - 3\n", "rules.yaml:2, rule 1, content: must be fields"),
        ("rules:\n  - id: {a: b}\n", "rules.yaml:2, rule 1, id: must be a text or a list of texts"),
        ("rules:\n  - ? [a]\n    : b\n", "rules.yaml:2, rule 1, content: a field's name must be a text"),
        ("rules:\n\t- id: a", "cannot start any token (a tab?)"),
        ("overrides: &a\n  x.y.mode: *a\n", "an alias (*name) is not allowed"),
        ("rules: []\nrules: []\n", "rules.yaml:2, rules: is defined twice"),
        ("a: " + "[" * 100_000, "rules.yaml:1: more than 8 levels deep"),
        ("overrides:\n  a.b.mode: \x00\n", "syntax: unacceptable character #x0000"),
        ("x" * (1024 * 1024 + 1), "rules.yaml, size: is more than 1 MiB"),
        ("a: 1\n---\na: 2\n", "rules.yaml:2, column 1, syntax: "),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_of_the_wrong_shape_is_refused_with_its_line(text: str, said: str) -> None:
    assert any(said in problem for problem in problems(text))


def test_a_users_rule_may_be_of_the_family_node_as_before_there_was_one() -> None:
    assert set(read(OWN_RULE.replace("site.nic_down", "node.nic_down")).own) == {"node.nic_down"}


def test_two_rules_of_one_name_are_refused() -> None:
    [problem] = problems(OWN_RULE + OWN_RULE.removeprefix("\nrules:\n"))

    assert problem.startswith("rules.yaml:12, rule 2 (site.nic_down), id: 'site.nic_down' is defined twice")


def many(number: int) -> str:
    rules = OWN_RULE.removeprefix("\nrules:\n")
    made = (rules.replace("nic_down", f"nic_{i}").replace("health", f"health{i:03}") for i in range(number))
    return "rules:\n" + "".join(made)


def test_loki_is_asked_for_a_bounded_number_of_literals() -> None:
    room = ANCHORS_MOST - len(load_catalog().anchors(Source.KERNEL))
    assert room > 0

    assert len(read(many(room)).catalog.anchors(Source.KERNEL)) == ANCHORS_MOST
    assert f"Loki is asked for {ANCHORS_MOST} at most" in problems(many(room + 1))[0]
    shared = many(room + 5).replace("    patterns:", "    anchor: mlx5_core\n    patterns:")
    assert len(read(shared).catalog.anchors(Source.KERNEL)) == ANCHORS_MOST - room + 1


def test_a_file_may_have_a_bounded_number_of_rules() -> None:
    text = many(RULES_MOST + 1).replace("    patterns:", "    anchor: mlx5_core\n    patterns:")

    assert f"is one more than the {RULES_MOST} rules" in problems(text)[0]


@pytest.mark.parametrize("source", list(Source))
def test_a_file_that_leaves_nothing_to_find_is_refused(source: Source) -> None:
    base = load_catalog()
    rules = base.kernel_rules if source is Source.KERNEL else base.pod_rules
    text = "overrides:\n" + "".join(f"  {rule.id}.mode: 'off'\n" for rule in rules)

    assert any(f"every rule for {source} lines is off" in problem for problem in problems(text))


def test_a_rule_that_is_off_costs_loki_nothing() -> None:
    before = load_catalog().anchors(Source.POD)
    assert "Got completion from peer" in before

    catalog = read("overrides:\n  nccl.ib_completion.mode: 'off'\n").catalog

    assert set(before) - set(catalog.anchors(Source.POD)) == {"Got completion from peer"}


@pytest.mark.parametrize(
    ("text", "caution"),
    [
        ("overrides:\n  xid.13.severity: fatal\n", "rules.yaml:2, xid.13.severity: a bug in a job"),
        (
            "overrides:\n  nccl.socket.severity: fatal\n",
            "rules.yaml:2, nccl.socket.severity: one line of a pod",
        ),
        ("overrides:\n  cuda.719.severity: test\n", "rules.yaml:2, cuda.719.severity: one line of a pod"),
        (
            "overrides:\n  xid.79.mode: shadow\n",
            "rules.yaml:2, xid.79.mode: a fault of this rule taints by default",
        ),
        ("overrides:\n  xid.mode: 'off'\n", "rules.yaml:2, xid.mode: a fault of this rule taints by default"),
        (
            "overrides:\n  xid.79.severity: suspect\n",
            "xid.79.severity: a fault of this rule taints by default",
        ),
        (
            "overrides:\n  sxid.31999.severity: info\n",
            "sxid.31999.severity: a fault of this rule taints by default",
        ),
        ("overrides:\n  xid.94.severity: fatal\n", "xid.94.severity: this severity is final"),
        ("overrides:\n  xid.145.severity: info\n", "xid.145.severity: this severity is final"),
        ("overrides:\n  sxid.11001.severity: fatal\n", "sxid.11001.severity: this severity is final"),
        (POD_RULE, "rules.yaml:3, site.flux: one line of a pod"),
        (
            "overrides: {condition.GPUProblem.severity: fatal}",
            "severity: another program's word alone taints",
        ),
        (OWN_RULE, "Loki is asked for one more literal in kernel lines, 'health compromised'"),
    ],
)
def test_probable_mistakes_are_warned_about(text: str, caution: str) -> None:
    assert any(caution in warning for warning in read(text).warnings)


@pytest.mark.parametrize(
    "text",
    [
        "overrides:\n  xid.64.severity: fatal\n  nvrm.init_failed.severity: fatal\n  xid.63.mode: 'off'\n",
        "overrides:\n  xid.94.title: Ours\n",
        "overrides: {xid.63.together_with: 'condition.* within 1h on one node'}",
        "overrides: {condition.GpuEcc.together_with: 'xid.63, condition.GpuXid within 1h on one node'}",
        "overrides: {node.gpus_missing.severity: fatal, node.gpus_missing.threshold: 2 in 24h on one node}",
        "overrides:\n  nccl.socket.severity: info\n  xid.79.mode: enforce\n",
        OWN_RULE.replace("[health compromised]", "['NVRM: nic']").replace("health compromised", "NVRM: nic"),
    ],
)
def test_ordinary_overrides_are_not_warned_about(text: str) -> None:
    assert read(text).warnings == ()


FATAL_94 = "overrides:\n  xid.94.severity: fatal\n"


@pytest.mark.parametrize(
    ("text", "caution"),
    [
        ("  amd.ras.mode: enforce\n", "rules.yaml:3, amd.ras.mode: this version has no amd.ras; "),
        ("  neuron.mode: nonsense\n", "rules.yaml:3, neuron.mode: this version has no neuron; "),
        ("  node.refuses_pods.severity: fatal\n", "this version has no node.refuses_pods; "),
        ("  xid.63.together_with: amd.* within 1h on one node\n", "this version has no amd; "),
        ("  xid.94.gone: 3\n", "rules.yaml:3, xid.94.gone: this version has no gone; leave it out."),
        (
            OWN_RULE + "    together_with: node.refuses_pods, xid.79 within 1h on one node\n",
            "rule 1 (site.nic_down): this version has no node.refuses_pods; ",
        ),
        (OWN_RULE + "    gone: 3\n", "rule 1 (site.nic_down): this version has no gone; leave it out."),
    ],
)
def test_a_name_of_an_earlier_version_is_a_warning_and_the_rest_of_the_file_holds(
    text: str, caution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_rules, "REMOVED", {**user_rules.REMOVED, "gone": "leave it out"})

    rules = read(FATAL_94 + text)

    [said] = [each for each in rules.warnings if "this version has no" in each]
    assert caution in said
    assert rules.catalog.xid(94).severity is Severity.FATAL
    assert set(rules.own) == ({"site.nic_down"} if text.startswith(OWN_RULE) else set())


def test_an_error_beside_a_removed_name_still_refuses_the_file() -> None:
    [problem] = problems("overrides:\n  amd.ras.mode: enforce\n  xid.94.severity: deadly\n")

    assert problem.startswith("rules.yaml:3, overrides, xid.94.severity")


def test_what_stays_of_a_list_with_a_removed_rule_still_counts() -> None:
    both = "overrides: {xid.63.together_with: 'amd.ras, xid.64, neuron.* within 1h on one node'}"
    alone = "overrides: {xid.63.together_with: amd.ras within 1h on one node}"

    together = read(both).catalog.escalations["xid.63"].together_with
    assert together is not None
    assert (together.rules, together.within_seconds) == (("xid.64",), 3600)
    assert read(alone).catalog.escalations["xid.63"].together_with is None


def test_a_removed_family_is_free_for_rules_of_a_user() -> None:
    assert set(read(OWN_RULE.replace("site.nic_down", "amd.ras")).own) == {"amd.ras"}


@pytest.mark.parametrize("name", user_rules.REMOVED)
def test_a_removed_name_is_none_of_the_catalogue_and_the_changelog_has_it(name: str) -> None:
    catalog = load_catalog()
    log = Path("CHANGELOG.md").read_text("utf-8")

    assert catalog.entry_or_unknown(name) is None
    assert not [rule for rule in catalog.pattern_rules if name in (rule.id, rule.id.partition(".")[0])]
    assert f"`{name}`" in log


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("suspect", 500 * "s"),
        ("all is well", f"health compromised {500 * 'x'}"),
        ("mlx5_core {pci}: ", f"({'x' * 500}"),
        ("site.nic_down", 500 * "n"),
        ("title: The NIC", f"{500 * 't'}: The NIC"),
    ],
)
def test_a_message_repeats_little_of_what_was_written(old: str, new: str) -> None:
    said = problems(OWN_RULE.replace(old, new))

    assert all(len(problem) < 330 for problem in said)
    assert any("…" in problem for problem in said)


def test_a_threshold_and_together_with_are_read_and_shown_as_they_were_written() -> None:
    rules = read(
        "overrides:\n"
        "  xid.94.threshold: 2 in 90m on one node from distinct pods\n"
        "  xid.94.together_with: xid.63 within 1h on one gpu\n"
        "  xid.149.defer_seconds: none\n"
    )

    escalations = rules.catalog.escalations
    assert texts_of(escalations["xid.94"]) == {
        "threshold": "2 in 90m on one node from distinct pods",
        "together_with": "xid.63 within 1h on one gpu",
    }
    assert escalations["xid.149"].defer_seconds == 0
    assert escalations["xid.145"].defer_seconds == 5


def test_together_with_may_name_several_rules() -> None:
    rules = read("overrides:\n  xid.94.together_with: xid.63, xid.64, nccl.* within 1h on one gpu\n")

    together = rules.catalog.escalations["xid.94"].together_with
    assert together is not None
    assert together.rules == ("xid.63", "xid.64", "nccl.*")
    assert str(together) == "xid.63, xid.64, nccl.* within 1h on one gpu"


def test_the_advice_for_a_node_that_a_threshold_tainted_can_be_set() -> None:
    rules = read(
        "overrides:\n  xid.94.escalated_advice: Call the site's own desk.\n"
        "  xid.63.escalated_advice: replace\n  xid.63.threshold: 2 in 1h on one gpu\n"
    )
    own = read(OWN_RULE.replace("severity:", "escalated_advice: Swap the NIC.\n    severity:"))

    escalations = rules.catalog.escalations
    assert (escalations["xid.94"].advice, escalations["xid.94"].needs) == (
        "Call the site's own desk.",
        Needs.INSPECTION,
    )
    assert escalations["xid.94"].threshold == load_catalog().escalations["xid.94"].threshold
    assert escalations["xid.63"].advice == load_catalog().advice["replace"].text
    assert own.catalog.escalations["site.nic_down"].advice == "Swap the NIC."
    assert own.own != read(OWN_RULE).own


def test_a_users_rule_may_have_a_threshold() -> None:
    rules = read(OWN_RULE.replace("severity:", "threshold: 2 in 1h on one gpu\n    severity:"))

    threshold = rules.catalog.escalations["site.nic_down"].threshold
    assert threshold is not None
    assert (threshold.count, threshold.within_seconds, threshold.distinct) == (2, 3600, None)
    assert rules.own != read(OWN_RULE).own


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("threshold: three times", "'three times' must be like: 3 in 24h on one gpu"),
        ("threshold: 1 in 24h on one gpu", "counts 1; it must be 2 to 16"),
        ("threshold: 17 in 24h on one gpu", "counts 17; it must be 2 to 16"),
        ("threshold: 3 in 25h on one gpu", "looks back more than 24h"),
        ("threshold: 3 in 24h on one gpu from distinct nodes", "must be like"),
        ("together_with: xid.63", "must be like: xid.64 within 24h on one gpu"),
        ("together_with: nothing.known within 1h on one gpu", "there is no rule 'nothing.known'"),
        ("together_with: nothing.* within 1h on one gpu", "there is no rule 'nothing.*'"),
        ("together_with: xid.63, nothing.known within 1h on one gpu", "there is no rule 'nothing.known'"),
        ("together_with: xid.63 xid.64 within 1h on one gpu", "must be like: xid.64 within 24h on one gpu"),
        ("defer_seconds: 61", "must be seconds, 0 to 60"),
        ("defer_seconds: soon", "must be seconds, 0 to 60"),
    ],
)
def test_a_malformed_escalation_is_refused_with_its_line(line: str, said: str) -> None:
    [problem] = problems(f"overrides:\n  xid.63.mode: shadow\n  xid.94.{line}\n")

    assert problem.startswith("rules.yaml:3, ")
    assert said in problem


def test_a_threshold_that_one_bad_job_reaches_alone_is_warned_about() -> None:
    careful = read("overrides:\n  xid.31.threshold: 5 in 24h on one gpu from distinct jobs\n")
    careless = read("overrides:\n  xid.31.threshold: 5 in 24h on one gpu\n")

    assert not careful.warnings
    assert "one job that fails often enough" in careless.warnings[0]
