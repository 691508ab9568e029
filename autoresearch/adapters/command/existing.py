"""Loops that were set up for other tools, read as options of the command adapter: helix.yaml, .auto/, program.md.

Only what such a file says is taken over; what it does not say is asked for, and what has no counterpart is named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoresearch.adapters.command.checkout import ignored
from autoresearch.core import UsageError

_LOWER = re.compile(r"\b(?:lower|lowest|minimi[sz]e)\b", re.IGNORECASE)
_HIGHER = re.compile(r"\b(?:higher|highest|maximi[sz]e)\b", re.IGNORECASE)
_ORIGINAL_TIMEOUT: Final = "600"
"""Seconds after which program.md of karpathy's repository has a run killed, where a descendant does not say."""


@dataclass(frozen=True, slots=True)
class Existing:
    """A loop that was set up for another tool.

    Attributes:
        root: Folder of the checkout.
        kind: What it was recognised as.
        options: What it says, as options of the command adapter.
        notes: What a person should know: what was left out or is needed besides.
    """

    root: Path
    kind: str
    options: Mapping[str, str]
    notes: tuple[str, ...]


def read_existing(path: Path) -> Existing:
    """Read a loop from `helix.yaml`, `program.md`, a folder `.auto`, or a checkout that holds one of them.

    Raises:
        UsageError: If there is none, several could be meant, or it cannot be read.
    """
    path = path.resolve()
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return _from_helix(path)
    if path.is_file() and path.suffix == ".md":
        return _from_program(path.parent, path)
    if (path / "measure.sh").is_file():
        return _from_auto(path)
    found = _inside(path)
    if not found:
        raise UsageError(
            f"{path} is no loop that this release can read: it looks for helix.yaml, .auto/measure.sh, and program.md "
            "with train.py.\nSet it up with autoresearch run --adapter command --edit ... --measure ... --metric ..."
        )
    if len(found) > 1:
        names = " and ".join(str(item.relative_to(path)) for item in found)
        raise UsageError(f"{path} holds {names}.\nName the one that is meant: --from {found[0]}")
    return read_existing(found[0])


def _inside(folder: Path) -> list[Path]:
    found = [folder / "helix.yaml"] if (folder / "helix.yaml").is_file() else []
    found += [folder / ".auto"] if (folder / ".auto" / "measure.sh").is_file() else []
    # helix.yaml has a program.md beside it, which says the same in prose.
    program = folder / "program.md"
    return found + ([program] if not found and program.is_file() else [])


# helix.yaml


def _from_helix(path: Path) -> Existing:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {error}\nMend it and give the command again.") from error
    scope, metrics = _table(data, "scope", path), _table(data, "metrics", path)
    primary, evaluate = _table(metrics, "primary", path), _table(metrics, "evaluate", path)
    patterns, guard = _optional(evaluate, "patterns", path), _optional(metrics, "quality_guard", path)
    if evaluate.get("output_format", "pattern") != "pattern":
        raise UsageError(
            f"{path}: the output_format {evaluate['output_format']!r} is not one that this release reads.\n"
            "Say how the number is found: --pattern, --json-path or --summary, with the other flags of run."
        )
    options = {
        "edit": _joined(_names(scope, "editable", path)),
        "read_only": _joined(name for name in _names(scope, "readonly", path) if name != path.name),
        "measure": str(evaluate.get("command", "")),
        "timeout": str(evaluate.get("timeout_seconds", "")),
        "metric": str(primary.get("name", "")),
        "direction": str(primary.get("optimize", "")),
        "pattern": str(patterns.get("primary", "")),
    }
    notes = [f"left out: {name}" for name in sorted(map(str, set(data) - {"name", "scope", "metrics", "requirements"}))]
    if guard:
        name, most = guard.get("name"), guard.get("max_degradation", 0)
        if not name or isinstance(most, bool) or not isinstance(most, int | float):
            raise UsageError(
                f"{path}: quality_guard must have a name, and a number as max_degradation where it has one.\n"
                "Mend it and give the command again."
            )
        relation = ">=-" if guard.get("optimize") == "maximize" else "<=+"
        options["guard"], share = f"{name}{relation}{most}", f"{name}{relation}{100 * most:g}%"
        options[f"pattern.{name}"] = str(patterns.get("quality_guard", ""))
        notes.append(f"max_degradation is taken in the unit of {name}; as a share it would be --guard '{share}'")
    if "gpu" in _optional(data, "requirements", path):
        options["gpu"] = "true"
    return _finished(path.parent, f"helix.yaml of {data.get('name', path.parent.name)}", options, notes)


def _table(data: Any, name: str, path: Path) -> dict[str, Any]:
    found = data.get(name) if isinstance(data, dict) else None
    if not isinstance(found, dict):
        raise UsageError(
            f"{path} has no table {name!r}, so it is no helix.yaml that this release can read.\n"
            "Say instead what it means: autoresearch run --adapter command --edit ... --measure ... --metric ..."
        )
    return found


def _optional(data: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    return _table(data, name, path) if data.get(name) else {}


def _names(data: dict[str, Any], name: str, path: Path) -> list[str]:
    """Return a list of file names; empty where there is none."""
    found = data.get(name) or []
    if not isinstance(found, list):
        raise UsageError(f"{path}: {name} must be a list of files, not {found!r}.\nMend it and give the command again.")
    return [str(item) for item in found]


# .auto/


def _from_auto(folder: Path) -> Existing:
    root = folder.parent
    prompt = _text(folder / "prompt.md")
    header = _log_header(folder / "log.jsonl")
    primary = re.search(r"\*\*Primary:?\*\*:?\s*`?([\w.%/-]+)`?\s*(?:\(([^)]*)\))?", prompt)
    about = primary[2] or "" if primary else ""
    unit = about.split(",")[0].strip() if "," in about else ""
    direction = {"lower": "minimize", "higher": "maximize"}.get(str(header.get("bestDirection")), _direction(about))
    options = {
        "edit": _joined(_bullets(prompt, "Files in Scope")),
        "read_only": _joined(name for name in _bullets(prompt, "Off Limits") if (root / name).exists()),
        "measure": "bash .auto/measure.sh",
        "check": "bash .auto/checks.sh" if (folder / "checks.sh").is_file() else "",
        "metric": str(header.get("metricName") or (primary[1] if primary else "")),
        "unit": str(header.get("metricUnit") or ("" if unit == "unitless" else unit)),
        "direction": direction,
    }
    notes = []
    if ignored(root, [".auto/measure.sh"]):
        options["link"] = ".auto"
        notes.append("git ignores .auto, so it is used where it lies: a change of it during a run is not noticed")
    config = _object(_text(folder / "config.json") or "{}", folder / "config.json")
    if config.get("working_dir") not in (None, "", "."):
        options["measure"] = f"cd {config['working_dir']} && bash .auto/measure.sh"
    return _finished(root, ".auto", options, notes)


def _log_header(path: Path) -> dict[str, Any]:
    """Return the newest header line of a log; empty where there is none."""
    header: dict[str, Any] = {}
    for line in _text(path).splitlines():
        if '"config"' in line:
            data = _object(line, path)
            header = data if data.get("type") == "config" else header
    return header


def _object(text: str, path: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UsageError: If the text is none.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}.\nMend it and give the command again.") from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{path} holds {text[:40]!r} where an object was expected.\nMend it and give the command again."
        )
    return found


def _bullets(text: str, heading: str) -> list[str]:
    """Return the first `quoted` path of every bullet under a heading."""
    section = re.search(rf"^#+ *{heading}\s*$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    found = re.findall(r"^\s*[-*]\s+`([^`]+)`", section[1] if section else "", re.MULTILINE)
    return [f"{name}**" if name.endswith("/") else name for name in found]


# program.md, as in karpathy's repository and its many descendants


def _from_program(root: Path, program: Path) -> Existing:
    text = program.read_text(encoding="utf-8", errors="replace")
    editable = re.findall(r"`([\w./-]+)`[^\n]*(?:file you modify|only file you edit)", text)
    fixed = re.findall(r"`([\w./-]+\.py)`[^\n]*(?:[Dd]o not modify|read-only)", text)
    command = re.search(r"(?:launch|run) it simply as:?\s*`([^`]+)`", text) or re.search(
        r"`((?:uv run|python3?) [\w./-]+)[^`]*`", text
    )
    metric = re.search(r'grep "\^(\w+):', text)
    goal = re.search(r"(?:get|reach) the (lowest|highest) `?(\w+)", text)
    killed = re.search(r"exceeds (\d+) minutes", text)
    options = {
        "edit": _joined(dict.fromkeys(editable)) or _joined(["train.py"] if (root / "train.py").is_file() else []),
        "read_only": _joined(name for name in dict.fromkeys(fixed) if name not in editable),
        "measure": command[1].partition(" >")[0].strip() if command else "",
        "metric": metric[1] if metric else goal[2] if goal else "",
        "direction": _direction(goal[1] if goal else text),
        "timeout": str(60 * int(killed[1])) if killed else _ORIGINAL_TIMEOUT,
        "summary": "true",
    }
    notes, data = [], _data_folder(root, text)
    if data:
        options["link"] = data
        if not Path(data).expanduser().exists():
            notes.append(f"{data} is missing: prepare the data first, as program.md says")
    if (root / "train.py").is_file() and "torch" in _text(root / "train.py"):
        options["gpu"] = "true"
    return _finished(root, "program.md", options, notes)


def _data_folder(root: Path, program: str) -> str:
    """Return the folder below the home that the data was prepared into, as `~/.cache/autoresearch`; empty without."""
    found = re.search(r"~/\.cache/([\w.-]+)", program)
    found = found or re.search(r"""["']\.cache["'],\s*["']([\w.-]+)["']""", _text(root / "prepare.py"))
    return f"~/.cache/{found[1]}" if found else ""


# What all of them share


def _finished(root: Path, kind: str, options: dict[str, str], notes: list[str]) -> Existing:
    """Let `uv run` use the environment that is there: a copy of the checkout has none, and no network to make one."""
    called = options.get("measure", "").partition("uv run ")
    direct = f"{called[0]}.venv/bin/python {called[2].removeprefix('python ')}"
    link = _joined(filter(None, [options.get("link", ""), ".venv"]))
    if called[1] and (root / ".venv" / "bin" / "python").exists():
        options.update(measure=direct, link=link)
        notes.append("uv run became .venv/bin/python, with .venv used where it lies")
    elif called[1]:
        # The workspace is written all the same, so that giving this command again would be refused.
        notes.append(
            "uv run finds no .venv here: make it with uv sync, then begin with "
            f"autoresearch run --measure {shlex.quote(direct)} --link {shlex.quote(link)}"
        )
    return Existing(root, kind, {name: text for name, text in options.items() if text}, tuple(notes))


def _direction(words: str) -> str:
    """Return which way is better if the words say one way only."""
    lower, higher = bool(_LOWER.search(words)), bool(_HIGHER.search(words))
    return "" if lower == higher else "minimize" if lower else "maximize"


def _joined(names: Iterable[str]) -> str:
    return ",".join(names)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
