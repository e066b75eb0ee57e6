"""The page for Argo CD and Flux: its values are the chart's, and it says all that NOTES warn about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tools.generate_docs import DOCS
from tools.manifests.helm_chart import CHART

PAGE = (DOCS / "start" / "gitops.md").read_text(encoding="utf-8")
COLLECTORS = (DOCS / "start" / "collectors.md").read_text(encoding="utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
}


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def objects(*, with_comments: bool = False) -> dict[str, Any]:
    """Return the objects of the page by kind; ``with_comments``, also with the optional parts."""
    texts = [re.sub(r"^( *)# (?=  | *\w+:$|- )", r"\1", each, flags=re.MULTILINE) if with_comments else each
             for each in yaml_blocks(PAGE)]  # fmt: skip
    return {each["kind"]: each for text in texts for each in yaml.safe_load_all(text)}


def misfits(value: Any, schema: Mapping[str, Any], place: str = "values") -> Iterator[str]:
    """Yield each part of the values that the chart's schema does not know, or not with this type."""
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", [])
    wanted = [_TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind in _TYPES]
    if wanted and not any(isinstance(value, each) for each in wanted):
        yield f"{place} is {value!r}"
    if isinstance(value, dict) and "properties" in schema:
        for name, part in value.items():
            if name not in schema["properties"]:
                yield f"{place}.{name} is unknown"
            else:
                yield from misfits(part, schema["properties"][name], f"{place}.{name}")


def test_the_values_for_both_tools_are_values_of_the_chart() -> None:
    found = objects()
    argo = found["Application"]["spec"]["source"]
    flux = found["HelmRelease"]["spec"]

    assert [*misfits(argo["helm"]["valuesObject"], SCHEMA)] == []
    assert [*misfits(flux["values"], SCHEMA)] == []
    assert argo["path"] == flux["chart"]["spec"]["chart"] == "charts/konductor-like"
    assert flux["chart"]["spec"]["sourceRef"] == {"kind": "GitRepository", "name": "konductor-like"}


def test_rules_of_ones_own_go_into_the_value_of_the_chart() -> None:
    found = objects(with_comments=True)

    [file] = found["Application"]["spec"]["source"]["helm"]["fileParameters"]
    [values] = found["HelmRelease"]["spec"]["valuesFrom"]
    assert file["name"] == values["targetPath"] == "rules"
    assert "rules" in SCHEMA["properties"]


@pytest.mark.parametrize("wrong", [{"imagee": {}}, {"image": {"repositry": "x"}}, {"loki": "x"}])
def test_a_value_that_the_chart_does_not_have_is_noticed(wrong: dict[str, Any]) -> None:
    assert [*misfits(wrong, SCHEMA)]


def test_every_value_that_notes_look_at_is_on_the_page() -> None:
    notes = (CHART / "templates" / "NOTES.txt").read_text("utf-8")
    looked_at = {name.removeprefix("settings.") for name in re.findall(r"\.Values\.([\w.]+)", notes)}

    assert looked_at
    assert [name for name in looked_at if name not in PAGE] == []


@pytest.mark.parametrize("block", [each for each in yaml_blocks(COLLECTORS) if "# mine.yaml" in each])
def test_the_settings_for_a_collector_are_values_of_the_chart(block: str) -> None:
    assert [*misfits(yaml.safe_load(block), SCHEMA)] == []
