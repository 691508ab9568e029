"""`autoresearch marketing send`: write to the next recipients of the live test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.email.send import Mailing, Plan, Sent
    from autoresearch.adapters.marketing.render import Rendered


def send(
    workspace: CampaignOption = None,
    really: Annotated[bool, typer.Option("--send", help="Send, after you typed the number of recipients.")] = False,
    yes: Annotated[
        int | None, typer.Option("--yes", min=1, help="For scripts, with --send: the number of recipients.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show the mails' HTML too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; docs/json.md names the keys. To send, it needs --yes.")
    ] = False,
) -> None:
    """Say who would get which mail of the live test, or which was chosen for the rest; with --send write to them."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email.journal import Journal
    from autoresearch.adapters.marketing.email.send import Mailing
    from autoresearch.adapters.marketing.email.settings import EmailSettings

    if as_json and really and yes is None:
        raise typer.BadParameter("nobody can be asked there: give the number of recipients.", param_hint="--yes")
    loaded = Campaign.load(layout_of(workspace).root)
    settings = EmailSettings.of(loaded)
    with Journal(settings.shared) as journal:
        mailing = Mailing(loaded, journal, settings)
        plan = mailing.plan()
        if as_json:
            sent = _sent(mailing, plan, yes) if really and plan.mails else None
            typer.echo(json.dumps(_as_record(mailing, plan, sent), indent=2))
            return
        typer.echo(_described(mailing, plan))
        if not really:
            for arm, rendered in mailing.preview(plan.test).items():
                typer.echo(_shown(arm, rendered, full))
            typer.echo("Nothing was sent. To send: autoresearch marketing send --send")
        elif plan.mails:
            typer.echo(_result(_sent(mailing, plan, yes)))


def _sent(mailing: Mailing, plan: Plan, yes: int | None) -> Sent:
    """Send what is planned, once somebody named the number of recipients."""
    mailing.ready()
    mailing.check_unsubscribing()
    _confirm(len(plan.mails), yes)
    return mailing.send(plan)


def _as_record(mailing: Mailing, plan: Plan, sent: Sent | None) -> dict[str, Any]:
    """Return the object that `--json` prints; it names no recipient."""
    names = ("sent", "refused", "rejected", "deferred", "suppressed")
    return {
        "test": plan.test.id,
        "rest_of_list": plan.test.ended is not None,
        "chosen": plan.spent.chosen if plan.spent is not None and plan.test.ended is not None else None,
        "recipients": plan.n_recipients,
        "next": len(plan.mails),
        "by_arm": plan.by_arm,
        "left_out": dict(plan.left_out),
        "unused_columns": list(plan.unused),
        "per_day": mailing.settings.per_day,
        "per_mailbox": mailing.settings.per_mailbox,
        "unknown": mailing.journal.states(mailing.id, plan.test.id).get("sending", 0),
        "result": None if sent is None else {name: getattr(sent, name) for name in names},
    }


def _described(mailing: Mailing, plan: Plan) -> str:
    arms = ", ".join(f"{arm} {n:,}" for arm, n in plan.by_arm.items()) or "nobody"
    rolled = plan.test.ended is not None
    what = f"The rest of the list of test {plan.test.id}" if rolled else f"Test {plan.test.id}"
    lines = [
        f"{what}: {len(plan.mails):,} of {plan.n_recipients:,} recipients are next.",
        *_spending(plan),
        f"  by arm: {arms}",
        *(f"  {n:,} {reason}" for reason, n in plan.left_out.items()),
        f"  caps: {mailing.settings.per_day:,} a day, {mailing.settings.per_mailbox:,} from the mailbox",
    ]
    states = mailing.journal.states(mailing.id, plan.test.id)
    if states.get("sending"):
        lines.append(f"  {states['sending']:,} unknown: on their way when sending broke off; they are not sent again")
    if plan.unused:
        lines.append(f"  columns that nothing reads: {', '.join(plan.unused)}")
    return "\n".join(lines)


def _spending(plan: Plan) -> list[str]:
    """Return how a list is spent, a line or none."""
    if plan.spent is None:
        return []
    if plan.test.ended is None:
        return [f"  {plan.spent.in_words}"]
    lines = [f"  Test & Roll chose the {plan.spent.chosen}: a bet, without an error rate"]
    if plan.taken_back:
        lines.append("  that was taken back since: what goes out is the mail that everybody gets now")
    return lines


def _shown(arm: str, rendered: Rendered, full: bool) -> str:
    body = rendered.html if full and rendered.html is not None else rendered.text
    return f"\n--- {arm} ---\nSubject: {rendered.subject}\n\n{(body or '').strip()}\n"


def _confirm(n: int, yes: int | None) -> None:
    """Raise UsageError unless the person, or the script, names the number of recipients."""
    from autoresearch.core import UsageError

    given = str(yes) if yes is not None else typer.prompt(f"Type the number of recipients to send {n:,} mails")
    if given.strip() != str(n):
        raise UsageError(
            f"{n} mails would go out and {given.strip()!r} was confirmed, so none did.\n"
            "Look at the plan once more: autoresearch marketing send"
        )


def _result(sent: Sent) -> str:
    more = {
        "refused: no such mailbox, or it takes nothing from you": sent.refused,
        "rejected: the server did not take the text": sent.rejected,
        "to be tried again by the next send": sent.deferred,
        "on the suppression list since the plan was made": sent.suppressed,
    }
    return "\n".join([f"Sent {sent.sent:,} mails.", *(f"  {n:,} {what}" for what, n in more.items() if n)])
