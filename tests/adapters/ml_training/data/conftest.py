"""Small texts, and the sample prepared once for all tests that need real text."""

from __future__ import annotations

import pytest

from autoresearch.adapters.ml_training.data import PreparedData, SampleSource, prepare_data
from tests.adapters.ml_training.data.texts import ListSource, made_up_documents


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """The sample with the vocabulary of the CPU preset."""
    return prepare_data(SampleSource(), vocab_size=1024, cache=tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Three hundred made-up documents."""
    return prepare_data(ListSource(made_up_documents(300)), vocab_size=400, cache=tmp_path_factory.mktemp("small"))
