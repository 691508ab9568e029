"""The site: a server that shows pages, assigns visitors, and writes down what they do before it answers.

pages.py        what a page looks like in each arm, to each audience
settings.py     the table [site] of campaign.toml
robots.py       who is not a person
visitors.py     what a request's headers say about who asks
views.py        the fast path: one page view, exposure written first
ingest.py       POST /events and webhooks: other people's events
granian_server.py   granian in place of uvicorn
patience.py     how long a connection may keep us waiting
app.py          the application: everything else, and the switchboard
selftest.py     does a cache between us and the visitors mix arms?
server.py       workers, the campaign's lock, restarts
provider.py     an OpenFeature provider for Python programs
snippet.js      for pages that another server renders
"""

from __future__ import annotations

from autoresearch.core import EnvironmentNotReadyError


def require_extra(engine: str = "uvicorn") -> None:
    """Raise `EnvironmentNotReadyError` with the install command unless everything a server needs is installed."""
    try:
        import crawleruseragents  # noqa: F401
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EnvironmentNotReadyError(
            f"Serving needs the package {error.name}, which is not installed.\n"
            "Install it: pip install 'autoresearch[marketing]'"
        ) from error
    if engine == "granian":
        try:
            import granian  # noqa: F401
        except ImportError as error:
            raise EnvironmentNotReadyError(
                "granian is not installed.\nInstall it: pip install 'autoresearch[marketing,granian]', or leave "
                "--server out: uvicorn serves then."
            ) from error
