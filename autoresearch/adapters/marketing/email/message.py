"""A mail as it goes out, and the token in its Message-ID that leads an answer back to it.

The token says which unit and which test, and proves that we made it; it holds no address. Mail programs quote it in
In-Reply-To and References, mail servers in their reports, and people who forward a mail forward it too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import struct
from dataclasses import dataclass, replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from typing import TYPE_CHECKING, Any

from autoresearch.core import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email.recipients import Recipient
    from autoresearch.adapters.marketing.render import Rendered
    from autoresearch.adapters.marketing.wording import Copy

_FIELDS = struct.Struct(">QQ9s")  # unit, test, and what makes two mails to one company differ
_PROOF = 10
_LENGTH = (_FIELDS.size + _PROOF) * 8 // 5  # 35 bytes are 56 letters, without padding
_TOKEN = re.compile(rf"(?<![a-z2-7])[a-z2-7]{{{_LENGTH}}}(?![a-z2-7])", re.IGNORECASE)


_AS_IS = ("list-unsubscribe", "message-id")


class _Policy(EmailPolicy):
    """As the standard policy for SMTP, but long words stay as they are, on the line of their name.

    The standard one takes a long address for text that must be encoded, and no mail program understands an encoded
    List-Unsubscribe; nor does each find a Message-ID on a line of its own.
    """

    def fold(self, name: str, value: Any) -> str:
        """Return a header as its lines."""
        if name.casefold() in _AS_IS:
            return f"{name}: {str(value).replace(', ', f',{self.linesep} ')}{self.linesep}"
        return str(super().fold(name, value))

    def fold_binary(self, name: str, value: Any) -> bytes:
        """Return a header as the bytes of its lines."""
        if name.casefold() in _AS_IS:
            return self.fold(name, value).encode("ascii")
        return super().fold_binary(name, value)


_POLICY = _Policy(linesep="\r\n")


@dataclass(frozen=True, slots=True)
class Token:
    """What a Message-ID leads to.

    Attributes:
        text: The token itself, in small letters.
        unit: The unit's key in the event log.
        test: The test's key in the event log.
    """

    text: str
    unit: int
    test: int


def new_token(secret: str, unit: int, test: int) -> Token:
    """Return a token for one mail.

    Args:
        secret: The campaign's.
        unit: See `LiveFolder.unit_key`.
        test: See `events.key`.
    """
    fields = _FIELDS.pack(unit, test, secrets.token_bytes(9))
    text = base64.b32encode(fields + _proof(secret, fields)).decode("ascii").lower()
    return Token(text, unit, test)


def tokens_in(secret: str, text: str) -> list[Token]:
    """Return the tokens of ours in a text, in order, each once; what others made is passed over."""
    found: dict[str, Token] = {}
    for match in _TOKEN.finditer(text):
        raw = base64.b32decode(match[0].upper())
        fields, proof = raw[: _FIELDS.size], raw[_FIELDS.size :]
        if hmac.compare_digest(proof, _proof(secret, fields)):
            unit, test, _ = _FIELDS.unpack(fields)
            found.setdefault(match[0].lower(), Token(match[0].lower(), unit, test))
    return list(found.values())


def rendered_for(
    campaign: Campaign, copy: Copy, recipient: Recipient, unsubscribe_url: str, landing_url: str = ""
) -> Rendered:
    """Return a mail's parts for one recipient, checked as they are sent.

    Args:
        campaign: The campaign.
        copy: The arm's texts.
        recipient: To whom.
        unsubscribe_url: Their address for leaving the list.
        landing_url: Where the mail's link leads; empty: straight to the campaign's goal.

    Raises:
        UsageError: If the mail lacks postal address or unsubscribe line, or the template cannot be filled.
    """
    from autoresearch.adapters.marketing.checks import mail_faults
    from autoresearch.adapters.marketing.render import Context, render

    rendered = render(
        campaign,
        copy,
        context=Context(
            landing_url=landing_url or campaign.goal.landing_url,
            unsubscribe_url=unsubscribe_url,
            first_name=recipient.first_name,
        ),
    )
    faults = mail_faults(campaign, rendered, unsubscribe_url)
    if faults:
        raise UsageError(f"A mail may not go out like this: {' '.join(faults)}")
    return rendered


def with_picture(rendered: Rendered, url: str) -> Rendered:
    """Return a mail whose HTML loads a picture of one point, the same in every arm but for its address."""
    html = rendered.html or ""
    picture = f'<img src="{escape(url)}" width="1" height="1" alt="">'
    body, end, rest = html.rpartition("</body>")
    return replace(rendered, html=f"{body}{picture}{end}{rest}" if end else html + picture)


def build(
    campaign: Campaign, rendered: Rendered, recipient: Recipient, token: Token, unsubscribe_url: str, now: datetime
) -> EmailMessage:
    """Return the message: text first, then HTML with its styles inlined, and headers that let people leave by a click.

    Raises:
        UsageError: If the sender's table or a text cannot stand in a header.
        EnvironmentNotReadyError: If css-inline is not installed.
    """
    sender = campaign.sender
    reply_to = sender.reply_to or sender.email
    message = EmailMessage(policy=_POLICY)
    try:
        message["From"] = Address(sender.name, addr_spec=sender.email)
        message["To"] = Address(recipient.first_name, addr_spec=recipient.address)
        message["Reply-To"] = reply_to
        message["Subject"] = rendered.subject or ""
    except (ValueError, IndexError) as error:  # IndexError: an address that ends too early
        raise UsageError(
            f"{campaign.path}: [sender] or the subject cannot stand in the head of a mail ({type(error).__name__}).\n"
            "name, email and reply_to must be one line each, and the addresses whole."
        ) from error
    message["Date"] = format_datetime(now)
    message["Message-ID"] = f"<{token.text}@{sender.email.rpartition('@')[2]}>"
    # RFC 8058: a mail program posts to the first address; only a person's own act makes it do so. The second serves
    # those who answer by mail, and its subject tells us who.
    message["List-Unsubscribe"] = f"<{unsubscribe_url}>, <mailto:{reply_to}?subject=unsubscribe%20{token.text}>"
    message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(rendered.text or "", cte="quoted-printable")
    message.add_alternative(inlined(rendered.html or ""), subtype="html", cte="quoted-printable")
    return message


def inlined(html: str) -> str:
    """Return HTML with its style sheet in style attributes, since many mail programs drop the sheet; fetches nothing.

    Raises:
        EnvironmentNotReadyError: If css-inline is not installed.
    """
    try:
        import css_inline
    except ImportError as error:
        raise EnvironmentNotReadyError(
            "Mail needs the package css-inline, which is not installed.\n"
            "Install it: pip install 'autoresearch[marketing]'"
        ) from error
    # @media rules cannot be inlined and stay, for the programs that read them.
    return css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False).inline(html)


def _proof(secret: str, fields: bytes) -> bytes:
    return hmac.new(secret.encode(), b"message-id\0" + fields, hashlib.sha256).digest()[:_PROOF]
