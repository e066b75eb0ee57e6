"""The wheel has the files that are no Python, and asks for Jinja2 only with the extra ``report``."""

from __future__ import annotations

import tomllib

import pytest
from hatchling.builders.wheel import WheelBuilder

from konductor_like import __version__
from tools.release.check import ROOT


@pytest.fixture(scope="module")
def packed() -> set[str]:
    files = WheelBuilder(str(ROOT)).recurse_included_files()
    return {file.distribution_path for file in files}


@pytest.mark.parametrize("name", ["page.html.j2", "page.css"])
def test_the_wheel_has_the_template_of_the_report(packed: set[str], name: str) -> None:
    assert f"konductor_like/cli/report/{name}" in packed


def test_wheel_and_image_have_no_stand_in_and_no_demo(packed: set[str]) -> None:
    assert "konductor_like/cli/app.py" in packed
    assert [name for name in packed if "sandbox" in name or "/demo/" in name] == []
    assert "sandbox" not in (ROOT / "Dockerfile").read_text("utf-8")


def test_the_stand_ins_have_the_version_of_the_product_and_need_no_other() -> None:
    project = tomllib.loads((ROOT / "sandbox" / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["version"] == __version__
    assert project["dependencies"] == [f"konductor-like == {__version__}"]


def test_the_image_does_not_carry_the_extra_and_the_tests_have_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert [each for each in project["dependencies"] if each.startswith("jinja2")] == []
    assert [each for each in project["optional-dependencies"]["report"] if each.startswith("jinja2")]
    assert "jinja2" not in (ROOT / "requirements.lock").read_text("utf-8")
    assert "\njinja2==" in (ROOT / "requirements-dev.lock").read_text("utf-8")
