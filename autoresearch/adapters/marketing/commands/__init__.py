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
    help="Pages, ads and e-mail judged on people: serve, plan, map, export.",
)
app.command()(serve)
app.command()(kill)
app.command()(plan)
app.command()(totals)
app.command("map")(map_)
app.command()(opinion)
app.command("import")(import_)
app.command()(export)
app.command()(send)
app.command()(replies)
app.command()(suppress)
app.command()(forget)
