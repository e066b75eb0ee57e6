"""Every key of our Helm values is read by its chart; a chart silently ignores a misspelt key.

``chart_keys.toml`` lists the checked keys and the version. If ``KONDUCTOR_TEST_CHARTS`` is a folder with the
unpacked charts (``helm pull --untar``), our values are compared with them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.manifests.manifests import documents, helm_values

VARIABLE = "KONDUCTOR_TEST_CHARTS"
CHARTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("chart_keys.toml").read_text(encoding="utf-8")
)
OBJECTS = ("extraObjects", "extraManifests")
each_chart = pytest.mark.parametrize("chart", sorted(CHARTS))


def key_paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield the path of every key without further keys; ``[]`` is an item of a list."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from key_paths(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from key_paths(item, f"{at}[]")
    else:
        yield at


def values(chart: str) -> dict[str, Any]:
    """Return our values for a chart, without the Kubernetes objects under OBJECTS."""
    files = (CHARTS[chart]["values"], *CHARTS[chart].get("further_values", ()))
    loaded = helm_values(*(values for name in files for values in documents(name)))
    return loaded | {key: [] for key in OBJECTS if key in loaded}


@each_chart
def test_every_key_was_checked_against_the_chart(chart: str) -> None:
    assert sorted(set(key_paths(values(chart)))) == sorted(CHARTS[chart]["keys"])


@pytest.fixture
def unpacked(chart: str) -> Path:
    """Return the folder of the unpacked chart."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with unpacked charts")
    return Path(folder) / chart


@each_chart
def test_every_key_exists_in_the_chart_that_is_named_with_the_same_type(chart: str, unpacked: Path) -> None:
    about = yaml.safe_load((unpacked / "Chart.yaml").read_text(encoding="utf-8"))

    assert (about["name"], about["version"]) == (chart, CHARTS[chart]["version"])
    assert about["appVersion"] == CHARTS[chart]["app_version"]

    defaults = yaml.safe_load((unpacked / "values.yaml").read_text(encoding="utf-8"))
    ours = values(chart)
    handed_on = CHARTS[chart]["handed_on"]
    keys = {path.partition("[]")[0] for path in CHARTS[chart]["keys"]}

    own = {key for key in keys if not any(key.startswith(f"{section}.") for section in handed_on)}
    assert own
    for key in own:
        default, used = at(defaults, key), at(ours, key)
        assert default is None or isinstance(used, type(default)), f"{key}: {used!r} instead of {default!r}"
    for section in handed_on:
        assert isinstance(at(defaults, section), dict), f"{section} is no section that is handed on"
        assert at(ours, section), f"{section} is not used"


def at(tree: Any, path: str) -> Any:
    """Return the value at a path. Raises AssertionError if there is none."""
    for key in path.split("."):
        assert isinstance(tree, dict), path
        assert key in tree, path
        tree = tree[key]
    return tree
