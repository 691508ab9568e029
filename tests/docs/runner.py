"""Runs the blocks of a page as its reader would: top to bottom, in one terminal, in a folder that holds nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.docs.pages import ROOT, SHELL, Block

SECONDS = 240
"""The longest that one block may take."""
SLOW_SECONDS = 1200
"""The longest that one marked `slow` may take."""

# A reader has one terminal: the folder and the exported variables of a block are there for the next one.
_TERMINAL = """\
set -euo pipefail
[ ! -f "$DOCS_STATE/variables" ] || . "$DOCS_STATE/variables"
[ ! -f "$DOCS_STATE/folder" ] || cd "$(cat "$DOCS_STATE/folder")"
. "$DOCS_DATA/given.sh"
trap 'declare -px > "$DOCS_STATE/variables"; pwd > "$DOCS_STATE/folder"' EXIT
autoresearch() {
    case $1 in
        run | compare) command autoresearch "$@" "${run_with[@]}" ;;
        *) command autoresearch "$@" ;;
    esac
}
"""


class Terminal:
    """A scratch folder with a virtual environment of its own that sees the packages of this one; no registry."""

    def __init__(self, place: Path) -> None:
        self.folder, self.state = place / "work", place / "state"
        self.folder.mkdir()
        self.state.mkdir()
        self.bin = _environment(place / "venv")
        self.printed = ""

    def run(self, block: Block) -> None:
        """Do with a block what its marks and its language say.

        Raises:
            AssertionError: If it fails, or a text is not what was printed.
        """
        if commands := block.marks.get("first"):
            self._shell(block, commands, "")
        if name := block.marks.get("file"):
            path = self._here() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif "not run" in block.marks:
            return
        elif block.language == SHELL:
            text = _with_words(block.text, block.marks.get("here", ""))
            self.printed = self._shell(block, text, block.marks.get("run with", ""))
        elif block.language == "python":
            argv = [str(self.bin / "python"), "-W", "error", "-c", block.text]
            self.printed = self._call(block, argv, self._here(), block.text)
        elif "output" in block.marks:
            assert matches(block.text, self.printed), (
                f"{block} shows\n{block.text}\nand this was printed:\n{self.printed}"
            )

    def _here(self) -> Path:
        said = self.state / "folder"
        return Path(said.read_text(encoding="utf-8").strip()) if said.exists() else self.folder

    def _shell(self, block: Block, script: str, run_with: str) -> str:
        return self._call(block, ["bash", "-c", f"run_with=({run_with})\n{_TERMINAL}{script}"], self.folder, script)

    def _call(self, block: Block, argv: list[str], folder: Path, script: str) -> str:
        paths = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        environment = {
            **os.environ,
            "PATH": paths,
            "DOCS_STATE": str(self.state),
            "DOCS_DATA": str(ROOT / "tests" / "docs" / "data"),
            "REPOSITORY": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        seconds = SLOW_SECONDS if "slow" in block.marks else SECONDS
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            raise AssertionError(f"{block} took longer than {seconds} s and had printed:\n{printed}") from None
        assert process.returncode == 0, f"{block} ended with {process.returncode}:\n{script}\n{printed}"
        return printed


def _environment(folder: Path) -> Path:
    """Make a virtual environment that sees the packages of ours, and return its folder of programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    programs, packages = folder / "bin", next((folder / "lib").glob("python*/site-packages"))
    here = sysconfig.get_path("purelib")
    # addsitedir, and not the path alone: a package that is installed editable is found by a .pth file there.
    (packages / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    for name, module in {"autoresearch": "autoresearch", "pip": "pip", "pytest": "pytest"}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    (programs / "python3").unlink(missing_ok=True)
    (programs / "python3").symlink_to("python")
    return programs


def _with_words(script: str, here: str) -> str:
    """Return a script in which a word stands for the output of a command; `here` is `WORD is COMMAND` or empty."""
    if not here:
        return script
    word, _, command = here.partition(" is ")
    return f"{word}=$({command})\n" + re.sub(rf"\b{word}\b", f"${word}", script)


def matches(shown: str, printed: str) -> bool:
    """Say whether lines follow one another in what was printed; `...` stands for anything, and runs of blanks for one.

    What was printed before the first line shown, and after the last, does not count.
    """
    wanted = [" ".join(line.split()) for line in shown.strip().splitlines()]
    got = "\n".join(" ".join(line.split()) for line in printed.splitlines())
    pattern = "\n".join(".*?".join(re.escape(part) for part in line.split("...")) for line in wanted)
    return re.search(rf"^{pattern}$", got, re.DOTALL | re.MULTILINE) is not None
