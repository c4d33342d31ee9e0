"""A recipe of your own: is a tumour benign? 569 patients, 30 measurements each.

    lockstep train recipe=examples/my_recipe.py:MyRecipe options.hidden=32 stop.epochs=10 best.metric=val/accuracy

Nothing here knows how many processes there are.
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from torchmetrics.classification import BinaryAccuracy

from lockstep.runtime.loss import Term
from lockstep.runtime.recipe import Recipe


class MyRecipe(Recipe):
    """Its keyword arguments are the options: the hints are checked, the defaults are the defaults."""

    def __init__(self, hidden: int = 16, dropout: float = 0.1):
        self.hidden, self.dropout = hidden, dropout
        features, labels = load_breast_cancer(return_X_y=True)
        features = (features - features[:450].mean(0)) / features[:450].std(0)
        self.patients = torch.tensor(features, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)

    def model(self):
        """(N, 30) -> (N,) logits."""
        hidden = [nn.Linear(30, self.hidden), nn.ReLU(), nn.Dropout(self.dropout)]
        return nn.Sequential(*hidden, nn.Linear(self.hidden, 1), nn.Flatten(0))

    def train_data(self):
        """The first 450 patients."""
        return TensorDataset(*(column[:450] for column in self.patients))

    def val_data(self):
        """The other 119."""
        return TensorDataset(*(column[450:] for column in self.patients))

    def loss(self, model, batch):
        """A sum and a count, never a mean: the mean over all processes is taken once, at the end."""
        features, labels = batch
        return {"loss": Term(F.binary_cross_entropy_with_logits(model(features), labels, reduction="sum"), len(labels))}

    def metrics(self):
        """Any torchmetrics objects."""
        return {"accuracy": BinaryAccuracy()}

    def evaluate(self, model, batch, metrics):
        """Update the metrics with one batch."""
        features, labels = batch
        metrics["accuracy"].update(model(features), labels)
        return self.loss(model, batch)
