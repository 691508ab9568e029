"""Every clause of the contract, inherited from the kit."""

import pytest
from autoresearch_example.spam import create_adapter

from autoresearch.core import Adapter
from autoresearch.testing import AdapterConformance


class TestSpam(AdapterConformance):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return create_adapter({})

    @pytest.fixture
    def worse_artifact(self) -> str:
        return "lunch\nmonday\ninvoice\n"

    @pytest.fixture
    def broken_artifact(self) -> str:
        return "\n"
