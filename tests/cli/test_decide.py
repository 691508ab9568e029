"""`autoresearch decide`: both tables, every option, and a sentence for whatever cannot be right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import invoke

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "race_bernoulli.json").read_text(encoding="utf-8"))
CASE = next(case for case in VECTORS["race"] if case["name"] == "three looks, winning")
COUNTS = "date,variant,exposures,conversions"
RUNS = "arm,value\nold,1.0\nold,1.02\nold,0.99\nnew,1.05\nnew,1.06\nnew,1.04\n"


def table(looks: list[list[int]], control: str = "control", treatment: str = "b") -> str:
    lines = [COUNTS]
    for day, (n_a, x_a, n_b, x_b) in enumerate(looks, 1):
        lines += [f"2026-03-{day:02d},{control},{n_a},{x_a}", f"2026-03-{day:02d},{treatment},{n_b},{x_b}"]
    return "\n".join(lines) + "\n"


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "data.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def decided(folder: Path, text: str | bytes, *options: str) -> dict[str, Any]:
    """Return what `--json` prints."""
    result = invoke("decide", written(folder, text), "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def told(folder: Path, text: str, *options: str) -> str:
    """Return what is printed for a person."""
    result = invoke("decide", written(folder, text), *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(folder: Path, text: str | bytes, *options: str, code: int = 1) -> str:
    """Return the sentence that a wrong file or option gets."""
    result = invoke("decide", written(folder, text), *options)
    assert result.exit_code == code, result.output
    assert result.stdout == "" and "Traceback" not in result.output
    return result.stderr


def test_counts_give_the_known_e_values(tmp_path: Path) -> None:
    """The figures of the published vectors, with exactly the promised keys."""
    found = decided(tmp_path, table(CASE["looks"]))
    assert list(found) == ["verdict", "e_win", "e_lose", "lift", "lift_low", "lift_high", "n", "looks"]
    assert found["verdict"] == "continue"
    assert (found["e_win"], found["e_lose"]) == pytest.approx((CASE["win"][-1], CASE["lose"][-1]), rel=1e-9)
    assert found["lift"] == pytest.approx(71 / 43 - 1)
    assert (found["n"], found["looks"]) == (1800, 3)
    assert found["lift_low"] < 0 < found["lift_high"]


def test_the_first_crossing_decides(tmp_path: Path) -> None:
    """At a level that the second look reaches, the third counts for nothing."""
    found = decided(tmp_path, table(CASE["looks"]), "--alpha", "0.2")
    assert (found["verdict"], found["looks"], found["n"]) == ("keep", 2, 1200)
    assert found["e_win"] == pytest.approx(CASE["win"][1], rel=1e-9)
    assert found["lift_low"] > 0


def test_running_totals_say_the_same_as_increments(tmp_path: Path) -> None:
    """`--cumulative` reads totals; the verdict is that of the increments behind them."""
    totals = [[sum(look[i] for look in CASE["looks"][: end + 1]) for i in range(4)] for end in range(3)]
    assert decided(tmp_path, table(totals), "--cumulative") == decided(tmp_path, table(CASE["looks"]))


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    """Looks go by date, not by line."""
    header, *rows = table(CASE["looks"]).splitlines()
    assert decided(tmp_path, "\n".join([header, *reversed(rows)])) == decided(tmp_path, table(CASE["looks"]))


def test_several_rows_of_a_day_are_one_look(tmp_path: Path) -> None:
    """Increments of the same date and variant add up."""
    split = table(CASE["looks"]).replace("2026-03-02,b,300,22", "2026-03-02,b,100,10\n2026-03-02,b,200,12")
    assert decided(tmp_path, split) == decided(tmp_path, table(CASE["looks"]))


def test_without_dates_there_is_one_look(tmp_path: Path) -> None:
    """Totals alone are judged as one look."""
    found = decided(tmp_path, "variant,exposures,conversions\na,300,15\nb,300,24\n")
    assert found["looks"] == 1
    assert found["e_win"] == pytest.approx(2.2625503004294365, rel=1e-9)


def test_an_arm_may_be_missing_on_a_day(tmp_path: Path) -> None:
    """A date with one arm is a look in which the other had no exposures."""
    text = f"{COUNTS}\n1,a,300,15\n2,a,300,12\n2,b,300,24\n"
    assert decided(tmp_path, text)["looks"] == 2


def test_control_is_named_or_first(tmp_path: Path) -> None:
    """`control` is the control wherever it stands, else the first seen, else the one named."""
    looks = [[1000, 100, 1000, 50]]
    assert decided(tmp_path, table(looks, "x", "y"))["lift"] == pytest.approx(-0.5)
    assert decided(tmp_path, table(looks, "x", "y"), "--control", "y")["lift"] == pytest.approx(1.0)
    assert decided(tmp_path, table(looks, "x", "control"))["lift"] == pytest.approx(1.0)


def test_spreadsheets_of_other_countries_are_read(tmp_path: Path) -> None:
    """A byte order mark, semicolons, CRLF, blank lines and decimal commas make no difference; nor do tabs."""
    plain = decided(tmp_path, RUNS)
    foreign = "\ufeff" + RUNS.replace(",", ";").replace(".", ",").replace("\n", "\r\n") + "\r\n\r\n"
    assert decided(tmp_path, foreign.encode()) == plain
    assert decided(tmp_path, RUNS.replace(",", "\t")) == plain
    assert decided(tmp_path, RUNS.replace("arm,value", "Arm, Value")) == plain


def test_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FILE may be -."""
    from typer.testing import CliRunner

    from autoresearch.cli import app

    piped = CliRunner().invoke(app, ["decide", "-", "--json"], input=RUNS)
    assert json.loads(piped.stdout) == decided(tmp_path, RUNS)


def test_prior_changes_the_bet(tmp_path: Path) -> None:
    """The vectors' own prior reproduces them; the default one does not."""
    case = next(case for case in VECTORS["race"] if case["name"] == "high base rate")
    options = ("--min-effect", str(case["min_effect"]), "--alpha", "0.01", "--beta", "0.01")
    right = decided(tmp_path, table(case["looks"]), *options, "--prior", "4,6")
    assert right["e_win"] == pytest.approx(case["win"][-1], rel=1e-9)
    assert decided(tmp_path, table(case["looks"]), *options)["e_win"] != pytest.approx(case["win"][-1], rel=1e-3)


def test_runs_are_compared_with_their_own_scatter(tmp_path: Path) -> None:
    """Three runs each, as in the vectors of the normal race: d 2 is given by noise and effect."""
    found = decided(tmp_path, RUNS, "--min-effect", "0.02", "--noise", "0.01")
    assert found["verdict"] == "keep"
    assert found["lift"] == pytest.approx(1.05 - 1.00333333, rel=1e-6)
    assert (found["n"], found["looks"]) == (6, 3)
    assert found["e_win"] == pytest.approx(30.54408346925763, rel=1e-6)
    assert found["e_lose"] == pytest.approx(0.011434898193680203, rel=1e-6)
    assert 0 < found["lift_low"] < found["lift"] < found["lift_high"]


def test_lower_may_be_better(tmp_path: Path) -> None:
    """A gain is positive where the value is lower; without the option the same runs are reverted."""
    lower = RUNS.replace("new,1.0", "new,0.9")
    assert decided(tmp_path, lower, "--lower-is-better", "--min-effect", "0.02")["lift"] > 0
    assert decided(tmp_path, lower, "--min-effect", "0.02")["verdict"] == "revert"
    assert decided(tmp_path, table([[1000, 100, 1000, 50]]), "--lower-is-better")["lift"] == pytest.approx(1.0)


def test_a_bound_that_is_not_there_is_null(tmp_path: Path) -> None:
    """JSON knows no infinity."""
    found = decided(tmp_path, table([[5, 0, 5, 0]]))
    assert found["lift"] is None and found["lift_high"] is None and found["lift_low"] == -1.0
    assert decided(tmp_path, table(CASE["looks"]), "--beta", "0")["lift_high"] is None


def test_a_keep_is_said_plainly(tmp_path: Path) -> None:
    """The first line is the verdict; nothing is missing any more."""
    text = told(tmp_path, table(CASE["looks"]), "--alpha", "0.1")
    assert text.startswith("Keep b: it is better than control.\n")
    assert "look 3 of 3, 2026-03-03" in text and "b: 71 of 900 (7.889%)" in text
    assert "15.16; 10 is enough to keep" in text
    assert "above +5.27 % (90 % sure), below +142 % (80 % sure)" in text
    assert "missing" not in text


def test_a_revert_is_said_plainly(tmp_path: Path) -> None:
    """It says what was ruled out."""
    text = told(tmp_path, table([[3000, 150, 3000, 100]]))
    assert text.startswith("Revert to control: b is not better by +20 % or more.\n")


def test_an_open_race_says_what_is_missing(tmp_path: Path) -> None:
    """About how many more, at what pace, and which way, if all goes on like this."""
    text = told(tmp_path, table(CASE["looks"]))
    assert text.startswith("Go on: nothing is decided yet between b and control.\n")
    assert "more exposures in both arms together (1 more look at the pace so far) for a keep" in text
    values = told(tmp_path, RUNS, "--min-effect", "0.012")
    assert "more run" in values and "for a keep" in values


def test_hopeless_closeness_is_said(tmp_path: Path) -> None:
    """With the lose race off, equal arms are never decided, and that is what it says."""
    assert "no number of exposures decides" in told(tmp_path, table([[1000, 50, 1000, 50]]), "--beta", "0")


def test_names_cannot_reach_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in the name of an arm are dropped."""
    assert "\x1b" not in told(tmp_path, table(CASE["looks"], treatment="b\x1b[31m"))


BAD: list[tuple[str, str]] = [
    ("", "empty"),
    ("\n\n", "empty"),
    (f"{COUNTS}\n", "no rows"),
    ("a,b,c\n1,2,3\n", "Line 1 is no header"),
    ("control,300,15\nb,300,24\n", "Line 1 is no header"),
    (f"{COUNTS}\n1,a,10,11\n1,b,10,1\n", "Line 2: 11 conversions are more than 10 exposures"),
    (f"{COUNTS}\n1,a,10,1\n1,b,10,-1\n", "Line 3: conversions is -1, negative"),
    (f"{COUNTS}\n1,a,10,1.5\n1,b,10,1\n", "Line 2: conversions is 1.5, no whole number"),
    (f"{COUNTS}\n1,a,nan,1\n1,b,10,1\n", "Line 2: exposures is nan"),
    (f"{COUNTS}\n1,a,,1\n1,b,10,1\n", "Line 2: exposures is empty"),
    (f"{COUNTS}\n1,a,ten,1\n1,b,10,1\n", "Line 2: exposures is 'ten'"),
    (f"{COUNTS}\n1,a,10\n1,b,10,1\n", "Line 2 has 3 cells where the header has 4"),
    (f"{COUNTS}\n1,a,10,1\n2,a,10,1\n", "one arm only, a"),
    (f"{COUNTS}\n1,a,10,1\n1,b,0,0\n", "b has no exposures"),
    (f"{COUNTS}\n1,a,10,1\n1,,10,1\n", "Line 3: variant is empty"),
    (f"{COUNTS}\n1,a,9,1\n1,b,9,1\n1,c,0,0\n", "c has no exposures"),
    ("date,variant,exposures,conversions,experiment_id\n1,a,9,1,x\n1,b,9,1,y\n", "2 experiments (x, y)"),
    (f"{COUNTS}\n1,a,900,40\n2,b,900,70\n", "No date has people in both a and b"),
    (f"{COUNTS}\n2026-03-01,a,900,40\n03/01/2026,b,900,70\n", "write their dates alike"),
    ("arm,value,arm\na,1,b\n", "names a column twice"),
    ("arm,value\na,1\nb,nan\n", "Line 3: value is nan"),
    ("arm,value\na,1\nb,inf\n", "Line 3: value is inf"),
    ("arm,value\na,1\nb,two\n", "Line 3: value is 'two', which is no number"),
    ("arm,value\na,1\nb,1e200\n", "Line 3: value is 1e200, larger than any measurement"),
    ("arm,value\na,1\na,2\n", "one arm only"),
    ("arm,value\na,1\nb,2\n", "one run each"),
    ("arm,value\na,1\na,1.1\nb,2\nc,nan\n", "Line 5: value is nan"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_what_cannot_be_right_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    """Every fault of a file is named with its line, and the exit code is 1."""
    assert sentence in refused(tmp_path, text)


def test_several_treatments_share_alpha(tmp_path: Path) -> None:
    """Each is raced against the control at its share, as if `--alpha` had been divided; alone it has all of it."""
    text = f"{COUNTS}\n1,a,900,40\n1,b,900,70\n1,c,900,10\n"
    found = decided(tmp_path, text)
    assert list(found) == ["best", "control", "treatments"] and (found["best"], found["control"]) == (None, "a")
    assert [one["verdict"] for one in found["treatments"]] == ["continue", "revert"]
    for name, one in zip("bc", found["treatments"], strict=True):
        alone = decided(tmp_path, text, "--treatment", name, "--alpha", "0.025")
        assert one == {"treatment": name, **alone}
    assert decided(tmp_path, text, "--treatment", "b")["verdict"] == "keep"


def test_the_best_of_several_treatments_is_named(tmp_path: Path) -> None:
    """The surest of the winners, the only winner, or nobody."""
    text = f"{COUNTS}\n1,a,900,40\n1,b,900,99\n1,c,900,{{}}\n"
    assert told(tmp_path, text.format(140)).startswith(
        "Keep c: of the 2 treatments that are better than a it is the surest.\n\nKeep b: it is better than a.\n"
    )
    assert told(tmp_path, text.format(41)).startswith(
        "Keep b: of 2 treatments it alone is shown to be better than a.\n"
    )
    assert decided(tmp_path, text.format(140))["best"] == "c"
    few = f"{COUNTS}\n1,a,900,40\n1,b,900,{{}}\n1,c,900,10\n"
    assert told(tmp_path, few.format(41)).startswith("Go on: nothing is decided yet between a and the best of 2")
    assert told(tmp_path, few.format(10)).startswith("Revert to a: none of 2 treatments is better by as much as")


def test_several_treatments_of_runs_are_raced_too(tmp_path: Path) -> None:
    """Repeated runs of three contestants: two against the first."""
    found = decided(tmp_path, f"{RUNS}other,0.99\nother,1.01\nother,1.0\n")
    assert [one["treatment"] for one in found["treatments"]] == ["new", "other"]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("1,a,10,5\n1,b,10,1\n2,a,9,5\n2,b,20,1\n", "Line 4: the running total of exposures falls for a"),
        ("1,a,10,5\n1,b,10,1\n2,a,11,4\n2,b,20,1\n", "Line 4: the running total of conversions falls for a"),
        ("1,a,10,1\n1,b,10,1\n2,a,11,4\n2,b,20,1\n", "Line 4: since the row before, a gained 3 conversions and only 1"),
    ],
)
def test_running_totals_that_cannot_be_get_a_sentence(tmp_path: Path, lines: str, sentence: str) -> None:
    """Falling totals and conversions without exposures are named with their line."""
    assert sentence in refused(tmp_path, f"{COUNTS}\n{lines}", "--cumulative")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--alpha", "0"), "an error rate lies between 0 and 1"),
        (("--alpha", "1"), "an error rate lies between 0 and 1"),
        (("--alpha", "nan"), "an error rate lies between 0 and 1"),
        (("--beta", "1"), "an error rate lies between 0 and 1"),
        (("--beta", "-0.1"), "an error rate lies between 0 and 1"),
        (("--min-effect", "0"), "must be a number above 0"),
        (("--min-effect", "inf"), "must be a number above 0"),
        (("--min-effect", "20"), "0.2 means 20 %"),
        (("--prior", "1"), "not of the form A,B"),
        (("--prior", "0,19"), "both counts must be above 0"),
        (("--noise", "1"), "is for values"),
    ],
)
def test_options_out_of_range_are_wrong_usage(tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    """The sentence names the option and what it may be; the exit code is 2."""
    said = " ".join(refused(tmp_path, table(CASE["looks"]), *options, code=2).split())
    assert sentence in said and options[0] in said


def test_options_for_the_other_shape_or_unknown_arms(tmp_path: Path) -> None:
    """`--cumulative` with runs, and arms that the file does not have."""
    assert "--cumulative is for counts" in refused(tmp_path, RUNS, "--cumulative")
    assert "No arm is named 'z'; the file has old, new" in refused(tmp_path, RUNS, "--control", "z")
    assert "is for counts" in refused(tmp_path, RUNS, "--prior", "2,98", code=2)
    assert "control and treatment at once" in refused(tmp_path, RUNS, "--control", "new", "--treatment", "new")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder, one that is far too large, and a spreadsheet itself instead of its text."""
    for path in (tmp_path / "no.csv", tmp_path):
        result = invoke("decide", path)
        assert result.exit_code == 1 and "cannot be read" in result.stderr
    assert "has more than 8 MiB" in refused(tmp_path, b"arm,value\n" + b"control,1\n" * 840_000)
    assert "is not UTF-8 text" in refused(tmp_path, b"PK\x03\x04\xff\xfe")


def test_a_perfect_repeat_is_decided(tmp_path: Path) -> None:
    """A metric without any noise is decided by any difference, without a division by zero."""
    found = decided(tmp_path, "arm,value\na,1\na,1\na,1\na,1\nb,2\nb,2\n", "--min-effect", "0.5")
    assert found["verdict"] == "keep" and math.isfinite(found["e_win"])


def test_where_values_are_counted_from_changes_nothing(tmp_path: Path) -> None:
    """A million added to every run leaves e-values and bounds, and both means are shown with the digits they need."""
    values = [("old", 1.0), ("old", 1.02), ("old", 0.99), ("new", 1.05), ("new", 1.06), ("new", 1.04)]
    shifted = "arm,value\n" + "".join(f"{arm},{1e6 + value / 16:.9f}\n" for arm, value in values)
    plain = "arm,value\n" + "".join(f"{arm},{value / 16:.9f}\n" for arm, value in values)
    near, far = decided(tmp_path, plain), decided(tmp_path, shifted)
    assert far["verdict"] == near["verdict"] and far["looks"] == near["looks"]
    for key in ("e_win", "e_lose", "lift", "lift_high"):
        assert far[key] == pytest.approx(near[key], rel=1e-6), key
    assert "old: mean 1000000.0627" in told(tmp_path, shifted)


def test_run_takes_the_same_rates(hill: Path, here: Path) -> None:
    """`run --policy race` freezes alpha, beta and the smallest effect, and its experiments carry both e-values."""
    rates = ("--alpha", "0.1", "--beta", "0.3", "--min-effect", "0.5")
    done = invoke("run", "--adapter", "hill", "--policy", "race", *rates, "-n", "2", "--proposer", "search", "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(invoke("show", "1", "-w", here / "autoresearch-hill", "--json").stdout)
    assert shown["e_win"] > 0 and shown["e_lose"] > 0
    told = invoke("show", "1", "-w", here / "autoresearch-hill").stdout
    assert "90 % interval" not in told and "(at beta)" in told
    again = invoke("run", "-w", here / "autoresearch-hill", "--alpha", "0.2", "-n", "3")
    assert again.exit_code == 1 and "alpha" in again.stderr


def test_run_refuses_rates_that_its_policy_does_not_have(hill: Path, here: Path) -> None:
    """`bayes` has no alpha, and the sentence says what it has."""
    done = invoke("run", "--adapter", "hill", "--alpha", "0.1", "-n", "1", "--proposer", "search", "-q")
    assert done.exit_code == 1
    assert "The policy bayes has no parameter 'alpha'" in done.stderr
