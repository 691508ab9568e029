"""Where the values of a TOML file stand, so that a knob can replace exactly one of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["TomlValue", "find_values"]

# Put in place of a value for a moment, to see where that is; no file of a person holds it.
_MARK = "\N{REPLACEMENT CHARACTER}autoresearch\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class TomlValue:
    """One value of a TOML text.

    Attributes:
        source: Its literal (`"a text"`, `0.02`).
        value: The number that it is; None for anything else.
        start: Index of its first byte in the UTF-8 text.
        end: Index after its last byte.
    """

    source: str
    value: int | float | None
    start: int
    end: int


def find_values(text: str, names: Iterable[str]) -> dict[str, TomlValue]:
    """Return texts, numbers and booleans by dotted name (`slots.headline`), in the order of the file.

    Names that the text does not hold, or that stand for a table or list, are left out. A text that is no TOML holds
    none.
    """
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        document = tomlkit.parse(text)
    except ParseError:
        return {}
    found: dict[str, TomlValue] = {}
    for name in dict.fromkeys(names):
        value = _find(document, name, text)
        if value is not None:
            found[name] = value
    return dict(sorted(found.items(), key=lambda pair: pair[1].start))


def _find(document: Any, name: str, text: str) -> TomlValue | None:
    import tomlkit
    from tomlkit.items import Bool, Float, Integer, String, Trivia

    table, key = _holder(document, name)
    if table is None:
        return None
    item = table.get(key)
    if isinstance(item, bool):  # the one kind that tomlkit hands out without its literal
        item = Bool(item, Trivia())
    if not isinstance(item, String | Integer | Float | Bool):
        return None
    table[key] = tomlkit.string(_MARK)
    at = document.as_string().find(tomlkit.string(_MARK).as_string())
    table[key] = item
    source = item.as_string()
    # A layout that tomlkit does not give back as it was would put the place elsewhere.
    if at < 0 or text[at : at + len(source)] != source:
        return None
    start = len(text[:at].encode())
    return TomlValue(source, _number(item.unwrap(), source), start, start + len(source.encode()))


def _holder(table: Any, name: str) -> tuple[Any, str]:
    """Return the table that a dotted name stands in, and its key there, which may itself have dots in quotes."""
    if not isinstance(table, dict):
        return None, name
    if name in table:
        return table, name
    first, _, rest = name.partition(".")
    return _holder(table.get(first), rest) if rest else (None, name)


def _number(value: object, source: str) -> int | float | None:
    """Return a number that could be a setting: masks and addresses in hexadecimal, inf and nan are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or source[:2].lower() in ("0x", "0o", "0b"):
        return None
    return value if math.isfinite(value) else None
