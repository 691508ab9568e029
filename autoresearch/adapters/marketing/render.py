"""The template with a copy in it: what a person gets to see.

Templates are Jinja2 in a sandbox. A template knows

    slot.NAME    the text of a slot
    sender       the table [sender] of campaign.toml
    campaign     name, language
    goal         event, landing_url, canonical_url, privacy_url
    link         addresses of this rendering: see `Context`

In HTML and MJML every text is escaped; a slot can never bring markup. A name that nobody defines is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.core import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from jinja2 import Environment

    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.wording import Copy

INSTALL = "pip install 'autoresearch[marketing]'"

PARTS: Mapping[str, Mapping[str, str]] = {
    "page": {"html": "page.html.j2"},
    "email": {"subject": "email.subject.j2", "html": "email.html.j2", "text": "email.txt.j2"},
    "ad": {"text": "ad.j2"},
}
"""Templates of each kind, by the part of `Rendered` that they make."""

OPTIONAL_PARTS: Mapping[str, Mapping[str, str]] = {
    "page": {},
    "email": {"mjml": "email.mjml.j2"},
    "ad": {"html": "ad.html.j2"},
}
"""Templates that a campaign may have besides."""


class TemplateFault(UsageError):
    """A template is missing, does not parse or cannot be filled; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Context:
    """What differs between two renderings of the same copy.

    Attributes:
        action_url: Where the form of a page is posted to.
        landing_url: Where links of an ad or a mail lead.
        unsubscribe_url: Address for leaving the list.
        first_name: Recipient's first name; empty where it is not known.
        hidden: Hidden form fields by name.
    """

    action_url: str = "/convert"
    landing_url: str = ""
    unsubscribe_url: str = ""
    first_name: str = ""
    hidden: Mapping[str, str] = field(default_factory=dict)


PREVIEW_UNSUBSCRIBE = "https://example.com/unsubscribe"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a person gets; parts that the kind does not have are None.

    Attributes:
        subject: Subject line of a mail, one line.
        html: HTML of a page or mail, or the preview of an ad.
        text: Plain text of a mail or ad.
        mjml: MJML of a mail, for tools that build their own HTML.
    """

    subject: str | None = None
    html: str | None = None
    text: str | None = None
    mjml: str | None = None


def preview_context(campaign: Campaign) -> Context:
    """Return a context in which everything has a value, for checks and previews."""
    return Context(
        landing_url=campaign.goal.landing_url or "https://example.com/",
        unsubscribe_url=campaign.sender.unsubscribe_url or PREVIEW_UNSUBSCRIBE,
        first_name="Alex",
    )


def render(campaign: Campaign, copy: Copy, *, context: Context | None = None) -> Rendered:
    """Fill the campaign's templates with a copy.

    Args:
        campaign: Where the templates lie.
        copy: Texts of the slots; for one audience, what `Copy.seen_by` returns.
        context: Addresses of this rendering; None: those of a preview.

    Raises:
        TemplateFault: If a template is missing or broken, or asks for a slot that the copy lacks.
        EnvironmentNotReadyError: If Jinja2 is not installed.
    """
    values = _values(campaign, copy.seen_by().slots, context or preview_context(campaign))
    parts = {part: _fill(campaign.template, name, values) for part, name in parts_of(campaign).items()}
    if "subject" in parts:
        # A header is one line; the template's own line end is no part of it.
        parts["subject"] = parts["subject"].strip()
    return Rendered(**parts)


def parts_of(campaign: Campaign) -> dict[str, str]:
    """Return file name by part of the campaign's templates, optional ones only where they are there."""
    optional = OPTIONAL_PARTS[campaign.kind].items()
    return {
        **(PARTS[campaign.kind] if campaign.kind != "page" else {"html": campaign.page_template}),
        **{part: name for part, name in optional if (campaign.template / name).is_file()},
    }


def slots_in(campaign: Campaign) -> tuple[str, ...]:
    """Return the slots that the campaign's templates ask for, in order of first use.

    Raises:
        TemplateFault: If a template is missing or does not parse.
    """
    names: dict[str, None] = {}
    for name in parts_of(campaign).values():
        names.update(dict.fromkeys(_slots_of(campaign.template, name, set())))
    return tuple(names)


def texts_in(campaign: Campaign) -> tuple[str, ...]:
    """Return the names that copy.toml must have: the slots of all pages, then the texts of the audiences.

    Raises:
        TemplateFault: If a template is missing or does not parse.
    """
    pages = [campaign.at(page) for page in campaign.pages] if campaign.kind == "page" else [campaign]
    audiences = (one.keys for one in campaign.surfaces if one.audience)
    return tuple(dict.fromkeys(name for names in (*map(slots_in, pages), *audiences) for name in names))


def paragraphs(text: str) -> list[str]:
    """Split a text at empty lines; the template filter of that name."""
    return [part.strip() for part in re.split(r"\n[^\S\n]*\n\s*", text.strip()) if part.strip()]


def _values(campaign: Campaign, slots: Mapping[str, str], context: Context) -> dict[str, Any]:
    return {
        "slot": dict(slots),
        "sender": asdict(campaign.sender),
        "campaign": {"name": campaign.name, "language": campaign.language},
        "goal": asdict(campaign.goal),
        "link": {**asdict(context), "hidden": dict(context.hidden)},
    }


def _fill(folder: Path, name: str, values: Mapping[str, Any]) -> str:
    template = _template(folder, name)
    import jinja2

    try:
        return str(template.render(values))
    except jinja2.TemplateSyntaxError as error:  # of an included file
        raise _syntax_fault(folder, name, error) from error
    except jinja2.UndefinedError as error:
        raise TemplateFault(
            f"{folder / name} cannot be filled: {error.message}.\n"
            "Templates know slot.NAME, sender, campaign, goal and link; a slot must also be in copy.toml."
        ) from error
    except (jinja2.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        # What a template's own expressions raise while they run: the template is at fault, not this program.
        raise TemplateFault(f"{folder / name} cannot be filled: {error}.\nCorrect the template.") from error


def _template(folder: Path, name: str) -> Any:
    environment = _environment(folder)
    import jinja2

    try:
        return environment.get_template(name)
    except jinja2.TemplateSyntaxError as error:
        raise _syntax_fault(folder, name, error) from error
    except jinja2.TemplateNotFound as error:
        raise TemplateFault(
            f"{folder / (error.name or name)} is missing, and a campaign of this kind needs it.\n"
            "Write it, or make a complete campaign to copy from: autoresearch init --adapter marketing DIR"
        ) from error
    except UnicodeDecodeError as error:
        raise TemplateFault(f"{folder / name} is not UTF-8 text (byte {error.start}).\nSave it as UTF-8.") from error


def _syntax_fault(folder: Path, name: str, error: Any) -> TemplateFault:
    return TemplateFault(
        f"{folder / (error.name or name)} line {error.lineno} is no template: {error.message}.\nCorrect that line."
    )


@lru_cache(maxsize=64)  # the server renders from it for every visit; Jinja2 itself reloads a file that has changed
def _environment(folder: Path) -> Environment:
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise EnvironmentNotReadyError(
            f"Templates need Jinja2, which is not installed.\nInstall it: {INSTALL}"
        ) from error
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=_is_markup,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["paragraphs"] = paragraphs
    environment.globals.clear()  # range, lipsum, cycler and the like: a template is a form, not a program
    return environment


def _is_markup(name: str | None) -> bool:
    return name is None or name.removesuffix(".j2").endswith((".html", ".mjml"))


def _slots_of(folder: Path, name: str, seen: set[str]) -> Iterator[str]:
    """Yield the slots that a template and what it includes ask for; `seen` collects the files read."""
    _template(folder, name)  # says what is wrong, if anything
    from jinja2 import meta, nodes

    seen.add(name)
    environment = _environment(folder)
    tree = environment.parse((folder / name).read_text(encoding="utf-8"))
    for attribute in tree.find_all(nodes.Getattr):
        if _is_slot(attribute.node):
            yield attribute.attr
    for item in tree.find_all(nodes.Getitem):
        if _is_slot(item.node) and isinstance(item.arg, nodes.Const):
            yield str(item.arg.value)
    for other in meta.find_referenced_templates(tree):
        if other is not None and other not in seen:
            yield from _slots_of(folder, other, seen)


def _is_slot(node: Any) -> bool:
    from jinja2 import nodes

    return isinstance(node, nodes.Name) and node.name == "slot"
