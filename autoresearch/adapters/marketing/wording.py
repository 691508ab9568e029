"""The artifact: `copy.toml`, with a text for every slot, and the texts that the offline search may put there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autoresearch.core import Artifact, CandidateError, Knob

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

COPY_NAME = "copy.toml"
NAME_RULE = "Slots and surfaces take small letters, digits and underscores, a letter first: headline, bullet_1."


@dataclass(frozen=True, slots=True)
class Copy:
    """The texts of one arm.

    Attributes:
        slots: Text by slot.
        options: Texts that the offline search may choose from, by slot.

    A text for one audience has the name `AUDIENCE.slot`, see surfaces.py.
    """

    slots: Mapping[str, str]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", MappingProxyType(dict(self.slots)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @classmethod
    def load(cls, source: Path | str) -> Copy:
        """Read a copy from a folder with `copy.toml`, from that file, or from its text.

        Raises:
            CandidateError: If it is missing or is no TOML of two tables, [slots] and [options], of texts.
        """
        if isinstance(source, str):
            return cls._parse(source, COPY_NAME)
        path = source / COPY_NAME if source.is_dir() else source
        try:
            return cls._parse(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise CandidateError(f"{path} cannot be read: {error.strerror}. The copy must be in this file.") from error
        except UnicodeDecodeError as error:
            raise CandidateError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error

    @classmethod
    def _parse(cls, text: str, place: str) -> Copy:
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CandidateError(f"{place} is not valid TOML: {error}. Correct that line.") from error
        for name, table in tables.items():
            if name not in ("slots", "options"):
                raise CandidateError(f"{place}: {name!r} is unknown; there are the tables [slots] and [options].")
            if not isinstance(table, dict):
                raise CandidateError(f"{place}: {name} must be a table, [{name}], not {table!r}.")
        slots = dict(_slots(tables.get("slots", {}), place))
        return cls(slots, dict(_options(tables.get("options", {}), slots, place)))

    def with_slot(self, name: str, text: str) -> Copy:
        """Return this copy with another text in one slot."""
        return Copy({**self.slots, name: text}, self.options)

    def seen_by(self, audience: str = "") -> Copy:
        """Return the texts that an audience sees: its own, `AUDIENCE.slot`, in the place of everybody's."""
        shown = {name: text for name, text in self.slots.items() if "." not in name}
        own = f"{audience}."
        shown |= {name.removeprefix(own): text for name, text in self.slots.items() if name.startswith(own)}
        return Copy(shown, self.options) if shown != self.slots else self


def is_name(name: str) -> bool:
    """Say whether a slot can have this name."""
    return re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is not None


def is_key(name: str) -> bool:
    """Say whether copy.toml may have a text of this name: a slot's, or `AUDIENCE.slot`."""
    return name.count(".") <= 1 and all(map(is_name, name.split(".")))


def slot_name(key: str) -> str:
    """Return the slot that a text of copy.toml belongs to: `headline` for `headline` and `AUDIENCE.headline`."""
    return key.rpartition(".")[2]


def changed_slots(before: Copy, after: Copy) -> tuple[str, ...]:
    """Return the slots whose text differs; none means that nobody would see a difference."""
    names = {**before.slots, **after.slots}
    return tuple(name for name in names if before.slots.get(name) != after.slots.get(name))


def set_slots(text: str, slots: Mapping[str, str]) -> str:
    """Return the text of a `copy.toml` with other texts in some slots; comments, order and layout stay.

    Raises:
        CandidateError: If the text is not the TOML of a copy.
        KeyError: If a slot is not there.
    """
    Copy.load(text)
    document = _document(text)
    for name, slot in slots.items():
        table, key = _place(document["slots"], name)
        if table[key] != slot:
            table[key] = _literal(slot)
    return document.as_string()


def _place(table: Any, name: str) -> tuple[Any, str]:
    """Return the TOML table and the key where a text stands. Raises KeyError if it is not there."""
    if name in table:
        return table, name
    audience, _, slot = name.partition(".")
    if not slot or slot not in table.get(audience, {}):
        raise KeyError(name)
    return table[audience], slot


def knobs(artifact: Artifact) -> Sequence[Knob]:
    """Return a knob for every slot that lists options: `slots.headline`, with its options as TOML literals.

    The literal of the present text is among the choices exactly as the file has it, so that the search never takes
    another spelling of the same text for a change. A copy that cannot be read has no knobs; `check` refuses it.
    """
    text = artifact.files.get(COPY_NAME, "")
    try:
        copy = Copy.load(text)
    except CandidateError:
        return ()
    table: Any = _document(text).get("slots", {})
    return tuple(
        Knob(f"slots.{name}", COPY_NAME, category=category_of(name), choices=_choices(_literal_at(table, name), texts))
        for name, texts in copy.options.items()
        if set(texts) - {copy.slots[name]}
    )


def _literal_at(table: Any, name: str) -> Any:
    holder, key = _place(table, name)
    return holder[key]


def category_of(slot: str) -> str:
    """Return the kind of idea that changing a slot is: its name without a number (`bullet_2` is `bullet`)."""
    return re.sub(r"_?\d+$", "", slot_name(slot))


def _choices(present: Any, texts: Sequence[str]) -> tuple[str, ...]:
    others = (_literal(text).as_string() for text in dict.fromkeys(texts) if text != present)
    return (present.as_string(), *others)


def _literal(text: str) -> Any:
    import tomlkit

    # Several lines stay readable as such. TOML reads a carriage return as part of a line end, so it must be escaped.
    return tomlkit.string(text, multiline="\n" in text and "\r" not in text)


def _document(text: str) -> TOMLDocument:
    import tomlkit

    return tomlkit.parse(text)


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values; `ads.headline = ...` without quotes is a table to TOML, and the same to us."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _slots(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if not table:
        raise CandidateError(f"{place} has no [slots]. List a text for every slot of the template there.")
    for name, text in _flat(table):
        if not is_key(name):
            raise CandidateError(f"{place}: {name!r} cannot name a slot. {NAME_RULE}")
        if not isinstance(text, str):
            raise CandidateError(f"{place}: [slots] {name} must be a text, not {text!r}. Put it in quotes.")
        yield name, text


def _options(table: Mapping[str, Any], slots: Mapping[str, str], place: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, texts in _flat(table):
        if name not in slots:
            raise CandidateError(f"{place}: [options] {name} belongs to no slot. There are {', '.join(slots)}.")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise CandidateError(f'{place}: [options] {name} must be a list of texts: {name} = ["one", "another"].')
        yield name, tuple(texts)
