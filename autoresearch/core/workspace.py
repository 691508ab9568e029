"""The workspace: where its files lie, and what `autoresearch.toml` may say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoresearch.core.budget import Limits
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

CONFIG_NAME = "autoresearch.toml"
PROGRAM_NAME = "program.md"
RESULTS_NAME = "results.tsv"
FORMAT = 1
"""Version of the workspace format that this release reads and writes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of a workspace lies.

    A checkout that an adapter improves in place keeps all of it in `.autoresearch`, configuration and table included.

    Attributes:
        root: The workspace's folder.
    """

    root: Path

    @property
    def config(self) -> Path:
        """`autoresearch.toml`."""
        return self.config_inside if self.config_inside.is_file() else self.root / CONFIG_NAME

    @property
    def config_inside(self) -> Path:
        """`autoresearch.toml` where the folder around it is a checkout that is not touched."""
        return self.state / CONFIG_NAME

    @property
    def state(self) -> Path:
        """The folder that git ignores."""
        return self.root / ".autoresearch"

    @property
    def ledger(self) -> Path:
        """The ledger's database."""
        return self.state / "ledger.db"

    @property
    def checkpoints(self) -> Path:
        """LangGraph's checkpoints of the experiment in flight."""
        return self.state / "checkpoints.db"

    @property
    def lock(self) -> Path:
        """Held by the process that runs here."""
        return self.state / "lock"

    @property
    def agent(self) -> Path:
        """Where a run and a coding agent that proposes for it leave things for each other."""
        return self.state / "agent"

    @property
    def incumbent(self) -> Path:
        """What measuring the incumbent left: weights, for one."""
        return self.state / "incumbent"

    @property
    def results(self) -> Path:
        """The table in the original's columns."""
        return self.config.parent / RESULTS_NAME

    def experiment(self, run: str, number: int) -> Path:
        """The folder of one experiment of a run."""
        return self.state / "experiments" / run / f"{number:04d}"

    def make_state(self) -> None:
        """Make the state folder, which ignores itself so that no `git add` of a user picks it up.

        Raises:
            EnvironmentNotReadyError: If the folder cannot be written.
        """
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            ignore = self.state / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"{self.state} cannot be written: {error.strerror}.\n"
                "Free some space or choose another workspace: autoresearch run -w DIR"
            ) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a person may choose about a run; None leaves the choice to the program.

    Attributes:
        adapter: Name of the adapter.
        proposer: `claude`, `search`, `mcp`, another registered name, or None: claude with a key, else search.
        model: Model of the proposer.
        policy: `bayes`, `race`, `greedy` or another registered name; None: the default for the kind of adapter.
        policy_parameters: Parameters of the policy.
        seed: Base seed (0 where none is chosen); measurement k of an artifact uses seed + k, for every artifact alike.
        baseline_runs: How often the baseline is measured at first; None: 3, or 2 where the adapter states its noise.
        budget_seconds: Budget of one measurement.
        device: Device of the measurements.
        early_stop: Cut the first measurement of a candidate whose curve leaves no hope of beating the incumbent.
        approve: Wait for `approve N` before each measurement of a new candidate.
        confirm: Confirm the gain when a limit ends the session, as far as the budget allows. None: also no longer than
            the session itself took.
        sandbox: `auto` (the strongest that works here) or a level of `core.sandbox`; None: `auto`.
        limits: When the session ends.
        options: The table `[adapter]`.
        notify: Who is told of a new best and of the end; see `core.notify.target_of`.
        smtp: How notifications by mail leave, as `smtp://[user@]host[:port]`.
        mail_from: Sender of these mails.
        mlflow: Where MLflow mirrors the run: a tracking address or a folder.
        wandb: Project of Weights & Biases that mirrors it.
    """

    adapter: str | None = None
    proposer: str | None = None
    model: str | None = None
    policy: str | None = None
    policy_parameters: Mapping[str, float] = field(default_factory=dict)
    seed: int | None = None
    baseline_runs: int | None = None
    budget_seconds: float | None = None
    device: str | None = None
    early_stop: bool = False
    approve: bool = False
    confirm: bool | None = None
    sandbox: str | None = None
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, str] = field(default_factory=dict)
    notify: tuple[str, ...] = ()
    smtp: str | None = None
    mail_from: str | None = None
    mlflow: str | None = None
    wandb: str | None = None

    def __post_init__(self) -> None:
        # Room above for the seeds that are counted up from the base.
        if self.seed is not None and not 0 <= self.seed < 2**62:
            raise UsageError(f"The seed must be a whole number from 0 to 2^62, not {self.seed}.")
        if self.baseline_runs is not None and self.baseline_runs < 1:
            raise UsageError(f"The baseline must be measured at least once, not {self.baseline_runs} times.")
        if self.budget_seconds is not None and not 0 < self.budget_seconds < float("inf"):
            raise UsageError(
                f"The budget of one measurement must be a positive number of seconds, not {self.budget_seconds}."
            )

    def overlay(self, **choices: Any) -> Settings:
        """Return these settings with every choice that is not None in place; mappings are merged key by key."""
        given = {name: value for name, value in choices.items() if value is not None}
        for name in ("options", "policy_parameters"):
            if name in given:
                given[name] = {**getattr(self, name), **given[name]}
        return replace(self, **given)


_RUN_KEYS: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "adapter": str,
    "proposer": str,
    "model": str,
    "seed": int,
    "baseline_runs": int,
    "budget_seconds": (int, float),
    "device": str,
    "early_stop": bool,
    "approve": bool,
    "confirm": bool,
    "sandbox": str,
}
_BUDGET_KEYS: dict[str, type | tuple[type, ...]] = {
    "experiments": int,
    "hours": (int, float),
    "max_usd": (int, float),
    "max_tokens": int,
    "max_samples": int,
    "target": (int, float),
    "patience": int,
}

_NOTIFY_KEYS: dict[str, type | tuple[type, ...]] = {"to": (str, list), "smtp": str, "from": str}
_MIRROR_KEYS: dict[str, type | tuple[type, ...]] = {"mlflow": str, "wandb": str}


def read_settings(layout: Layout) -> Settings:
    """Read `autoresearch.toml`.

    Raises:
        UsageError: If the file is missing, broken (names the line), of another format, or has a key that nobody reads.
    """
    try:
        text = layout.config.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(
            f"{layout.root} is no workspace: it has no {CONFIG_NAME}.\n"
            "Make one with autoresearch init --adapter NAME DIR, or name another with -w DIR."
        ) from error
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{layout.config} cannot be read: {error.strerror}.\nIt must be a file that you may read."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{layout.config} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{layout.config} is not valid TOML: {error}.\nMend that line and run again.") from error
    return _settings(tables, layout.config)


def _settings(tables: Mapping[str, Any], path: Path) -> Settings:
    """Turn parsed TOML into settings, refusing what nobody reads."""
    known = ("run", "policy", "budget", "adapter", "notify", "mirror")
    for name, table in tables.items():
        if name not in known:
            raise UsageError(f"{path}: there is no table or key [{name}]; known are {', '.join(known)}.")
        if not isinstance(table, dict):
            raise UsageError(f"{path}: [{name}] must be a table.")
    run = _typed(tables.get("run", {}), _RUN_KEYS, "run", path)
    found = run.pop("format", FORMAT)
    if found != FORMAT:
        raise UsageError(
            f"{path} has workspace format {found}, and this release of autoresearch reads format {FORMAT}.\n"
            "Use the release that wrote it, or make a new workspace: autoresearch init --adapter NAME DIR"
        )
    policy = dict(tables.get("policy", {}))
    name = policy.pop("name", None)
    for key, value in policy.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{path}: [policy] {key} must be a number, not {value!r}.")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{path}: [policy] name must be a text, not {name!r}.")
    budget = _typed(tables.get("budget", {}), _BUDGET_KEYS, "budget", path)
    options = {key: _option_text(value) for key, value in tables.get("adapter", {}).items()}
    return Settings(
        **run,
        policy=name,
        policy_parameters=policy,
        limits=Limits(**budget),
        options=options,
        **_notify(tables.get("notify", {}), path),
        **_typed(tables.get("mirror", {}), _MIRROR_KEYS, "mirror", path),
    )


def _notify(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of the table `[notify]`; `to` is one address or a list of them."""
    found = _typed(table, _NOTIFY_KEYS, "notify", path)
    to = found.get("to", [])
    targets = [to] if isinstance(to, str) else to
    if not all(isinstance(target, str) for target in targets):
        raise UsageError(f"{path}: [notify] to must be an address or a list of addresses.")
    return {"notify": tuple(targets), "smtp": found.get("smtp"), "mail_from": found.get("from")}


def _typed(
    table: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]], name: str, path: Path
) -> dict[str, Any]:
    """Return a copy of the table, every key known and of the right type."""
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{path}: [{name}] has no key {key!r}; known are {', '.join(known)}.")
        if not isinstance(value, known[key]) or (isinstance(value, bool) and known[key] is not bool):
            raise UsageError(f"{path}: [{name}] {key} has the wrong type: {value!r}.")
    return dict(table)


def _option_text(value: Any) -> str:
    """Options reach an adapter as text, as they would from the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_text(adapter: str, options: Mapping[str, str]) -> str:
    """Return the `autoresearch.toml` of a new workspace."""
    import tomlkit

    document = tomlkit.document()
    run = tomlkit.table()
    run.add("format", FORMAT)
    run.add("adapter", adapter)
    run.add(tomlkit.comment('proposer = "search"   # claude with ANTHROPIC_API_KEY, else search'))
    run.add(tomlkit.comment('sandbox = "auto"      # or bubblewrap, landlock, limits, none'))
    run.add(tomlkit.comment("confirm = false       # leave proving the gain on the holdout to autoresearch confirm"))
    document.add("run", run)
    policy = tomlkit.table()
    policy.add(tomlkit.comment('name = "bayes"        # or "greedy", "race"'))
    document.add("policy", policy)
    budget = tomlkit.table()
    budget.add("experiments", 100)
    budget.add(tomlkit.comment("per session; also hours, max_usd, max_tokens, max_samples, target, patience"))
    document.add("budget", budget)
    table = tomlkit.table()
    for key, value in options.items():
        table.add(key, value)
    document.add("adapter", table)
    return tomlkit.dumps(document)


def write_options(layout: Layout, options: Mapping[str, str]) -> None:
    """Make `options` the table `[adapter]` of `autoresearch.toml`; everything else in the file stays.

    Raises:
        EnvironmentNotReadyError: If the file cannot be written.
    """
    import tomlkit

    document = tomlkit.parse(layout.config.read_text(encoding="utf-8"))
    table = tomlkit.table()
    for key, value in options.items():
        table.add(key, value)
    document["adapter"] = table
    try:
        layout.config.write_text(tomlkit.dumps(document), encoding="utf-8")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{layout.config} cannot be written: {error.strerror}.\nMake it writable and run again."
        ) from error


def find_workspace(given: Path | None, *, cwd: Path, adapter: str | None = None) -> Layout | None:
    """Return the workspace meant: the one given, else the current folder if it is one, else `./autoresearch-<adapter>`.

    Without an adapter's name the only `./autoresearch-*` folder that is a workspace will do. None where there is none.
    """
    if given is not None:
        return Layout(given.resolve())
    if Layout(cwd).config.is_file():
        return Layout(cwd.resolve())
    if adapter is not None:
        return Layout((cwd / f"autoresearch-{adapter}").resolve())
    found = [path.parent for path in sorted(cwd.glob(f"autoresearch-*/{CONFIG_NAME}"))]
    return Layout(found[0].resolve()) if len(found) == 1 else None
