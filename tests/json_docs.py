"""The tables of docs/json.md as schemas: what a command prints must have exactly these keys, of these types."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "json.md"

_SECTION = re.compile(r"^## `autoresearch (?P<words>[^`]+)`$")
_PART = re.compile(r"^### (?:Each of )?`(?P<path>[a-z_.]+)`$")
_LINES = re.compile(r"^### Lines with `event` `(?P<event>\w+)`$")
_INSTEAD = re.compile(r"^### Instead: (?P<case>[a-z ]+)$")
_ROW = re.compile(r"^\| (?P<keys>`[^|]+`) \| (?P<type>[^|]+) \| [^|]*\|$")

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "list": (list,),
    "null": (type(None),),
    "list of strings": (list,),
    "list of integers": (list,),
    "list of numbers": (list,),
}

_ITEMS: dict[str, tuple[type, ...]] = {
    "list of strings": (str,),
    "list of integers": (int,),
    "list of numbers": (int, float),
}


@dataclass
class Schema:
    """Path of a part -> its keys -> their types; the object itself has the path `""`."""

    parts: dict[str, dict[str, str]] = field(default_factory=dict)


@cache
def schemas() -> dict[str, Schema]:
    """Return command -> schema, with upper-case arguments left out: `log --failed`, `run: end`.

    A heading `### Instead: CASE` begins the tables of another object that the same command may print.
    """
    found: dict[str, Schema] = {}
    command, path = "", ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if section := _SECTION.match(line):
            words = [word for word in section["words"].split() if not word.isupper() and word != "--json"]
            command, path = " ".join(words) if "--json" in section["words"] else "", ""
        elif lines := _LINES.match(line):
            command, path = f"run: {lines['event']}", ""
        elif instead := _INSTEAD.match(line):
            command, path = f"{command}: {instead['case']}", ""
        elif part := _PART.match(line):
            path = part["path"]
        elif command and (row := _ROW.match(line)):
            keys = found.setdefault(command, Schema()).parts.setdefault(path, {})
            for key in re.findall(r"`(\w+)`", row["keys"]):
                assert key not in keys, f"{command}: {key} is documented twice"
                keys[key] = row["type"].strip()
    return found


def as_documented(command: str, text: str) -> Any:
    """Return what a command printed, once it has exactly the documented keys and types.

    Raises:
        AssertionError: If a key is missing, undocumented, or of another type than the table says.
    """
    value = json.loads(text)
    schema = schemas()[command]
    _check(command, "", value, schema)
    return value


def _check(command: str, path: str, value: Any, schema: Schema) -> None:
    if isinstance(value, list):
        for item in value:
            _check(command, path, item, schema)
        return
    where = f"{command} --json{f', {path}' if path else ''}"
    keys = schema.parts[path]
    assert isinstance(value, dict), f"{where}: {value!r} is no object"
    assert set(value) == set(keys), (
        f"{where}: not documented {sorted(set(value) - set(keys))}, missing {sorted(set(keys) - set(value))}"
    )
    for key, item in value.items():
        assert _fits(item, keys[key]), f"{where}: {key} is {item!r}, and docs/json.md says {keys[key]}"
        inner = f"{path}.{key}" if path else key
        if inner in schema.parts and item is not None:
            _check(command, inner, item, schema)


def _fits(value: Any, said: str) -> bool:
    for name in said.split(" or "):
        kinds = _TYPES[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            continue
        inner = _ITEMS.get(name)
        return inner is None or all(isinstance(item, inner) for item in value)
    return False
