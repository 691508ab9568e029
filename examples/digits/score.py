"""Train the network and score it on digits that it did not see: log loss in nats a digit, and the share misread.

Every third of the 1,797 images that scikit-learn ships is holdout. Of the others the seed draws 800 to learn from, and
the network's first weights; it is scored on the rest of them while keeps are decided, and on the holdout for claims.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads would wait for one another at this size

import model
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--split", choices=("search", "holdout"), required=True)
parser.add_argument("--seed", type=int, required=True)
given = parser.parse_args()

pixels, labels = load_digits(return_X_y=True)
pixels = pixels / 16.0
number = np.arange(len(labels))
known = np.random.default_rng(given.seed).permutation(number[number % 3 != 0])
train = known[:800]
test = known[800:] if given.split == "search" else number[number % 3 == 0]
network = MLPClassifier(
    (model.HIDDEN_WIDTH,),
    solver="sgd",
    learning_rate_init=model.LEARNING_RATE,
    batch_size=model.BATCH_SIZE,
    momentum=model.MOMENTUM,
    alpha=model.WEIGHT_PENALTY,
    random_state=given.seed,
)
for _ in range(model.EPOCHS):
    network.partial_fit(pixels[train], labels[train], classes=np.arange(10))
odds = network.predict_proba(pixels[test])
right = odds[np.arange(len(test)), labels[test]]
print(f"METRIC log_loss={-np.log(np.maximum(right, 1e-9)).mean():.5f}")
print(f"METRIC misread_percent={100 * (odds.argmax(axis=1) != labels[test]).mean():.3f}")
