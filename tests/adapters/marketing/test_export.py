"""The winner leaves in forms that other tools take, and nothing leaves that may not be shown."""

from __future__ import annotations

import csv
import html
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.commands import app
from autoresearch.adapters.marketing.commands.export import export as export_command
from autoresearch.adapters.marketing.export import FORMATS, export, file_name, placeholders
from autoresearch.adapters.marketing.render import Context
from autoresearch.core import Artifact, EnvironmentNotReadyError, Outcome, UsageError
from autoresearch.core.ledger import Experiment, Ledger, Run, Session
from autoresearch.core.store import Store
from tests.adapters.marketing.campaigns import campaign, copy_of, edit, write_campaign
from tests.adapters.marketing.with_surfaces import write_surfaces

AT = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = Context(action_url="https://www.example.com/in", unsubscribe_url="*|UNSUB|*", first_name="*|FNAME|*")


@pytest.mark.parametrize(
    ("kind", "platform", "slot"),
    [
        ("page", "search", "subhead"),
        ("email", "search", "ask"),
        ("ad", "search", "path_2"),
        ("ad", "social", "headline"),
    ],
)
def test_every_form_holds_the_texts(tmp_path: Path, kind: str, platform: str, slot: str) -> None:
    """Each form of each kind carries what people read."""
    packaged = campaign(tmp_path, kind, platform)
    copy = copy_of(packaged)
    for form in FORMATS[kind]:
        text = html.unescape(export(packaged, copy, form, CONTEXT))
        assert copy.slots[slot] in text
        assert file_name(packaged, form).startswith(f"{kind}.")


def test_json_is_for_content_systems(tmp_path: Path) -> None:
    """JSON has the slots by name, in the order of the copy, and says which format it is."""
    page = campaign(tmp_path)
    record = json.loads(export(page, copy_of(page), "json"))
    assert record["format"] == 1
    assert list(record["slots"].items()) == list(copy_of(page).slots.items())
    assert (record["kind"], record["language"], record["campaign"]) == ("page", "en", "Larkfield trial page")


def test_csv_has_the_columns_of_the_ad_tools(tmp_path: Path) -> None:
    """One row, with the headers that the tools know."""
    search = campaign(tmp_path / "search", "ad")
    [row] = csv.DictReader(io.StringIO(export(search, copy_of(search), "csv")))
    assert list(row) == [
        "Campaign", "Ad Group", "Ad type", "Headline 1", "Headline 2", "Headline 3", "Description 1", "Description 2",
        "Path 1", "Path 2", "Final URL",
    ]  # fmt: skip
    assert row["Headline 3"] == "Start Free, No Card Needed"
    assert row["Final URL"] == "https://www.example.com/trial"
    social = campaign(tmp_path / "social", "ad", "social")
    [row] = csv.DictReader(io.StringIO(export(social, copy_of(social), "csv")))
    assert list(row) == ["Ad Name", "Body", "Title", "Link Description", "Link"]


def test_mail_carries_the_sending_tools_marks(tmp_path: Path) -> None:
    """Unsubscribe address and first name are the tool's own marks, in every form."""
    mail = campaign(tmp_path, "email")
    for form in ("html", "mjml", "text"):
        text = export(mail, copy_of(mail), form, CONTEXT)
        assert "*|UNSUB|*" in text
        assert "Hello *|FNAME|*," in text
        assert mail.sender.postal_address in text
    assert ET.fromstring(export(mail, copy_of(mail), "mjml", CONTEXT)).tag == "mjml"


@pytest.mark.parametrize(
    ("kind", "form", "said"),
    [
        ("page", "html", "--action-url"),
        ("email", "html", "--unsubscribe-url"),
        ("email", "text", "--unsubscribe-url"),
        ("page", "csv", "Choose one of html, json"),
        ("ad", "mjml", "Choose one of csv, text, json"),
    ],
)
def test_what_is_missing_is_asked_for(tmp_path: Path, kind: str, form: str, said: str) -> None:
    """A form that the kind lacks, or an address that nobody gave, is refused with what to do."""
    packaged = campaign(tmp_path, kind)
    with pytest.raises(UsageError) as caught:
        export(packaged, copy_of(packaged), form)
    assert said in str(caught.value)


def test_a_mail_without_postal_address_does_not_go_out(tmp_path: Path) -> None:
    """Export holds to the same rules as sending."""
    mail = campaign(tmp_path, "email")
    mail = replace(mail, sender=replace(mail.sender, postal_address=""))
    with pytest.raises(UsageError, match="postal_address is missing"):
        export(mail, copy_of(mail), "text", CONTEXT)


def test_a_refused_copy_does_not_go_out(tmp_path: Path) -> None:
    """Whatever the checks refuse is not exported, in no form."""
    page = campaign(tmp_path)
    for form in FORMATS["page"]:
        with pytest.raises(UsageError, match="“best” is a claim"):
            export(page, copy_of(page, headline="The best rota"), form, CONTEXT)


def test_mjml_needs_its_template(tmp_path: Path) -> None:
    """A campaign without MJML says which file would give it."""
    mail = campaign(tmp_path, "email")
    (tmp_path / "template" / "email.mjml.j2").unlink()
    with pytest.raises(UsageError, match=r"Write email\.mjml\.j2 there"):
        export(mail, copy_of(mail), "mjml", CONTEXT)


def test_slots_without_a_column_are_named(tmp_path: Path) -> None:
    """An ad whose slots the table does not know is refused instead of losing them."""
    ad = campaign(tmp_path, "ad")
    edit(tmp_path, "template/ad.j2", "{{ slot.path_1 }}", "{{ slot.hook }}")
    edit(tmp_path, "template/ad.html.j2", "{{ slot.path_1 }}", "{{ slot.hook }}")
    edit(tmp_path, "campaign.toml", "[slots.path_1]", "[slots.hook]")
    edit(tmp_path, "copy.toml", "path_1", "hook")
    ad = Campaign.load(tmp_path)
    with pytest.raises(UsageError, match="Slot hook has no column"):
        export(ad, copy_of(ad), "csv")


def test_the_invented_products_addresses_are_named(tmp_path: Path) -> None:
    """Settings that still are the invented product's are listed until they are changed."""
    mail = campaign(tmp_path, "email")
    assert placeholders(mail) == (
        "[goal] landing_url", "[sender] email", "[sender] website", "[sender] postal_address",
    )  # fmt: skip
    own = replace(mail.sender, email="a@b.org", website="https://b.org", postal_address="B, 1 Real Road, Bath")
    assert placeholders(replace(mail, sender=own, goal=replace(mail.goal, landing_url="https://b.org"))) == ()


def invoke(*arguments: str) -> tuple[int, str, str, BaseException | None]:
    app = typer.Typer()
    app.command()(export_command)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr, result.exception


def test_the_command_prints_and_says_that_no_run_began(tmp_path: Path) -> None:
    """Before the first run the copy in the folder is exported, and that is said beside it."""
    write_campaign(tmp_path, "ad")
    code, out, err, _ = invoke("-w", str(tmp_path))
    assert (code, out.splitlines()[0].split(",")[0]) == (0, "Campaign")
    assert "No run has begun yet: this is copy.toml as it stands." in err
    assert "Still those of the invented product" in err


def test_a_run_that_was_refused_is_none(tmp_path: Path) -> None:
    """It leaves a ledger without runs, and the copy in the folder is exported as before the first run."""
    write_campaign(tmp_path, "ad")
    Ledger.open(tmp_path / ".autoresearch" / "ledger.db").close()
    code, out, err, _ = invoke("-w", str(tmp_path))
    assert (code, out.splitlines()[0].split(",")[0]) == (0, "Campaign")
    assert "No run has begun yet" in err


def write_history(folder: Path, baseline: str, kept: str) -> None:
    """Write the ledger of a run that kept one candidate and reverted the next."""
    rows = [(baseline, baseline, Outcome.KEPT), (kept, kept, Outcome.KEPT), (baseline, None, Outcome.REVERTED)]
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        ledger.add_run(Run(id="r", adapter="marketing", baseline_commit=baseline, created=AT))
        session = ledger.add_session(Session(run_id="r", started=AT))
        for number, (candidate, commit, outcome) in enumerate(rows):
            row = ledger.begin_experiment(Experiment(run_id="r", number=number, session_id=session.id))
            ledger.update_experiment(row.id, candidate_commit=candidate, kept_commit=commit)
            ledger.finish_experiment(row.id, outcome=outcome)


def test_the_command_exports_the_runs_winner(tmp_path: Path) -> None:
    """After a run it is the last kept copy, not the one that lies in the folder nor the last one tried."""
    write_campaign(tmp_path, "ad")
    start = Artifact.read(tmp_path, ("copy.toml",))
    won = start.replace({"copy.toml": start.files["copy.toml"].replace('"A Week in 25 Minutes"', '"The Winner"', 1)})
    store = Store.open(tmp_path)
    baseline = store.baseline("r", start, at=AT)
    write_history(tmp_path, baseline, store.commit(won, parent=baseline, message="Win", at=AT))
    code, out, _, error = invoke("-w", str(tmp_path), "--format", "json")
    assert code == 0, error
    assert json.loads(out)["slots"]["headline_2"] == "The Winner"
    code, out, _, _ = invoke("-w", str(tmp_path), "-f", "json", "--copy", str(tmp_path / "copy.toml"))
    assert json.loads(out)["slots"]["headline_2"] == "A Week in 25 Minutes"
    code, _, _, error = invoke("-w", str(tmp_path), "--run", "none")
    assert isinstance(error, UsageError)


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    """With -o the text goes to a file, and a file that cannot be written is the machine's fault."""
    write_campaign(tmp_path, "email")
    given = ("-w", str(tmp_path), "-f", "text", "--unsubscribe-url", "*|UNSUB|*", "-o")
    code, out, err, error = invoke(*given, str(tmp_path / "mail.txt"))
    assert (code, out) == (0, ""), error
    assert "Subject: Your rota in 25 minutes a week" in err
    assert "No more mail from us: *|UNSUB|*" in (tmp_path / "mail.txt").read_text(encoding="utf-8")
    assert isinstance(invoke(*given, str(tmp_path / "none" / "mail.txt"))[3], EnvironmentNotReadyError)


def test_the_command_needs_a_campaign(tmp_path: Path) -> None:
    """A folder without campaign.toml is refused with what to do."""
    error = invoke("-w", str(tmp_path))[3]
    assert isinstance(error, UsageError)
    assert "autoresearch init --adapter marketing" in str(error)


def test_each_page_and_each_audience_leaves_by_its_name(tmp_path: Path) -> None:
    """Without a name what everybody reads at `/`; JSON has all texts then, and those of one surface with its name."""
    made = Campaign.load(write_surfaces(tmp_path))
    copy = copy_of(made)
    pages = {name: export(made, copy, "html", CONTEXT, name) for name in ("", "pricing", "ads")}
    assert "From €39 a month" in pages["pricing"] and "Prices" in pages["pricing"]
    assert "behind the bar" in pages["ads"] and "behind the bar" not in pages[""]
    assert set(json.loads(export(made, copy, "json"))["slots"]) == set(copy.slots)
    assert set(json.loads(export(made, copy, "json", None, "pricing"))["slots"]) == {"price_note"}
    assert "behind the bar" in json.loads(export(made, copy, "json", None, "ads"))["slots"]["subhead"]
    with pytest.raises(UsageError, match="no surface 'prices'; there are hero, reasons, pricing, ads"):
        export(made, copy, "html", CONTEXT, "prices")


def test_help_names_the_table_of_surfaces_and_cuts_nothing_off() -> None:
    """What stands in brackets is text and no markup, and each command has a sentence that fits its line."""
    helped = CliRunner().invoke(app, ["export", "--help"])
    assert "[surfaces]" in helped.output
    assert "..." not in CliRunner().invoke(app, ["--help"]).output.partition("Commands:")[2]
