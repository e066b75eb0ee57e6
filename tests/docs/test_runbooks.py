"""docs/runbooks has a page for each alert and each Event reason, all in the same shape, and no other page."""

from __future__ import annotations

import re

import pytest

from konductor_like.model import EventReason
from tools.generate_docs import DOCS, runbooks
from tools.manifests.manifests import MANIFESTS

INDEX = (DOCS / "runbooks" / "README.md").read_text("utf-8")
RUNBOOKS = runbooks()
ALERTS = {
    alert
    for page in (*DOCS.rglob("*.md"), *MANIFESTS.rglob("*.yaml"))
    if page.name != "gpu_alerts.yaml"  # its alerts link to sections of one page
    for alert in re.findall(r"^\s*- alert: (\w+)$", page.read_text("utf-8"), re.MULTILINE)
}
REASONS = {reason.value for reason in EventReason}


def test_each_alert_and_each_event_reason_has_its_runbook_and_no_runbook_is_left_over() -> None:
    assert len(ALERTS) > 10
    assert set(RUNBOOKS) == ALERTS | REASONS


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_says_what_it_means_what_to_check_and_what_to_do(name: str) -> None:
    headings = re.findall(r"^#+ (.+)$", RUNBOOKS[name].text, re.MULTILINE)

    assert headings == ["What it means", "Check", "Do"]
    assert f"| [{name}]({RUNBOOKS[name].link}) |" in INDEX


@pytest.mark.parametrize("name", RUNBOOKS)
def test_one_page_is_about_one_cause(name: str) -> None:
    """The names on a page are an alert, whose rule links to the page, and at most one Event."""
    names = {other for other, runbook in RUNBOOKS.items() if runbook.link == RUNBOOKS[name].link}

    assert len(names - REASONS) <= 1
    assert len(names & REASONS) <= 1


def test_an_alert_has_a_page_of_its_own_for_its_runbook_url() -> None:
    assert {alert for alert in ALERTS - REASONS if RUNBOOKS[alert].link != f"{alert}.md"} == set()
