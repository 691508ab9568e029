"""`autoresearch marketing ...`: one module for each command. Heavy imports happen inside the commands."""

from __future__ import annotations

import typer

from autoresearch.adapters.marketing.commands.export import export
from autoresearch.adapters.marketing.commands.forget import forget
from autoresearch.adapters.marketing.commands.import_ import import_
from autoresearch.adapters.marketing.commands.map import map_
from autoresearch.adapters.marketing.commands.opinion import opinion
from autoresearch.adapters.marketing.commands.plan import plan
from autoresearch.adapters.marketing.commands.replies import replies
from autoresearch.adapters.marketing.commands.send import send
from autoresearch.adapters.marketing.commands.serve import kill, serve
from autoresearch.adapters.marketing.commands.suppress import suppress
from autoresearch.adapters.marketing.commands.totals import totals

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Pages, ads and e-mail judged on people: serve, plan, map, export.",
)
app.command(short_help="Serve the page; assign visitors and count them.")(serve)
app.command(short_help="Show everybody the control at once, until --off.")(kill)
app.command(short_help="Say how long tests take here, and what cannot be tested.")(plan)
app.command(short_help="Say what the kept changes are worth together.")(totals)
app.command("map", short_help="Show what kinds of text do better, over all tests.")(map_)
app.command(short_help="Order the options of copy.toml, and score that opinion.")(opinion)
app.command("import", short_help="Take past tests in, for replay and for the map.")(import_)
app.command(short_help="Write the winner for production.")(export)
app.command(short_help="Say who would get which mail; with --send write to them.")(send)
app.command(short_help="Read the mailbox and write down what answers say.")(replies)
app.command(short_help="Write to an address never again.")(suppress)
app.command(short_help="Erase a person's events.")(forget)
