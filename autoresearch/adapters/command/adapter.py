"""The adapter itself: lays a candidate out in a copy of its checkout, checks it, runs the command, reads the number."""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.command.checkout import STATE, Base, Tree, copy_checkout, ignored, lay_out, take_base
from autoresearch.adapters.command.options import SEED_MARK, SPLIT_MARK, Options
from autoresearch.adapters.command.reading import Numbers, read_numbers
from autoresearch.core import (
    Artifact,
    CandidateError,
    CheckFailedError,
    EnvironmentNotReadyError,
    FileHashes,
    Guard,
    InvalidCandidateError,
    Measurement,
    Metric,
    RunContext,
    Scope,
    Split,
    UsageError,
    Workspace,
)
from autoresearch.core.artifact import in_scope
from autoresearch.core.executor import Finished, Limits, run_process, tail
from autoresearch.core.sandbox import Confinement, Level

_OUTPUT_MB = 16.0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What `prepare` found: the copy of the checkout, and what is used where it lies."""

    root: Path
    base: Base
    links: Mapping[str, Path]
    shown: tuple[Path, ...]
    at_home: Mapping[str, Path]

    def prelude(self, level: Level) -> str:
        """Return what puts things linked below the home into the empty one that a sandbox gives."""
        if not level.confines:
            return ""
        return "".join(
            f'mkdir -p "$HOME"/{shlex.quote(str(Path(name).parent))} && '
            f'ln -s {shlex.quote(str(place))} "$HOME"/{shlex.quote(name)} && '
            for name, place in self.at_home.items()
        )


class CommandAdapter:
    """Files of a git checkout, judged by a command that prints a number.

    Every measurement gets a copy of the checkout of its own with the candidate's files in place. What is not editable
    is copied once per session, so that work in the checkout goes on undisturbed, and must not change while a command
    runs. Where `{split}` is not among the command's words there is no holdout.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._hashes = FileHashes()
        self._prepared: _Prepared | None = None
        self._passed: set[str] = set()

    @property
    def metric(self) -> Metric:
        """As the options say."""
        return self.options.metric

    @property
    def scope(self) -> Scope:
        """As the options say."""
        return Scope(self.options.edit, self.options.read_only)

    @property
    def in_checkout(self) -> bool:
        """The workspace is the checkout."""
        return True

    @property
    def guards(self) -> Sequence[Guard]:
        """As the options say."""
        return self.options.guards

    @property
    def splits(self) -> frozenset[Split]:
        """Both where the command is told which; else what keep decisions see."""
        return frozenset(Split) if self.options.has_holdout else frozenset({Split.SEARCH})

    # Preparing

    def prepare(self, workspace: Workspace) -> None:
        """Copy the checkout, files that git ignores left out.

        Raises:
            UsageError: If the folder is no checkout, nothing may change, or a glob catches what git ignores.
            EnvironmentNotReadyError: If something that is to be linked is missing, or the copy cannot be written.
        """
        root = workspace.path
        editable = self._editable(root)
        links, shown = self._links(root, editable)
        store = root / STATE / "command"
        base = take_base(root, store, editable=editable, link=tuple(links), hashes=self._hashes)
        at_home = {name[2:]: Path(name).expanduser() for name in self.options.link if name.startswith("~/")}
        self._prepared = _Prepared(root, base, links, shown, at_home)

    def _editable(self, root: Path) -> Artifact:
        editable = Artifact.read(root, self.options.edit)
        if not editable.files:
            raise UsageError(
                f"Nothing in {root} matches {', '.join(self.options.edit)}, so there is nothing to improve.\n"
                "Paths count from the folder that is improved; name the files with --edit."
            )
        named = {name for name in editable.files if name in self.options.edit}
        caught = ignored(root, [name for name in editable.files if name not in named])
        if caught:
            raise UsageError(
                f"{', '.join(self.options.edit)} also matches {len(caught)} files that git ignores, {caught[0]} for "
                "one.\nNarrow --edit so that it leaves them out: 'src/**/*.py', '*.py'."
            )
        return editable

    def _links(self, root: Path, editable: Artifact) -> tuple[dict[str, Path], tuple[Path, ...]]:
        """Return relative path -> place of what is used where it lies, and all that must be shown for it."""
        links: dict[str, Path] = {}
        shown: list[Path] = []
        for name in self.options.link:
            place = Path(os.path.normpath(root / Path(name).expanduser()))
            if not place.exists():
                raise EnvironmentNotReadyError(
                    f"The option link names {name}, and there is no {place}.\nPut it there, or leave it out."
                )
            caught = [path for path in editable.files if (root / path).is_relative_to(place)]
            if caught and place.is_relative_to(root):
                raise UsageError(
                    f"The option link names {name}, and {caught[0]} lies there and may change.\n"
                    "Link what is beside it; a linked file is the same for every candidate."
                )
            real = place.resolve()  # in a copy of the checkout a link leads there, which a sandbox does not follow
            if place.is_relative_to(root):
                links[place.relative_to(root).as_posix()] = real
            shown += [real, *_interpreter(real)]
        return links, tuple(shown)

    def evaluator_fingerprint(self) -> str:
        """Return a hash over everything of the checkout that may not change; linked files are not part of it.

        Raises:
            RuntimeError: Before `prepare`.
        """
        return self._ready().base.fingerprint(self._hashes)

    def changed_since(self, fingerprint: str) -> Sequence[str]:
        """Return the files in which the checkout differs from what an earlier session copied."""
        return self._ready().base.changed_since(fingerprint, self._hashes)

    def copy_checkout(self, checkout: Path, folder: Path) -> None:
        """Copy the checkout for a run of its own; see `autoresearch.core.CopiesCheckout`."""
        inside = [name for name in map(os.path.normpath, self.options.link) if not name.startswith(("/", "~", ".."))]
        copy_checkout(checkout, folder, link=inside)

    # Measuring

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        """Check the candidate, then run the command as often as `repeat` says; the value is the median.

        See `autoresearch.core.Adapter.measure`.
        """
        if split not in self.splits:
            raise UsageError(
                f"The command cannot measure the {split.value} split: it does not say {SPLIT_MARK} anywhere.\n"
                "Put it where your program is told which data to use: python bench.py --data {split}"
            )
        began = time.monotonic()
        self._check(artifact, seed, split, run)
        count = self.options.repeat
        numbers, finished = [], []
        for index in range(count):
            run.progress(index / count, f"measuring {index + 1} of {count}" if count > 1 else "measuring")
            ran, output = self._run(
                self.options.measure, f"measure-{index}", artifact, seed * count + index, split, run
            )
            if ran.stopped is not None or ran.returncode != 0:
                raise CandidateError(f"The command {ran.ending}.", log_tail=tail(run.log))
            numbers.append(self._numbers(output, run))
            finished.append(ran)
        return Measurement(
            value=statistics.median(found.value for found in numbers),
            seed=seed,
            seconds=time.monotonic() - began,
            secondary=_secondary(numbers, finished),
        )

    def _check(self, artifact: Path, seed: int, split: Split, run: RunContext) -> None:
        """Run the check, once per session for each candidate that passes it."""
        fingerprint = Artifact.read(artifact, ("**",)).fingerprint if self.options.check else ""
        if not self.options.check or fingerprint in self._passed:
            return
        run.progress(0.0, "checking")
        ran, _ = self._run(self.options.check, "check", artifact, seed, split, run)
        if ran.stopped is not None or ran.returncode != 0:
            raise CheckFailedError(f"{self.options.check} {ran.ending}", log_tail=tail(run.log))
        self._passed.add(fingerprint)

    def _numbers(self, output: str, run: RunContext) -> Numbers:
        try:
            return read_numbers(output, self.options)
        except InvalidCandidateError as error:
            error.log_tail = tail(run.log)
            raise
        except CandidateError as error:
            dropped = len(output) > _OUTPUT_MB * (1 << 20)
            hint = (
                f" It printed more than the {_OUTPUT_MB:g} MiB that are read; print less before it." if dropped else ""
            )
            raise CandidateError(f"{error}{hint}", log_tail=tail(run.log)) from error

    def _run(
        self, command: str, name: str, artifact: Path, seed: int, split: Split, run: RunContext
    ) -> tuple[Finished, str]:
        """Run one command in a tree of its own; return how it ended and what it printed."""
        ready = self._ready()
        place = run.scratch / name
        shutil.rmtree(place, ignore_errors=True)  # a measurement that was killed may have left it
        tree = lay_out(ready.base, artifact, place / "tree", ready.links)
        words = command.replace(SEED_MARK, str(seed)).replace(SPLIT_MARK, split.value)
        before = _announce(run.log, words)
        finished = run_process(
            ["/bin/sh", "-c", ready.prelude(Level(run.sandbox)) + words],
            cwd=tree.folder,
            log=run.log,
            limits=Limits(
                run.budget_seconds or self.options.timeout_seconds,
                memory_mb=self.options.memory_mb,
                output_mb=_OUTPUT_MB,
            ),
            env=_environment(ready.root, tree.folder),
            level=Level(run.sandbox),
            confinement=Confinement(
                readable=ready.shown,
                writable=(place,),
                hidden=(ready.root / STATE, *self._originals(ready, artifact)),
                gpu=self.options.gpu or (run.device or "cpu").partition(":")[0] != "cpu",
            ),
        )
        output = _since(run.log, before)
        self._demand_untouched(tree, name)
        shutil.rmtree(place, ignore_errors=True)  # leftovers cost space, nothing else
        return finished, output

    def _originals(self, ready: _Prepared, artifact: Path) -> tuple[Path, ...]:
        """Return the checkout's own copies of the candidate's files, which a command must not find by accident.

        An editable install of the package leads Python to them, and then every candidate would measure the same.
        """
        paths = (ready.root / path.relative_to(artifact) for path in artifact.rglob("*") if path.is_file())
        return tuple(path for path in paths if path.is_file())

    def _demand_untouched(self, tree: Tree, name: str) -> None:
        """Refuse a candidate that changed what judges it."""
        changed = [path for path in tree.changed() if not in_scope(path, self.options.writes)]
        if changed:
            what = "check" if name == "check" else "command"
            raise InvalidCandidateError(
                f"{', '.join(changed[:3])} changed while the {what} ran, and only {', '.join(self.options.edit)} may "
                f"change. Where your own program writes there, say so: --set writes='{changed[0]}'"
            )

    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise RuntimeError("CommandAdapter.prepare must be called before anything is measured.")
        return self._prepared

    # What the adapter offers besides

    def brief(self) -> str:
        """Explain the subject to a language model."""
        options, metric = self.options, self.options.metric
        lines = [
            f"The artifact is {', '.join(options.edit)} of a git checkout. It is measured by `{options.measure}` in a "
            f"fresh copy of the checkout, which reports {metric.name}; {metric.direction.value} it.",
        ]
        if options.check:
            lines.append(f"A change is refused when `{options.check}` does not end with exit code 0.")
        if options.guards:
            lines.append("Guarded, compared with the baseline: " + ", ".join(map(_guard_words, options.guards)) + ".")
        lines.append(
            f"A run of the command may take {options.timeout_seconds:g} seconds. Never print the metric yourself: a "
            "second report makes the candidate invalid."
        )
        return "\n".join(lines)


def _guard_words(guard: Guard) -> str:
    sign = "<=" if guard.at_most else ">="
    if guard.kind == "relative":
        return f"{guard.name} {sign} {100 * guard.limit:+g} %"
    return f"{guard.name} {sign} {guard.limit:{'+' if guard.kind == 'difference' else ''}g}"


def _secondary(numbers: Sequence[Numbers], finished: Sequence[Finished]) -> dict[str, float]:
    """Return everything beside the value: medians over the repetitions of what each of them had."""
    shared = set.intersection(*(set(found.others) for found in numbers))
    secondary = {name: statistics.median(found.others[name] for found in numbers) for name in sorted(shared)}
    secondary["command_seconds"] = statistics.median(ran.seconds for ran in finished)
    secondary["command_cpu_seconds"] = statistics.median(ran.cpu_seconds for ran in finished)
    if len(numbers) > 1:
        secondary["repeat_sd"] = statistics.stdev(found.value for found in numbers)
    return secondary


def _interpreter(place: Path) -> list[Path]:
    """Return where the Python of a virtual environment comes from, which its links lead to."""
    try:
        lines = (place / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    values = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    home = Path(values.get("home", ""))
    return [home.parent.resolve()] if home.is_absolute() and home.is_dir() else []


def _environment(root: Path, tree: Path) -> dict[str, str]:
    """Return what leads programs to the tree instead of the checkout that it was copied from.

    PYTHONPATH comes before what an editable install of the checkout's own package leads to.
    """
    kept = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    moved = [str(tree / Path(entry).relative_to(root)) if Path(entry).is_relative_to(root) else entry for entry in kept]
    own = [str(folder) for folder in (tree / "src", tree) if folder.is_dir()]
    return {
        "PYTHONPATH": os.pathsep.join([*own, *moved]),
        # The tree lies below the checkout; git must not take it for a part of it.
        "GIT_CEILING_DIRECTORIES": str(tree.parent),
        "PWD": str(tree),
    }


def _announce(log: Path, words: str) -> int:
    """Write the command into the log and return where its output begins."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            file.write(f"$ {words}\n".encode())
            return file.tell()
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The log {log} cannot be written: {error.strerror}.\nMake room or the folder writable, and run again."
        ) from error


def _since(log: Path, position: int) -> str:
    with log.open("rb") as file:
        file.seek(position)
        return file.read().decode("utf-8", "replace")
