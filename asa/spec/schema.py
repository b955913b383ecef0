"""The JSON Schema of workflow files, for editors: made from the model and the keys that a stage must have."""

from __future__ import annotations

import json
from typing import Any

from asa.spec.keys import WAYS
from asa.spec.model import TEMPLATE_PATTERN, WorkflowSpec
from asa.spec.stages import in_order

SCHEMA_LINE = "#:schema"
"""Beginning of the first line of a TOML file that tells editors its schema."""

_SIZES = ("cores", "ntasks", "nodes")
_IS_LOCAL = {
    "required": ["local"],
    "properties": {"local": {"anyOf": [{"const": True}, {"type": "string", "pattern": TEMPLATE_PATTERN}]}},
}


def schema_document() -> dict[str, Any]:
    """Make the JSON Schema, by draft 2020-12.

    It says what `load_workflow` accepts, as far as a schema can: not that stages in ``after`` exist, or that there is
    no cycle.

    Returns
    -------
    dict
        The schema, ready to be written as JSON.
    """
    made = WorkflowSpec.model_json_schema()
    document = _tidy(made)
    kinds = document["$defs"]
    for kind in (kinds["StageSpec"], kinds["StageSettings"]):
        kind["allOf"] = _conflicts()
        properties = kind["properties"]
        kind["properties"] = {key: properties[key] for key in in_order(properties)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "asa workflow",
        "description": document.pop("description"),
        "examples": [
            {
                "name": "mosaic",
                "stage": [
                    {"name": "project", "cores": 112, "walltime": "40min", "command": "srun ./project"},
                    {"name": "add", "after": ["project"], "cores": 1, "walltime": "10min", "command": "./add"},
                ],
            }
        ],
        **{key: value for key, value in document.items() if key != "title"},
        "allOf": [_unless_default(("walltime",)), _unless_default(_SIZES)],
    }


def schema_text() -> str:
    """Write the schema as it is published."""
    return json.dumps(schema_document(), indent=2, ensure_ascii=False) + "\n"


def _conflicts() -> list[dict[str, Any]]:
    """Allow only one key for the payload, and only one for the number of cores."""
    pairs = [(a, b) for i, a in enumerate(WAYS) for b in WAYS[i + 1 :]]
    return [{"not": {"required": list(pair)}} for pair in [*pairs, ("cores", "ntasks")]]


def _unless_default(keys: tuple[str, ...]) -> dict[str, Any]:
    """Require one of the given keys in each stage that is not local, unless the defaults have one of them."""
    one_of_them = [{"required": [key]} for key in keys]
    return {
        "if": {"not": {"required": ["defaults"], "properties": {"defaults": {"anyOf": [*one_of_them, _IS_LOCAL]}}}},
        "then": {"properties": {"stage": {"items": {"anyOf": [*one_of_them, _IS_LOCAL]}}}},
    }


def _tidy(value: Any) -> Any:
    """Remove parts that are useless for editors: null as a value, which TOML does not have, and generated titles."""
    if isinstance(value, list):
        return [_tidy(part) for part in value]
    if not isinstance(value, dict):
        return value
    tidy: dict[str, Any] = {}
    for key, part in value.items():
        if (key == "default" and part in (None, {}, [])) or (key == "title" and isinstance(part, str)):
            continue
        tidy[key] = _titled(part) if key == "properties" else _tidy(part)
    options = [option for option in tidy.get("anyOf", []) if option != {"type": "null"}]
    if options and len(options) < len(tidy["anyOf"]):
        del tidy["anyOf"]
        tidy = {**(options[0] if len(options) == 1 else {"anyOf": options}), **tidy}
    return tidy


def _titled(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: {"title": name.replace("_", " "), **_tidy(part)} for name, part in properties.items()}
