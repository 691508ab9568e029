"""`autoresearch mcp`: the program as tools of a coding agent."""

from __future__ import annotations

from autoresearch.cli.options import WorkspaceOption
from autoresearch.core.errors import EnvironmentNotReadyError


def mcp(workspace: WorkspaceOption = None) -> None:
    """Serve this workspace to a coding agent over the Model Context Protocol, on standard input and output.

    The agent starts this itself; docs/mcp.md says how it is told to. Ends with its standard input.
    """
    try:
        from autoresearch.mcp_server.server import serve
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("mcp", "mcp_types", "anyio"):
            raise
        raise EnvironmentNotReadyError(
            f"The package {package} is not installed, and serving a coding agent needs it.\n"
            'Install it: pip install "autoresearch[mcp]"'
        ) from error
    serve(workspace)
