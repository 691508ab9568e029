"""Our own adapters keep the contract that we ask of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from autoresearch.adapters.command import create_adapter as create_command
from autoresearch.adapters.marketing.adapter import MarketingAdapter
from autoresearch.adapters.marketing.adapter import create_adapter as create_marketing
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.core import Adapter, LiveAdapter, LiveExperiment, Workspace
from autoresearch.testing import AdapterConformance, LiveAdapterConformance
from tests.adapters.command.conftest import BENCH, OPTIONS
from tests.adapters.marketing.campaigns import edit
from tests.adapters.marketing.with_surfaces import write_surfaces
from tests.adapters.ml_training.conftest import cache, corpus, tiny_trainer

__all__ = ["cache", "corpus"]  # fixtures


class TestCommand(AdapterConformance):
    """A checkout with a bench, guarded and with a holdout."""

    more: Mapping[str, str] = {
        "measure": OPTIONS["measure"] + " # {split}",
        "guard": "memory_mb<=+5%",
        "noise": "0.001",
        "check": "true",
    }

    @pytest.fixture
    def adapter(self) -> Adapter:
        return create_command({**OPTIONS, **self.more})

    @pytest.fixture
    def artifact(self) -> str:
        return "STEPS = 400\nWIDTH = 3.0\n"

    @pytest.fixture
    def other_files(self) -> Mapping[str, str]:
        return {"bench.py": BENCH}

    @pytest.fixture
    def worse_artifact(self) -> str:
        return "STEPS = 400\nWIDTH = 9.0\n"

    @pytest.fixture
    def broken_artifact(self) -> str:
        return "STEPS = 400\n"


@pytest.mark.slow
class TestMl(AdapterConformance):
    """A bigram model on a small corpus, with half a second of training."""

    @pytest.fixture
    def adapter(self, corpus: Path, cache: Path) -> Adapter:
        options = {"preset": "cpu", "data": str(corpus), "cache": str(cache), "budget_seconds": "0.5"}
        return MlAdapter(Options.parse({**options, "min_cpu_share": "0"}))

    @pytest.fixture
    def artifact(self) -> str:
        return tiny_trainer()

    @pytest.fixture
    def other_files(self) -> Mapping[str, str]:
        return {}

    @pytest.fixture
    def worse_artifact(self) -> str:
        return tiny_trainer(lr="10.0")

    @pytest.fixture
    def broken_artifact(self) -> str:
        return tiny_trainer(forward="self.no_such_table(tokens)")


class TestMarketing(LiveAdapterConformance):
    """A page with simulated people, whose calendar moves on by a day with each look."""

    stands_still = False

    @pytest.fixture
    def adapter(self) -> Any:
        adapter = create_marketing({})
        yield adapter
        adapter.close()

    @pytest.fixture
    def treatment(self) -> str:
        return set_slots(workspace_files("page")["copy.toml"], {"headline": "Walk to work. Save the fare."})

    @pytest.fixture
    def visit(self) -> Callable[[MarketingAdapter, LiveExperiment], None]:
        return lambda adapter, experiment: list(adapter.observe(experiment.id)) and None

    @pytest.fixture
    def again(self, workspace: Path, request: pytest.FixtureRequest) -> Callable[[], LiveAdapter]:
        def restarted() -> MarketingAdapter:
            adapter = create_marketing({})
            adapter.prepare(Workspace(workspace))
            request.addfinalizer(adapter.close)
            return adapter

        return restarted


@pytest.mark.slow
class TestMarketingSurfaces(TestMarketing):
    """A page with four surfaces, each tested with two candidates at once."""

    @pytest.fixture
    def files(self, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
        root = write_surfaces(tmp_path_factory.mktemp("campaign"), arms=2)
        edit(root, "campaign.toml", "weekly = 20_000", "weekly = 4_000")
        return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.*")}

    @pytest.fixture
    def artifact(self, files: Mapping[str, str]) -> Mapping[str, str]:
        return {"copy.toml": files["copy.toml"]}

    @pytest.fixture
    def other_files(self, files: Mapping[str, str]) -> Mapping[str, str]:
        return {path: text for path, text in files.items() if path != "copy.toml"}

    @pytest.fixture
    def adapter(self) -> Any:
        adapter = create_marketing({"anyway": "yes"})
        yield adapter
        adapter.close()

    @pytest.fixture
    def treatment(self, files: Mapping[str, str]) -> str:
        return set_slots(files["copy.toml"], {"headline": "Walk to work. Save the fare."})

    @pytest.fixture
    def again(self, workspace: Path, request: pytest.FixtureRequest) -> Callable[[], LiveAdapter]:
        def restarted() -> MarketingAdapter:
            adapter = create_marketing({"anyway": "yes"})
            adapter.prepare(Workspace(workspace))
            request.addfinalizer(adapter.close)
            return adapter

        return restarted
