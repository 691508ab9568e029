"""Any text files of a git checkout, judged by any command that prints a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoresearch.adapters.command.adapter import CommandAdapter


def create_adapter(options: Mapping[str, str]) -> CommandAdapter:
    """Return the adapter; see `autoresearch.adapters.command.options.Options` for what may be set.

    Raises:
        UsageError: If an option is unknown, missing or makes no sense.
    """
    from autoresearch.adapters.command.adapter import CommandAdapter
    from autoresearch.adapters.command.options import Options

    return CommandAdapter(Options.parse(options))
