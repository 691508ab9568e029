"""A tool that takes its own arguments and no others, and says in a sentence what is wrong with a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import ConfigDict, ValidationError

__all__ = ["StrictTool", "ToolError"]


class StrictTool(Tool):
    """A tool as the protocol's package makes it, less two habits.

    That package drops arguments it does not know, so that a mistyped limit would start a run without one; and it puts
    the validator's report, or a prefix, before what went wrong.
    """

    @classmethod
    def made_of(cls, function: Callable[..., Any], annotations: ToolAnnotations) -> StrictTool:
        """Return the tool that a function is."""
        tool = cls.from_function(function, annotations=annotations, structured_output=True)
        assert isinstance(tool, StrictTool)
        known = tool.fn_metadata.arg_model
        tool.fn_metadata.arg_model = type(known.__name__, (known,), {"model_config": ConfigDict(extra="forbid")})
        tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
        return tool

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Run the tool; see `Tool.run`."""
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(self._wrong(error.__cause__)) from error.__cause__
            if isinstance(error.__cause__, ToolError):  # one of ours, whose words are whole
                raise ToolError(str(error.__cause__)) from error.__cause__
            raise

    def _wrong(self, error: ValidationError) -> str:
        """Return what is wrong with the arguments, one sentence each; what was given is not repeated."""
        said = []
        for fault in error.errors(include_input=False, include_url=False):
            name = ".".join(map(str, fault["loc"]))
            what = "there is no such argument" if fault["type"] == "extra_forbidden" else fault["msg"]
            said.append(f"{name}: {what}.")
        takes = ", ".join(self.parameters["properties"]) or "none"
        return f"{self.name} cannot be called like this. {' '.join(said)}\nIts arguments are {takes}."
