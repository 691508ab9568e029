"""`autoresearch marketing replies`: take in what came back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.email.classify import Accuracy, Judge
    from autoresearch.adapters.marketing.email.replies import Tally

_SHOWN = 20
_PARTS = ("test", "hard")


def replies(
    workspace: CampaignOption = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Say how often the judge of answers is right, and read no mail.")
    ] = False,
    classifier: Annotated[
        str | None, typer.Option(help="auto, claude or rules; default: campaign.toml's, else auto.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; docs/json.md names the keys.")] = False,
) -> None:
    """Read the mailbox, lead answers back to the mails that they answer, and write down what they say."""
    if accuracy:
        _measure(classifier or "rules", as_json=as_json)
        return
    import os

    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email.classify import make_judge
    from autoresearch.adapters.marketing.email.inbox import opened
    from autoresearch.adapters.marketing.email.journal import Journal
    from autoresearch.adapters.marketing.email.replies import Replies
    from autoresearch.adapters.marketing.email.settings import EmailSettings
    from autoresearch.core import UsageError

    loaded = Campaign.load(layout_of(workspace).root)
    settings = EmailSettings.of(loaded)
    if settings.imap is None:
        raise UsageError(f"{loaded.path}: [email] imap_host is missing.\nName the server that answers arrive at.")
    judge = make_judge(_known(classifier or settings.classifier), settings.model, os.environ)
    name = f"{settings.imap.host}/{settings.imap.username}/{settings.imap_folder}"
    with Journal(settings.shared) as journal, opened(settings.imap, settings.imap_folder) as inbox:
        taker = Replies(loaded, journal, judge, settings)
        tally = taker.fetch(inbox, name)
        if as_json:
            typer.echo(json.dumps(_as_record(tally, judge, journal.reply_kinds(taker.id)), indent=2))
            return
        typer.echo(_told(tally, judge))
        so_far = ", ".join(f"{kind} {n:,}" for kind, n in sorted(journal.reply_kinds(taker.id).items()))
        typer.echo(f"In all: {so_far or 'none yet'}.")


def _known(classifier: str) -> str:
    from autoresearch.core import UsageError

    if classifier not in ("auto", "claude", "rules"):
        raise UsageError(f"--classifier must be auto, claude or rules, not {classifier!r}.")
    return classifier


def _as_record(tally: Tally, judge: Judge, in_all: Mapping[str, int]) -> dict[str, Any]:
    return {
        "judge": judge.name,
        "new": dict(tally.kinds),
        "in_all": dict(in_all),
        "unsure": [datetime.fromtimestamp(at, UTC).isoformat() for at in tally.unsure],
        "suppressed": tally.suppressed,
        "unjoined": tally.unjoined,
        "known": tally.known,
        "clicks": tally.clicks,
        "loaded": tally.loaded,
        "opened": tally.opened,
    }


def _told(tally: Tally, judge: Judge) -> str:
    lines = [f"{sum(tally.kinds.values()):,} new answers, judged by {judge.name}."]
    lines += [f"  {n:,} {kind}" for kind, n in tally.kinds.most_common()]
    more = {
        "of the neutral ones no rule understood: read them yourself, somebody may want to leave": len(tally.unsure),
        "addresses put on the suppression list": tally.suppressed,
        "messages that answer no mail of this campaign, left alone": tally.unjoined,
        "taken in before": tally.known,
        "mails whose link a person clicked on, so far": tally.clicks,
    }
    lines += [f"  {n:,} {what}" for what, n in more.items() if n]
    if tally.loaded:
        lines.append(
            f"  opens (recorded, never decided on): the picture of {tally.loaded:,} mails was loaded, {tally.opened:,} "
            "times by what no rule takes for a program"
        )
    if tally.unsure:
        # The moment finds a message in a mailbox and says nothing about anybody.
        moments = [datetime.fromtimestamp(at).strftime("%d %b %H:%M:%S") for at in tally.unsure[-_SHOWN:]]
        lines.append(f"  not understood, by arrival: {', '.join(moments)}")
    return "\n".join(lines)


def _measure(classifier: str, *, as_json: bool) -> None:
    import os

    from autoresearch.adapters.marketing.email.classify import accuracy, labelled_replies, make_judge

    judge = make_judge(_known(classifier), "", os.environ)
    rows = labelled_replies()
    if as_json:
        parts = [accuracy(lambda text: judge.judge(text)[0], rows, part) for part in _PARTS]
        typer.echo(json.dumps({"judge": judge.name, "parts": [_accuracy_record(part) for part in parts]}, indent=2))
        return
    said = [row for row in rows if row.part in _PARTS]
    typer.echo(f"{judge.name} on {len(said):,} answers that no rule was made from:")
    for part in _PARTS:
        typer.echo(_shown(accuracy(lambda text: judge.judge(text)[0], rows, part)))
    typer.echo(
        "test: common phrases. hard: hedged, long or idiomatic. Texts and rules have one author, so expect less than "
        "`test`\nfrom real mail. What is missed counts as neutral, in both arms alike: effects look smaller, none is "
        "made up. A model\nreads better: set ANTHROPIC_API_KEY."
    )


def _accuracy_record(found: Accuracy) -> dict[str, Any]:
    low, high = found.interval
    return {
        "part": found.part,
        "n": found.n,
        "right": found.right,
        "low": low,
        "high": high,
        "languages": [
            {"language": name, "n": n, "right": right} for name, (right, n) in sorted(found.by_language.items())
        ],
        "confused": [{"label": label, "said": said, "n": n} for (label, said), n in sorted(found.confused.items())],
    }


def _shown(found: Accuracy) -> str:
    low, high = found.interval
    lines = [
        f"  {found.part}: {found.right} of {found.n} right, {found.right / found.n:.0%} "
        f"(95 % interval {low:.0%} to {high:.0%})",
        "    by language: " + ", ".join(f"{name} {right}/{n}" for name, (right, n) in found.by_language.items()),
    ]
    for (label, said), n in sorted(found.confused.items(), key=lambda item: -item[1]):
        lines.append(f"    {n} {label} taken for {said}")
    return "\n".join(lines)
