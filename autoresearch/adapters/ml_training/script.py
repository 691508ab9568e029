"""What a training script must have, found out without running it."""

from __future__ import annotations

import ast
from typing import Final

from autoresearch.core.errors import CandidateError

_MAX_CONTEXT: Final = 1 << 20


def check_script(text: str | None) -> None:
    """Refuse a script that does not parse, or lacks what the harness and the evaluator call.

    Args:
        text: Text of `train.py`; None where the file is missing.

    Raises:
        CandidateError: With one sentence that says what is wrong, and where.
    """
    if text is None:
        raise CandidateError("There is no train.py; the artifact must keep that file.")
    tree = _parsed(text)
    _demand_build_model(tree)
    _demand_context(tree)
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, call in (("open_session", "harness.open_session()"), ("finish", "session.finish(model)")):
        if name not in called:
            raise CandidateError(f"train.py never calls {call}; without it there is no training to measure.")


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text, "train.py")
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise CandidateError(f"train.py{line}: {error.msg}; the script does not parse.") from error
    except ValueError as error:  # a null byte
        raise CandidateError(f"train.py does not parse: {error}.") from error


def _demand_build_model(tree: ast.Module) -> None:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "build_model"]
    if not functions:
        raise CandidateError(
            "train.py has no function build_model(vocab_size); the evaluator builds the model by calling it."
        )
    arguments = functions[-1].args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    takes_one = len(arguments.posonlyargs) + len(arguments.args) >= 1 or arguments.vararg is not None
    needs_keywords = any(default is None for default in arguments.kw_defaults)
    if required > 1 or not takes_one or needs_keywords:
        raise CandidateError(
            f"train.py, line {functions[-1].lineno}: build_model must be callable as build_model(vocab_size)."
        )


def _demand_context(tree: ast.Module) -> None:
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "CONTEXT"
    ]
    if not values or values[-1] is None:
        raise CandidateError(
            "train.py has no constant CONTEXT; the evaluator cuts the text into windows of that length."
        )
    value = values[-1]
    if isinstance(value, ast.Constant) and not (type(value.value) is int and 1 <= value.value <= _MAX_CONTEXT):
        raise CandidateError(f"train.py, line {value.lineno}: CONTEXT must be a positive whole number of tokens.")
