"""Losses for noisy labels, against their formulas and what they promise."""

import importlib
import math
import sys

import numpy as np
import pytest
import torch

from labelnoise import LabelNoiseError
from labelnoise.losses import (
    BackwardLoss,
    CORESLoss,
    DMILoss,
    ForwardLoss,
    GCELoss,
    PeerLoss,
    ReweightLoss,
    cores_keep,
)

F = torch.nn.functional
T3 = [[0.7, 0.2, 0.1], [0.0, 0.6, 0.4], [0.25, 0.0, 0.75]]
PRIOR3 = [0.5, 0.3, 0.2]
WITH_T = {
    "forward": ForwardLoss,
    "backward": BackwardLoss,
    "reweight": ReweightLoss,
    "revision": lambda *args, **kwargs: ReweightLoss(*args, through_weight=True, **kwargs),
}
PER_EXAMPLE = {
    **{name: lambda make=make, **kwargs: make(T3, **kwargs) for name, make in WITH_T.items()},
    "peer": lambda **kwargs: PeerLoss(0.5, **kwargs),
    "gce": GCELoss,
    "cores": lambda **kwargs: CORESLoss(PRIOR3, **kwargs),
}
EVERY = {**PER_EXAMPLE, "dmi": DMILoss}

with_t = pytest.mark.parametrize("make", WITH_T.values(), ids=WITH_T)
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def batch(n=12, dtype=torch.float64, scale=1):
    """Random logits that want a gradient, and labels among which each class occurs."""
    logits = scale * torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return logits.requires_grad_(), torch.arange(n) % 3


def gradient(loss, logits, *args):
    return torch.autograd.grad(loss(logits, *args), logits)[0]


def test_without_torch_the_pip_command_is_named(monkeypatch):
    """The import fails with one sentence that says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "labelnoise.losses")
    with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'"):
        importlib.import_module("labelnoise.losses")


@with_t
@pytest.mark.parametrize("scale", [1, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_noise_it_is_cross_entropy(make, scale, dtype):
    """T = I, fixed, at the call or for each example: cross-entropy and its gradient."""
    logits, y = batch(dtype=dtype, scale=scale)
    eye = torch.eye(3, dtype=dtype)
    expected, slope = F.cross_entropy(logits, y), gradient(F.cross_entropy, logits, y)
    for given in ((), (eye,), (eye.expand(12, 3, 3),)):
        loss, args = make(None if given else np.eye(3)), (y, *given)
        torch.testing.assert_close(loss(logits, *args), expected, rtol=1e-6, atol=1e-7)
        atol = max(1e-7, 1e-8 * scale)  # in a weight, terms as large as the loss cancel
        torch.testing.assert_close(gradient(loss, logits, *args), slope, rtol=1e-6, atol=atol)


def test_values_by_hand():
    """f = (.75, .25) and the label 1, under a T of simple fractions."""
    logits, y = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64), torch.tensor([1])
    T = [[0.8, 0.2], [0.4, 0.6]]  # (T' f)[1] = .3; T^-1 = [[1.5, -.5], [-1, 2]]
    ce, other = -math.log(0.25), -math.log(0.75)
    for loss, expected in (
        (ForwardLoss(T), -math.log(0.3)),
        (BackwardLoss(T), -other + 2 * ce),
        (ReweightLoss(T), 0.25 / 0.3 * ce),
        (PeerLoss(0.4), 0.6 * ce),
        (GCELoss(0.5), (1 - 0.25**0.5) / 0.5),
        (GCELoss(1.0), 0.75),
        (CORESLoss([0.9, 0.1], beta=0.5), ce - 0.5 * (0.9 * other + 0.1 * ce)),
    ):
        assert loss(logits, y).item() == pytest.approx(expected, rel=1e-6), loss
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [0.0, 0.0]])
    expected = -math.log(0.25)  # U = [[.75 + .5, .25 + .5], [.5, .5]]
    assert DMILoss()(logits, torch.tensor([0, 0, 1])).item() == pytest.approx(expected)


@pytest.mark.parametrize("make", [m for name, m in EVERY.items() if name != "reweight"])
def test_gradients(make):
    """The gradient is that of the value (all but a weight that is held constant)."""
    logits, y = batch()
    loss = make()
    assert torch.autograd.gradcheck(lambda x: (torch.manual_seed(0), loss(x, y))[1], logits)


@pytest.mark.parametrize("name", ["forward", "backward", "revision"])
@pytest.mark.parametrize("each", [False, True])
def test_t_can_be_learnt(name, each):
    """The gradient reaches a T given at the call, for all or for each example."""
    logits, y = batch()
    T = 0.9 * torch.tensor(T3, dtype=torch.float64) + 0.1 / 3
    T = (T.expand(12, 3, 3).clone() if each else T).requires_grad_()
    loss = WITH_T[name]()
    assert torch.autograd.gradcheck(lambda T, x: loss(x, y, T), (T, logits))


def test_the_weight_is_constant_unless_asked():
    """The reweighted gradient is that of cross-entropy times beta, and T gets none."""
    logits, y = batch()
    T = torch.tensor(T3, dtype=torch.float64, requires_grad=True)
    f = logits.softmax(1).detach()
    beta = f[range(12), y] / (f @ T.detach())[range(12), y]
    found, of_t = torch.autograd.grad(ReweightLoss()(logits, y, T), (logits, T), allow_unused=True)
    torch.testing.assert_close(found, beta[:, None] * (f - F.one_hot(y, 3)) / 12)
    assert of_t is None


def test_the_forward_loss_finds_the_clean_posterior():
    """Free logits fitted to noisy labels of a known share end at the clean share."""
    T = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.6, 0.35], [0.3, 0.1, 0.6]], dtype=torch.float64)
    clean = torch.tensor([[0.6, 0.3, 0.1], [0.05, 0.15, 0.8]], dtype=torch.float64)
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    loss = ForwardLoss(reduction="none")
    optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def step():
        optimizer.zero_grad()
        costs = loss(logits.repeat_interleave(3, 0), torch.arange(3).repeat(2), T)
        total = ((clean @ T).flatten() * costs).sum()
        total.backward()
        return total

    optimizer.step(step)
    torch.testing.assert_close(logits.softmax(1), clean, rtol=0, atol=1e-3)


def test_the_backward_loss_is_unbiased():
    """Its mean over the labels that a class is given is the class's cross-entropy."""
    logits, _ = batch(n=1)
    costs = BackwardLoss(T3, reduction="none")(logits.expand(3, 3), torch.arange(3))
    mean = torch.tensor(T3).double() @ costs
    torch.testing.assert_close(mean, -logits.log_softmax(1)[0], rtol=1e-5, atol=1e-6)


def test_formula_and_fast_form_agree():
    """Values and slopes are those of -log(T' f), also where T is 0 and where f underflows."""
    logits, y = batch()
    T = torch.tensor(T3, dtype=torch.float64, requires_grad=True)
    plain = -(logits.softmax(1) @ T).log().gather(1, y[:, None]).mean()
    fast = ForwardLoss()(logits, y, T)
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(*(torch.autograd.grad(x, (logits, T)) for x in (fast, plain)))
    in_logs = -(1000 * logits).log_softmax(1) - T.log()[:, y].T
    torch.testing.assert_close(ForwardLoss()(1000 * logits, y, T), -(-in_logs).logsumexp(1).mean())


@pytest.mark.parametrize("T", [T3, T3[1:] + T3[:1], [[1, 1e-42, 0], [0, 1, 0], [0, 0, 1]]])
@pytest.mark.parametrize("make", [ForwardLoss, WITH_T["revision"]])
def test_zeros_in_t_are_harmless(T, make):
    """Off the diagonal, on it, beside denormal entries: nothing is infinite or NaN."""
    T = torch.tensor(T, requires_grad=True)
    logits, y = batch(dtype=torch.float32)
    for scale in (1, 30, 100, 1e4):
        value = make()(scale * logits, y, T)
        for found in (value, *torch.autograd.grad(value, (logits, T))):
            assert torch.isfinite(found).all()


def test_a_label_that_t_rules_out_teaches_nothing():
    """A column of zeros costs 0 instead of infinity."""
    logits, _ = batch(n=1)
    loss = ForwardLoss([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0]])
    assert loss(logits, torch.tensor([2])).item() == pytest.approx(0, abs=1e-12)
    assert gradient(loss, logits, torch.tensor([2])).abs().max() < 1e-12


@every
def test_half_precision_is_computed_in_single(make):
    """Half logits, also under autocast: the value of the same numbers in float32."""
    loss = make()
    for dtype in (torch.float16, torch.bfloat16):
        logits, y = batch(dtype=dtype)
        torch.manual_seed(0)
        expected = loss(logits.float(), y)
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(logits, y)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected)
        assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


@every
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_large_logits(make, shift):
    """Sure predictions, right, wrong or impossible under T, give finite values and gradients."""
    y = torch.arange(12) % 3
    logits = (1e4 * F.one_hot(y.roll(shift), 3)).requires_grad_()
    assert torch.isfinite(make()(logits, y))
    assert torch.isfinite(gradient(make(), logits, y)).all()


@with_t
def test_a_matrix_for_each_example(make):
    """A batch with matrices of its own is as its examples one by one."""
    logits, y = batch()
    rng = np.random.default_rng(0)
    Ts = torch.tensor(0.5 * np.eye(3) + 0.5 * rng.dirichlet(np.ones(3), (12, 3)))
    one_by_one = [make()(logits[n : n + 1], y[n : n + 1], Ts[n]) for n in range(12)]
    found = make(T3, reduction="none")(logits, y, Ts)  # a T given at the call comes first
    torch.testing.assert_close(found, torch.stack(one_by_one))


@pytest.mark.parametrize("make", PER_EXAMPLE.values(), ids=PER_EXAMPLE)
def test_reductions(make):
    """Mean and sum are those of the single values, and ignored labels have no part in them."""
    logits, y = batch()
    ignored = torch.where(torch.arange(12) % 3 == 1, 7, y)

    def value(reduction, target, rows=slice(None)):
        torch.manual_seed(0)
        return make(reduction=reduction, ignore_index=7)(logits[rows], target[rows])

    single = value("none", ignored)
    assert (single == 0).tolist() == (ignored == 7).tolist()
    torch.testing.assert_close(value("sum", ignored), single.sum())
    torch.testing.assert_close(value("mean", ignored), single.sum() / 8)
    if "Peer" not in repr(make()):
        torch.testing.assert_close(value("mean", ignored), value("mean", y, ignored != 7))
    assert torch.isnan(value("mean", torch.full_like(y, 7)))
    assert value("sum", torch.full_like(y, 7)) == 0


def test_ignored_examples_are_no_peers():
    """Where all that count are alike, their peers are too, whatever the ignored ones hold."""
    logits, _ = batch()
    counts = torch.arange(12) % 5 < 2
    logits = torch.where(counts[:, None], torch.tensor([1.0, 0, 0]), logits)
    single = PeerLoss(0.5, reduction="none")(logits, torch.where(counts, 1, -100))
    assert single[counts].tolist() == pytest.approx([0.5 * math.log(math.e + 2)] * 6)


def test_peers_are_independent():
    """On average over draws, each example's peers are all examples with all labels."""
    logits, y = batch(n=6)
    log_f = logits.log_softmax(1).detach()
    expected = F.nll_loss(log_f, y, reduction="none") + 2 * log_f.mean(0)[y].mean()
    loss = PeerLoss(generator=torch.Generator().manual_seed(0), reduction="none")
    loss.alpha = torch.tensor(2.0)
    draws = torch.stack([loss(logits, y).detach() for _ in range(1000)])
    assert ((draws.mean(0) - expected).abs() < 4 * draws.std(0) / 1000**0.5).all()


@pytest.mark.parametrize("make", [ForwardLoss, BackwardLoss, ReweightLoss])
def test_t_is_kept_in_double_precision(make):
    """Logits in float64 meet T as it was given, whatever the default type is."""
    logits, y = batch()
    T = torch.tensor(T3, dtype=torch.float64) * 0.9 + 0.1 / 3
    difference = make(T)(logits, y) - make()(logits, y, T)
    assert abs(float(difference.detach())) < 1e-14


@pytest.mark.parametrize("make", [ForwardLoss, ReweightLoss])
def test_a_column_for_each_example_is_enough(make):
    """T(x)[:, y] gives the value and the gradient of T(x)."""
    logits, y = batch()
    rng = np.random.default_rng(0)
    T = torch.tensor(rng.dirichlet(np.ones(3), (12, 3)))
    columns = T[torch.arange(12), :, y]
    torch.testing.assert_close(make()(logits, y, columns=columns), make()(logits, y, T))
    slope = torch.autograd.grad(make()(logits, y, columns=columns), logits)[0]
    torch.testing.assert_close(slope, gradient(make(), logits, y, T))


def test_the_bounded_forward_loss():
    """q = 1 is one less the chance of the label; q to 0 is the logarithm."""
    logits, y = batch()
    chance = (logits.softmax(1) @ torch.tensor(T3).double())[range(12), y]
    torch.testing.assert_close(ForwardLoss(T3, q=1)(logits, y), (1 - chance).mean())
    torch.testing.assert_close(
        ForwardLoss(T3, q=0.5)(logits, y), ((1 - chance.sqrt()) / 0.5).mean()
    )
    torch.testing.assert_close(ForwardLoss(T3, q=1e-9)(logits, y), ForwardLoss(T3)(logits, y))


def test_dmi_leaves_out_absent_classes():
    """Without labels 1, the determinant is that of the other classes, with a finite slope."""
    logits, y = batch()
    y = torch.where(y == 1, 2, y)
    f = logits.softmax(1)
    U = (F.one_hot(y, 3).double().T @ f)[[0, 2]][:, [0, 2]]
    torch.testing.assert_close(DMILoss()(logits, y), -U.det().abs().log())
    assert torch.isfinite(gradient(DMILoss(), logits, y)).all()
    ignored = torch.where(y == 0, -100, y)
    torch.testing.assert_close(DMILoss()(logits, ignored), -f[y == 2][:, 2].sum().log())
    assert DMILoss()(logits, torch.full_like(y, -100)) == 0


def test_gce_near_cross_entropy():
    """As q goes to 0 it is cross-entropy."""
    logits, y = batch()
    torch.testing.assert_close(GCELoss(1e-9)(logits, y), F.cross_entropy(logits, y))


def test_cores_keeps_labels_that_cost_less_than_average():
    """The sieve is the sign of cross-entropy less its mean over classes."""
    logits, y = batch()
    costs = -logits.log_softmax(1)
    expected = costs[range(12), y] - costs.mean(1) <= 0
    assert 0 < expected.sum() < 12
    assert cores_keep(logits, y).tolist() == expected.tolist()
    assert not cores_keep(logits, torch.full_like(y, -100)).any()


@every
def test_compiles_as_one_graph(make):
    """Nothing breaks the graph, forwards or backwards."""
    logits, y = batch()
    loss = make()
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    expected = gradient(loss, logits, y)
    torch.manual_seed(0)
    torch.testing.assert_close(gradient(compiled, logits, y), expected)


def test_matrices_are_buffers():
    """They are copies that move and convert with the module."""
    T = np.array(T3)
    loss = BackwardLoss(T)
    T[:] = 0
    assert set(loss.state_dict()) == {"transition_matrix", "inverse"}
    torch.testing.assert_close(loss.transition_matrix, torch.tensor(T3, dtype=torch.float64))
    assert {b.device.type for b in loss.to("meta").buffers()} == {"meta"}
    assert CORESLoss(PRIOR3).double().prior.dtype == torch.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: ForwardLoss(np.ones((2, 3)) / 3), r"shape \(2, 2\).*\(2, 3\)"),
        (lambda x, y: ForwardLoss([[1.5, -0.5], [0, 1]]), "-0.5"),
        (lambda x, y: ForwardLoss([[np.nan, 1], [0, 1]]), "nan"),
        (lambda x, y: ForwardLoss(np.transpose(T3)), "transposed"),
        (lambda x, y: ForwardLoss("T"), "array of numbers"),
        (lambda x, y: ForwardLoss(torch.eye(3, requires_grad=True)), "each call"),
        (lambda x, y: ForwardLoss(T3, reduction="median"), "but it is 'median'"),
        (lambda x, y: BackwardLoss(np.full((3, 3), 1 / 3)), "ForwardLoss"),
        (lambda x, y: ReweightLoss()(x, y), "None"),
        (lambda x, y: BackwardLoss(np.eye(4))(x, y), r"\(3, 3\).*\(4, 4\)"),
        (lambda x, y: ForwardLoss(T3)(x, y, torch.eye(3).expand(5, 3, 3)), r"\(12, 3, 3\)"),
        (lambda x, y: GCELoss(0.0), "q = 0.0"),
        (lambda x, y: ForwardLoss(T3, q=1.5), "q = 1.5"),
        (lambda x, y: ForwardLoss()(x, y, columns=torch.ones(12, 2)), r"\(12, 3\).*\(12, 2\)"),
        (lambda x, y: GCELoss()(x, y + 1), "from 0 to 2, or the ignore_index -100, but it has 3"),
        (lambda x, y: DMILoss()(x, y - 2), "but it has -2"),
        (lambda x, y: CORESLoss([0.5, 0.6]), r"\[0.5, 0.6\]"),
        (lambda x, y: CORESLoss([0.5, 0.5])(x, y), "2 and the logits 3"),
        (lambda x, y: DMILoss()(x, y[:5]), r"\(12, 3\).*\(5,\)"),
        (lambda x, y: PeerLoss()(x, y.double()), "float64"),
    ],
)
def test_bad_input(call, message):
    """The rule and the value that broke it."""
    with pytest.raises(LabelNoiseError, match=message):
        call(*batch())
