"""The command that lets proposers and policies compete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoresearch.cli.compare import answer, comparison_as_json, comparison_text
from autoresearch.core import Direction, Metric
from autoresearch.core.compare import Comparison, Contestant, Contrast, Plan, RunFigures, contrast
from tests.anthropic_server import KEY, AnthropicServer, Says
from tests.cli.conftest import invoke
from tests.json_docs import as_documented

METRIC = Metric("val_bpb", "bits per byte", Direction.MINIMIZE)
PLAN = Plan("ml", ("search", "claude"), experiments=20, fresh=3)


def run(proposer: str, gain: float | None, *, policy: str = "bayes", usd: float = 0.0, **fields: object) -> RunFigures:
    """Return one run of 20 experiments that took half an hour."""
    values: dict[str, object] = {
        "seed": 0, "workspace": Path("c/w"), "run": "ml-1", "reason": "experiments: 20 of 20 done", "experiments": 20,
        "kept": 3, "measurements": 27, "hours": 0.5, "claimed": gain, "true_error": None, **fields,
    }  # fmt: skip
    return RunFigures(proposer=proposer, policy=policy, true=gain, usd=usd, **values)  # type: ignore[arg-type]


def between(first: list[float], second: list[float], *, usd: float = 1.5) -> Contrast:
    """Return claude at a fee against search, by their gains."""
    dear = Contestant("claude", "bayes", tuple(run("claude", gain, usd=usd) for gain in first))
    free = Contestant("search", "bayes", tuple(run("search", gain) for gain in second))
    assert dear.true is not None and free.true is not None
    return contrast(dear, free, dear.true, free.true)


def test_a_shown_gain_is_a_yes_with_its_price() -> None:
    """The sentence names size, interval and what it cost more, and claims no more than that."""
    text = answer(between([0.05, 0.051, 0.052], [0.03, 0.031, 0.032]), "bits per byte")
    assert text == (
        "Does claude earn its fee here? Yes, it gains more: claude gained 0.02 bits per byte more than search under "
        "bayes (90 % interval +0.0183 to +0.0217) and cost $1.50 more a run."
    )


def test_a_shown_loss_is_a_no() -> None:
    """What gains less for more money does not earn it."""
    text = answer(between([0.01, 0.011, 0.012], [0.03, 0.031, 0.032]), "")
    assert text.startswith("Does claude earn its fee here? No: claude gained 0.02 less than search under bayes (90 %")


def test_an_open_question_stays_open_and_says_what_is_missing() -> None:
    """An interval with 0 in it is no answer; the number of runs that would do is named."""
    text = answer(between([0.02, 0.06], [0.01, 0.03]), "")
    assert "Does claude earn its fee here? These runs cannot tell: claude gained 0.02 more" in text
    assert "runs of each would show it (--seeds)." in text
    hopeless = answer(between([0.02, 0.06], [0.02, 0.0601]), "")
    assert hopeless.endswith("no affordable number of runs would show it.")


def test_one_run_of_each_answers_nothing() -> None:
    """However large the difference."""
    text = answer(between([0.5], [0.01]), "")
    assert "These runs cannot tell" in text and "one run of each, so no interval" in text
    assert text.endswith("More runs tell: --seeds 3 or more.")


def test_equal_gains_for_money_are_a_no() -> None:
    """Where neither keeps anything the fee bought nothing."""
    text = answer(between([0.0, 0.0], [0.0, 0.0]), "")
    assert "No: claude and search gained the same under bayes in every run and cost $1.50 more a run." in text


def test_without_a_fee_nobody_asks_about_one() -> None:
    """A model on a server of one's own costs nothing here, and policies never do."""
    assert answer(between([0.05, 0.051], [0.03, 0.031], usd=0.0), "").startswith("Shown: claude gained 0.02 more")
    careful = Contestant("search", "bayes", (run("search", 0.03), run("search", 0.05)))
    hasty = Contestant("search", "greedy", (run("search", 0.02, policy="greedy"), run("search", 0.03, policy="greedy")))
    assert careful.true is not None and hasty.true is not None
    text = answer(contrast(careful, hasty, careful.true, hasty.true), "")
    assert text.startswith("Not shown: bayes gained 0.015 more than greedy with proposals by search")


def test_failed_and_short_runs_are_told() -> None:
    """A gain that is missing is no 0, and a run that ended early is named."""
    free = Contestant("search", "bayes", (run("search", None, failed="It fell\x1b[2J apart."),))
    dear = Contestant("claude", "bayes", (run("claude", 0.1, usd=2.0, experiments=7, reason="max_usd: spent"),))
    text = comparison_text(Comparison(METRIC, (free, dear), (), True), PLAN, Path("c"))
    assert "Left out of the true gain: search, bayes, seed 0" in text and "It fell apart." in text
    assert "Shorter than the others: claude, bayes, seed 0 ended after 7 experiments: max_usd: spent." in text
    row = next(line for line in text.splitlines() if line.startswith("search"))
    assert row.split()[:4] == ["search", "bayes", "1", "-"]
    assert "\x1b" not in text


def test_every_key_is_documented() -> None:
    """docs/json.md names what `--json` prints, contrasts included."""
    item = between([0.05, 0.051], [0.03, 0.031])
    found = comparison_as_json(Comparison(METRIC, (item.first, item.second), (item,), True))
    assert as_documented("compare", json.dumps(found))["contrasts"]


def test_policies_compete_offline(hill: Path, here: Path) -> None:
    """The whole command, from an adapter's name to the table; the second call reads back and measures nothing."""
    words = ("compare", "--adapter", "hill", "--proposers", "search", "--policies", "bayes, greedy", "--seeds", "1")
    result = invoke(*words, "-n", "2", "--fresh", "2", "--json")
    assert result.exit_code == 0, result.stderr
    found = as_documented("compare", result.stdout)
    assert [(item["proposer"], item["policy"]) for item in found["contestants"]] == [
        ("search", "bayes"), ("search", "greedy"),
    ]  # fmt: skip
    assert all(item["experiments"] == 2 and item["usd"] == 0 for item in found["contestants"])
    assert found["unit"] == "steps" and found["complete"] is True
    assert (here / "compare-hill" / "search-greedy-0" / "hill.py").is_file()
    assert "Run 2 of 2: search, greedy, seed 0." in result.stderr

    again = invoke(*words, "-n", "2", "--fresh", "2")
    assert again.stdout.count("It is done already.") == 2
    assert "measuring" not in again.stdout
    assert "one run of each, so no interval" in again.stdout
    assert "Every run lies below compare-hill" in again.stdout


def test_claude_is_charged_for_what_it_gains(hill: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a server on this machine: its fee and its true gain are in the table, and the question is asked."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    idea = {
        "hypothesis": "The best height is lower.", "category": "optimizer", "expected_effect": "4 lower",
        "edits": [{"path": "hill.py", "search": "HEIGHT = 8.0", "replace": "HEIGHT = 4.0"}], "files": [],
    }  # fmt: skip
    with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        server.script(Says(json.dumps(idea)))
        words = (
            "compare",
            "--adapter",
            "hill",
            "--seeds",
            "1",
            "-n",
            "1",
            "--fresh",
            "2",
            "-w",
            "both",
            "--max-usd",
            "1",
        )
        result = invoke(*words, "--json")
        assert result.exit_code == 0, result.stderr
        assert len(server.requests) == 1
    free, dear = json.loads(result.stdout)["contestants"]
    assert (free["proposer"], free["usd"], free["gain_per_usd"]) == ("search", 0, None)
    assert dear["proposer"] == "claude" and dear["usd"] > 0
    assert dear["true_gain"] == pytest.approx(17**0.5 - 1, abs=0.01), "from (3, 8) to (3, 4), seen from (4, 4)"
    assert dear["gain_per_usd"] == pytest.approx(dear["true_gain"] / dear["usd"])
    text = invoke(*words, "-q").stdout
    assert text.startswith("Does claude earn its fee here? These runs cannot tell: claude gained")


def test_the_artifact_of_a_workspace_is_where_all_begin(hill: Path, here: Path) -> None:
    """`--from` brings artifact, adapter and options; every run begins with them."""
    assert invoke("init", "--adapter", "hill", "mine").exit_code == 0
    (here / "mine" / "hill.py").write_text("WIDTH = 4.5\nHEIGHT = 4.5\n", encoding="utf-8")
    result = invoke(
        "compare",
        "--from",
        "mine",
        "--proposers",
        "search",
        "--policies",
        "bayes,greedy",
        "--seeds",
        "1",
        "-n",
        "1",
        "-q",
    )
    assert result.exit_code == 0, result.stderr
    for policy in ("bayes", "greedy"):
        text = (here / "compare-hill" / f"search-{policy}-0" / "hill.py").read_text(encoding="utf-8")
        assert text == "WIDTH = 4.5\nHEIGHT = 4.5\n"


def test_claude_without_a_key_is_refused_before_anything_runs(
    hill: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the offline half of a comparison that cannot be finished."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    result = invoke("compare", "--adapter", "hill")
    assert result.exit_code == 1
    assert "ANTHROPIC_API_KEY" in result.stderr
    assert not (here / "compare-hill").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 1, "Name an adapter"),
        (("--adapter", "hill", "--proposers", "search"), 1, "two proposers or two policies"),
        (("--adapter", "hill", "--proposers", "search,"), 2, "empty name"),
        (("--adapter", "hill", "--budget-seconds", "0"), 2, "more than no time"),
    ],
)
def test_wrong_use_gets_a_sentence(hill: Path, here: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """What is missing or wrong is named, and nothing is made."""
    result = invoke("compare", *words)
    assert (result.exit_code, said in result.stderr) == (code, True), result.output
    assert list(here.iterdir()) == []
