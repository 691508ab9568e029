"""Text for the trainer: where it comes from, how it is split, tokenized, packed and scored.

None of this is in the workspace, so no candidate can change it.
"""

from __future__ import annotations

from autoresearch.adapters.ml_training.data.climbmix import ClimbMixSource
from autoresearch.adapters.ml_training.data.loader import training_batches
from autoresearch.adapters.ml_training.data.prepare import prepare_data
from autoresearch.adapters.ml_training.data.prepared import (
    Documents,
    PreparedData,
    ScoredStream,
    TrainData,
    scored_stream,
)
from autoresearch.adapters.ml_training.data.sources import DataSource, PathSource, SampleSource, parse_source

__all__ = [
    "ClimbMixSource",
    "DataSource",
    "Documents",
    "PathSource",
    "PreparedData",
    "SampleSource",
    "ScoredStream",
    "TrainData",
    "parse_source",
    "prepare_data",
    "scored_stream",
    "training_batches",
]
