"""A PyTorch loop: one line changes, and the network learns the clean classes.

Needs PyTorch: pip install '.[torch]'
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from labelnoise import HOC
from labelnoise.losses import ForwardLoss
from labelnoise.noise import pair_flip

X, digits = load_digits(return_X_y=True)
X = X / 16
train, test = slice(0, 1300), slice(1300, None)

# Of each digit, 30% are labelled as the next one.
labels = pair_flip(digits[train], 0.3, random_state=0).labels

est = HOC().fit(X[train], labels)
inputs = torch.as_tensor(X, dtype=torch.float32)
targets = torch.as_tensor(np.searchsorted(est.classes_, labels))  # class numbers in T's order


def accuracy_with(loss: nn.Module) -> float:
    """Train a small network, and test it on clean labels."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(20):
        for batch in torch.randperm(len(targets)).split(100):
            optimiser.zero_grad()
            loss(network(inputs[train][batch]), targets[batch]).backward()
            optimiser.step()
    predicted = network(inputs[test]).argmax(dim=1).numpy()
    return float((est.classes_[predicted] == digits[test]).mean())


plain = accuracy_with(nn.CrossEntropyLoss())
forward = accuracy_with(ForwardLoss(est.transition_matrix_))
print(f"Estimated share of wrong labels: {est.noise_rate_:.1%}")
print(f"Accuracy on clean digits, cross-entropy: {plain:.1%}")
print(f"Accuracy on clean digits, forward loss:  {forward:.1%}")
