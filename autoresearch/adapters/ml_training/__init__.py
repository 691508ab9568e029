"""The ml adapter: a language-model trainer judged by bits per byte. Importing this imports neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.adapter import MlAdapter

__all__ = ["create_adapter"]


def create_adapter(options: Mapping[str, str]) -> MlAdapter:
    """Return the ml adapter; the entry point `ml` names this function.

    Args:
        options: See `autoresearch.adapters.ml_training.adapter.Options`.

    Raises:
        UsageError: If an option is unknown or its value makes no sense.
    """
    from autoresearch.adapters.ml_training.adapter import MlAdapter, Options

    return MlAdapter(Options.parse(options))
