"""Leave it running overnight and wake up to improvements that are real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoresearch.version import __version__

if TYPE_CHECKING:
    from autoresearch.core.driver import run

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> object:
    # `run` is resolved on first use: the command line answers in half a second only while langgraph stays unimported.
    if name == "run":
        from autoresearch.core.driver import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
