"""Data sets and modules of PyTorch to features and labels."""

from collections import OrderedDict

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError
from labelnoise.noise import symmetric
from tests.conftest import clusters

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from labelnoise.integrations.pytorch import embed, without_head  # noqa: E402

WIDTH, K = 6, 4


class Words(torch.utils.data.Dataset):
    """Items with a label that is a word, and something behind it."""

    def __init__(self, X, labels):
        self.X, self.labels = X, labels

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return torch.from_numpy(self.X[i]).float(), self.labels[i], {"row": i}


class Timm(nn.Module):
    """Its head is dropped as in timm's models."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, K)

    def reset_classifier(self, num_classes):
        """Put another head in its place, or none."""
        self.head = nn.Linear(WIDTH, num_classes) if num_classes else nn.Identity()

    def forward(self, x):
        """Tell classes."""
        return self.head(self.body(x))


def made(head, name):
    """A network as torchvision's: a body and a head of some kind."""
    return nn.Sequential(OrderedDict([("body", nn.Linear(3, WIDTH)), (name, head)]))


HEADS = {
    "resnet": ("fc", nn.Linear(WIDTH, K)),
    "efficientnet": ("classifier", nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, K))),
    "vit": ("heads", nn.Sequential(OrderedDict(head=nn.Linear(WIDTH, K)))),
}


def test_an_estimate_from_a_data_set_and_a_module():
    """Rows and labels stay in order, over batches; the noise is found in what the module gives."""
    X, y = clusters(3, 400, 0)
    words = np.array(["cat", "dog", "owl"])[symmetric(y, 0.2, random_state=0).labels]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())
    seen = []
    features, labels = embed(
        Words(X, words.tolist()), module, batch_size=96, progress=lambda *at: seen.append(at)
    )
    assert labels.tolist() == words.tolist()
    assert seen == [("embedding", done, 400) for done in (96, 192, 288, 384, 400)]
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(X).float()).numpy()
    np.testing.assert_allclose(features, expected, atol=1e-5)
    wrong = (words != np.array(["cat", "dog", "owl"])[y]).mean()
    assert HOC().fit(features, labels).noise_rate_ == pytest.approx(wrong, abs=0.03)


def test_the_module_is_left_as_it_was():
    """Each part keeps its own mode, and batch statistics stay, also when the module fails."""
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 5, 3))
    module[0].eval()
    data = torch.utils.data.TensorDataset(torch.rand(7, 3, 8, 8), torch.arange(7))
    features, labels = embed(data, module, batch_size=3)
    assert features.shape == (7, 5)
    assert labels.tolist() == list(range(7))
    assert [part.training for part in module.modules()] == [True, False, True]
    assert not module[0].running_mean.any()
    small = torch.utils.data.TensorDataset(torch.rand(7, 2, 8, 8), torch.arange(7))
    with pytest.raises(RuntimeError, match="running_mean"):
        embed(small, module)
    assert [part.training for part in module.modules()] == [True, False, True]


def test_worker_processes_give_the_same():
    """Items that other processes load come in the same order."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    module = nn.Linear(3, 2)
    alone = embed(Words(X, list(range(50))), module)
    helped = embed(Words(X, list(range(50))), module, n_workers=2, batch_size=8)
    np.testing.assert_allclose(alone[0], helped[0], atol=1e-6)
    assert alone[1].tolist() == helped[1].tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    """The module comes back to where it was."""
    module, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.rand(20, 3, 16, 16)
    data = torch.utils.data.TensorDataset(x, torch.arange(20))
    on_gpu, _ = embed(data, module, device="cuda")
    np.testing.assert_allclose(on_gpu, embed(data, module, device="cpu")[0], atol=1e-4)
    assert next(module.parameters()).device.type == "cpu"


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_torchvision(name):
    """What is left gives what the head was given; the network itself keeps its head."""
    attribute, head = HEADS[name]
    network = made(head, attribute).eval()
    x = torch.rand(5, 3)
    np.testing.assert_allclose(
        without_head(network).eval()(x).detach(), network.body(x).detach(), atol=1e-6
    )
    assert network(x).shape == (5, K)


def test_heads_of_timm():
    """timm's own method drops the head, of a copy."""
    network, x = Timm(), torch.rand(5, 3)
    np.testing.assert_allclose(without_head(network)(x).detach(), network.body(x).detach())
    assert network(x).shape == (5, K)


class Stream(torch.utils.data.IterableDataset):
    """Items that come one after another, without a number."""

    def __iter__(self):
        return iter([(torch.zeros(3), 0)])


@pytest.mark.parametrize(
    ("dataset", "module", "message"),
    [
        (Stream(), nn.Linear(3, 2), "map-style dataset, .* but it is of type Stream"),
        ([], nn.Linear(3, 2), "it is empty"),
        ([torch.zeros(3)] * 4, nn.Linear(3, 2), r"dataset of \(x, label\)"),
        ([(torch.zeros(4, 3), 0)] * 4, nn.Linear(3, 2), r"its shape is \(4, 4, 2\)"),
        ([(torch.zeros(3), 0)] * 4, nn.LSTM(3, 2), "it is of type tuple"),
    ],
)
def test_bad_input(dataset, module, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        embed(dataset, module)


def test_networks_without_a_linear_head():
    """They cannot be cut."""
    with pytest.raises(LabelNoiseError, match="no linear layer"):
        without_head(nn.Conv2d(3, 4, 1))
