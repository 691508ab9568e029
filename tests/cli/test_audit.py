"""The command that tells how much of a finished run is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import invoke
from tests.json_docs import as_documented

DATA = Path(__file__).parents[1] / "data"
KARPATHY = DATA / "karpathy_shape_synthetic.tsv"
TRUE_GAIN, TRUE_NOISE = 0.027037, 0.00127  # of the simulation behind KARPATHY, see tests/data/README.md


def write(folder: Path, *rows: str) -> Path:
    path = folder / "results.tsv"
    path.write_text("\n".join(["commit\tval_bpb\tmemory_gb\tstatus\tdescription", *rows]) + "\n", encoding="utf-8")
    return path


def test_the_first_line_says_how_much_is_real() -> None:
    """Claimed, probably real with its share, and how many keeps the noise could have made."""
    result = invoke("audit", KARPATHY)
    assert result.exit_code == 0, result.output
    first = result.stdout.splitlines()[0]
    assert first == (
        "Of 0.0282 claimed, about 0.0271 (96 %) is probably real; 16 of 22 keeps are smaller than the noise."
    )
    assert first in (DATA.parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert "estimated from this log alone (90 % interval" in result.stdout
    assert "126 rows (23 kept, 102 reverted, 1 crashed)" in result.stdout


def test_json_has_the_documented_keys_and_holds_the_truth() -> None:
    """Every key is named in docs/json.md; the intervals hold the simulated gain and noise."""
    found = as_documented("audit", invoke("audit", KARPATHY, "--json").stdout)
    assert found["claimed"] == pytest.approx(0.028214)
    assert found["expected_low"] < TRUE_GAIN < found["expected_high"]
    assert found["noise_low"] < TRUE_NOISE < found["noise_high"]
    assert found["claimed"] == pytest.approx(found["expected"] + found["luck"])
    assert len(found["keeps"]) == 22 and found["outcomes"]["crashed"] == 1


def test_every_kept_row_is_in_the_table() -> None:
    """One line each with claimed step, z, probability, expected step and verdict."""
    lines = invoke("audit", KARPATHY).stdout.splitlines()
    table = lines[next(index for index, line in enumerate(lines) if "verdict" in line) :]
    assert table[0].split() == ["row", "val_bpb", "claimed", "z", "p", "real", "verdict", "description"]
    assert len(table) == 1 + 22
    assert any("stands out" in line for line in table) and any("unclear" in line for line in table)


def test_a_given_noise_is_used_and_said() -> None:
    """`--noise` replaces the estimate; three times the noise leaves fewer keeps standing out."""
    result = invoke("audit", KARPATHY, "--noise", "0.00127")
    assert "0.00127, as given with --noise" in result.stdout
    true = json.loads(invoke("audit", KARPATHY, "--noise", "0.00127", "--json").stdout)
    large = json.loads(invoke("audit", KARPATHY, "--noise", "0.004", "--json").stdout)
    assert true["noise_source"] == "given" and true["noise"] == true["noise_low"] == 0.00127
    assert large["stand_out"] < true["stand_out"] and large["within_noise"] > true["within_noise"]


def test_other_tools_logs_bring_their_direction() -> None:
    """pi's config and uditgoenka's comment say it; nobody has to."""
    for name, direction in (("pi_shape_synthetic.jsonl", "minimize"), ("uditgoenka_shape_synthetic.tsv", "maximize")):
        result = invoke("audit", DATA / name, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["direction"] == direction


def test_our_own_workspace_is_audited(filled: Path) -> None:
    """A workspace, its ledger and its exported table give the same claim."""
    claims = []
    table = filled.parent / "exported.tsv"
    table.write_text(invoke("export", "-w", filled).stdout, encoding="utf-8")
    for path in (filled, filled / ".autoresearch" / "ledger.db", table):
        result = invoke("audit", path, "--direction", "lower", "--noise", "0.1", "--json")
        assert result.exit_code == 0, result.output
        claims.append(json.loads(result.stdout)["claimed"])
    assert claims[0] > 0 and claims == pytest.approx([claims[0]] * 3)


def test_a_direction_is_asked_for_rather_than_guessed(tmp_path: Path) -> None:
    """A metric whose name does not tell is refused with the option; with it the audit goes on."""
    path = write(tmp_path, "a\t1.0\t0\tkeep\tx", "b\t2.0\t0\tkeep\ty", "c\t1.7\t0\tdiscard\tz")
    path.write_text(path.read_text(encoding="utf-8").replace("val_bpb", "tokens_per_second"), encoding="utf-8")
    refused = invoke("audit", path)
    assert refused.exit_code == 1 and refused.stdout == ""
    assert "'tokens_per_second' does not tell" in refused.stderr and "--direction higher" in refused.stderr
    assert invoke("audit", path, "--direction", "higher").stdout.startswith("Of 1 claimed")


def test_the_wrong_direction_is_noticed() -> None:
    """Where most keeps are worse than what they replaced, the option is called into question."""
    result = invoke("audit", KARPATHY, "--direction", "higher")
    assert result.stdout.startswith("Nothing is claimed")
    assert "is --direction right?" in result.stdout


def test_few_candidates_are_said_to_be_few(tmp_path: Path) -> None:
    """With three candidates the noise is little more than a guess, and the reader is told."""
    path = write(
        tmp_path, "a\t1.0\t0\tkeep\tx", "b\t0.9\t0\tkeep\ty", "c\t1.1\t0\tdiscard\tz", "d\t0.95\t0\tdiscard\tz"
    )
    assert "3 candidates say little about the noise" in invoke("audit", path).stdout
    assert "say little" not in invoke("audit", path, "--noise", "0.1").stdout


def test_figures_stay_readable(tmp_path: Path) -> None:
    """Whole numbers keep their digits, tiny and huge ones are shortened, and a single keep is not counted."""
    path = write(tmp_path, "a\t30000\t0\tkeep\tx", "b\t15200\t0\tkeep\ty", "c\t31000\t0\tdiscard\tz")
    exact = invoke("audit", path, "--noise", "0").stdout
    assert exact.startswith("Of 14800 claimed, about 14800 (100 %) is probably real; the only keep is larger than")
    swamped = invoke("audit", path, "--noise", "1e300").stdout
    assert max(len(line) for line in swamped.splitlines()) < 120
    assert " inf" not in invoke("audit", path, "--noise", "1e-320").stdout


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((), "holds no experiment"),
        (("a\t1.0\t0\tkeep\tx",), "nothing to audit"),
        (("a\t1.0\t0\tkeep\tx", "b\t1.1\t0\tdiscard\ty"), "nothing is claimed"),
        (("a\t1.0\t0\tkeep\tx", "b\tquick\t0\tkeep\ty"), "line 3: the value 'quick' is no number"),
        (("a\t1.0\t0\tkeep\tx", "b\tnan\t0\tkeep\ty"), "line 3: a kept row needs a finite value"),
        (("a\t1.0\t0\tkeep\tx", "b\t0.9\t0\tgreat\ty"), "line 3: the status 'great' is unknown"),
        (("a\t1.0\t0\tkeep\tx", "b\t1.0\t0\tkeep\ty"), "state it with --noise (0 for a metric that always repeats)"),
    ],
)
def test_a_log_that_cannot_be_audited_gets_a_sentence(tmp_path: Path, rows: tuple[str, ...], said: str) -> None:
    """Exit code 1, nothing on standard output, no traceback."""
    result = invoke("audit", write(tmp_path, *rows))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize("noise", ["-1", "nan", "inf", "much"])
def test_a_noise_that_is_none_is_wrong_usage(noise: str) -> None:
    """Negative, infinite and textual noises have the exit code of wrong usage."""
    result = invoke("audit", KARPATHY, f"--noise={noise}")
    assert result.exit_code == 2 and "--noise" in result.stderr


def test_descriptions_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in what a model wrote are gone from table and JSON."""
    path = write(tmp_path, "a\t1.0\t0\tkeep\tx", "b\t0.5\t0\tkeep\t\x1b]0;owned\x07\u202ebad", "c\t0.8\t0\tdiscard\tz")
    for options in ((), ("--json",)):
        shown = invoke("audit", path, *options).stdout
        assert "\x1b" not in shown and "\u202e" not in shown
