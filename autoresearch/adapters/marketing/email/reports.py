"""What mail servers and programs send: told by a message's structure and headers, before anybody reads its words.

Bounces (RFC 3464 and the plain ones of servers that write none), complaints (RFC 5965, the feedback that providers send
when somebody presses "spam"), and answers that no person wrote (RFC 3834 and what came before it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.utils import parseaddr

from autoresearch.adapters.marketing.email.inbox import header
from autoresearch.adapters.marketing.email.words import body_of, decoded, plain


@dataclass(frozen=True, slots=True)
class Report:
    """What a program says.

    Attributes:
        kind: `bounce`, `delay`, `complaint`, `unsubscribe` (by a provider's button), `auto_reply` or `receipt`.
        permanent: For bounces: the mailbox will not take mail later either.
    """

    kind: str
    permanent: bool = False


def report_in(message: Message) -> Report | None:
    """Return what a program says in a message; None where a person seems to have written it."""
    return _delivery_report(message) or _feedback(message) or _plain_bounce(message) or _automatic(message)


def _delivery_report(message: Message) -> Report | None:
    """RFC 3464: one block of fields for each recipient."""
    if not _is_report(message, "delivery-status"):
        return _receipt(message)
    actions, statuses = [], []
    for block in _blocks(message, "message/delivery-status"):
        actions.append(str(block.get("Action", "")).strip().casefold())
        statuses.append(str(block.get("Status", "")).strip())
    if "failed" in actions:
        return Report("bounce", any(status.startswith("5") for status in statuses))
    if "delayed" in actions:
        return Report("delay")
    return Report("receipt")


def _receipt(message: Message) -> Report | None:
    return Report("receipt") if _is_report(message, "disposition-notification") else None


def _feedback(message: Message) -> Report | None:
    """RFC 5965; `not-spam` takes a complaint back, and the others are no complaint about us."""
    if not _is_report(message, "feedback-report"):
        return None
    kinds = {
        str(block["Feedback-Type"]).strip().casefold()
        for block in _blocks(message, "message/feedback-report")
        if "Feedback-Type" in block
    }
    if kinds & {"abuse", "fraud", "virus"}:
        return Report("complaint")
    return Report("unsubscribe") if kinds & {"opt-out", "opt-out-list", "unsubscribe"} else Report("receipt")


_DAEMON = re.compile(r"(mailer-?daemon|postmaster|mail-?daemon|mdaemon|mail\.?delivery.?sub)", re.IGNORECASE)
_NOT_DELIVERED = re.compile(
    r"undeliver|undelivered|could(n't| not) be delivered|delivery (has |status notification ?\(?)?fail|returned mail"
    r"|failure notice|mail delivery (failed|system)|returning message|unzustellbar|nicht zugestellt"
    r"|zustellung fehlgeschlagen"
    r"|non (remis|distribue)|echec de (la )?(remise|distribution)|no (se ha podido|se pudo) entregar|no entregado"
    r"|mancato recapito|mancata consegna|non recapitat|nao (foi )?entregue|falha na entrega|onbestelbaar|niet bezorgd"
    r"|nie dostarczono|niedostarcz|iletilemedi|teslim edilemedi|配信(不能|できません|に失敗)|送信できませんでした"
)
_LATER = re.compile(
    r"\bdelay(ed)?\b|\bwarning: message\b.*\bdelayed|still being retried|will be retried|verzogert|retarde|retrasado"
    r"|ritardat"
)
_GONE = re.compile(
    r"\b5\.\d{1,3}\.\d{1,3}\b|\b55\d[ -]|user unknown|unknown user|no such (user|mailbox|recipient)|does not exist"
    r"|mailbox (unavailable|not found|disabled)|account (has been )?disabled|address rejected|existiert nicht|inconnu"
    r"|no existe"
)


def _plain_bounce(message: Message) -> Report | None:
    """Tell the bounce of a server that writes no report; both its sender and its words must say so."""
    if "X-Failed-Recipients" in message:
        return Report("bounce", _GONE.search(plain(body_of(message))) is not None)
    sender = parseaddr(header(message, "From"))[1].partition("@")[0]
    from_nobody = str(message.get("Return-Path", "")).strip() == "<>"
    text = plain(f"{header(message, 'Subject')}\n{body_of(message)[:3000]}")
    if not (_DAEMON.fullmatch(sender) or (from_nobody and _DAEMON.search(sender))):
        return None
    if _LATER.search(text) and not _GONE.search(text):
        return Report("delay")
    if _NOT_DELIVERED.search(text) or _GONE.search(text):
        return Report("bounce", _GONE.search(text) is not None)
    return None


_HEADERS = ("X-Autoreply", "X-Autorespond", "X-Autoresponder", "X-Auto-Reply", "X-Mail-Autoreply", "X-AutoReply-From")
_SUBJECT = re.compile(
    r"^\W*((re|aw|antw|odp|sv|tr|ynt)\s*:\s*)*\W*("
    r"auto(matic|mated|mat)?[ -]?(reply|response|responder|svar)\b|auto:|out of (the )?office"
    r"|away from (my |the )?(office|desk)|on (vacation|holiday|leave)\b|vacation (reply|response)"
    r"|automatische (antwort|ruckmeldung)|abwesen(d|heit)|nicht im (buro|haus)"
    r"|reponse automatique|absen(t|ce)( du bureau)?\b|message d'absence|respuesta automatica|fuera de la oficina"
    r"|ausente\b|risposta automatica|fuori (ufficio|sede)|resposta automatica|fora do escritorio|ausencia\b"
    r"|automatisch (antwoord|bericht)|afwezig|automatyczna odpowiedz|autoodpowiedz|nieobecnosc|poza biurem"
    r"|otomatik (yanit|cevap)|ofis disinda|自動(応答|返信|送信)|不在(通知|の)|休暇"
    r"|automatiskt? svar|franvaro|automaattinen vastaus|automaticka odpoved|автоответ|自动回复|자동 ?(응답|회신))"
)


def _automatic(message: Message) -> Report | None:
    """RFC 3834 first, then headers of older programs, then the subjects that programs write."""
    submitted = str(message.get("Auto-Submitted", "no")).split(";")[0].strip().casefold()
    if submitted not in ("no", "") or any(name in message for name in _HEADERS):
        return Report("auto_reply")
    if str(message.get("Precedence", "")).strip().casefold() in ("auto_reply", "bulk", "junk", "list"):
        return Report("auto_reply")
    return Report("auto_reply") if _SUBJECT.search(plain(header(message, "Subject"))) else None


def _is_report(message: Message, kind: str) -> bool:
    if message.get_content_type() != "multipart/report":
        return False
    stated = str(message.get_param("report-type", "")).casefold()
    # Some servers leave the parameter out, and the part is there all the same.
    return stated == kind or any(part.get_content_type() == f"message/{kind}" for part in message.walk())


def _blocks(message: Message, kind: str) -> Iterator[Message]:
    """Yield the groups of fields in the parts of a kind."""
    from email.parser import HeaderParser

    for part in message.walk():
        if part.get_content_type() != kind:
            continue
        inside = part.get_payload()
        if isinstance(inside, list):
            yield from (block for block in inside if isinstance(block, Message))
        else:
            yield HeaderParser().parsestr(decoded(part))
