"""Other estimators of the transition matrix, to compare with.

Each gives T (K, K) with rows that are clean classes and sum to 1. Three start from out-of-sample
predictions of the noisy label (`labelnoise.clean_class.linear.noisy_posteriors`); two learn T as
the last layer of a linear model on the features.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers, probability_rows
from labelnoise.clean_class.linear import fit_transition_layer
from labelnoise.io.packages import install
from labelnoise.scores import from_cleanlab, true_transition_matrix


def anchor_points(posteriors: Any, percentile: float = 97.0) -> np.ndarray:
    """Read T off the examples that most surely have each label.

    An example that surely is of class i, an anchor point, has ``T[i]`` as its probabilities of
    labels. For class i the one with the highest P(label = i) is taken, after those above the
    percentile, which may be outliers, are dropped.

    Parameters
    ----------
    posteriors : array of shape (N, K)
        P(label | x) of each example.
    percentile : float, default=97.0
        100 drops none.

    Notes
    -----
    Patrini et al., "Making Deep Neural Networks Robust to Label Noise: A Loss Correction
    Approach", CVPR 2017; without dropping, Liu and Tao, "Classification with Noisy Labels by
    Importance Reweighting", TPAMI 2016.

    It fails where no example is sure, as with classes that overlap: T then shows their confusion.
    It needs calibrated posteriors, and rests on one example for each row. Where a class is rarer
    than what is dropped (many classes, or unequal ones), all its anchor points are.

    Examples
    --------
    >>> anchor_points([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], percentile=100)
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    P = probabilities(posteriors)
    if not 0 < percentile <= 100:
        raise LabelNoiseError(f"Expected 0 < percentile <= 100, but percentile = {percentile}")
    limit = np.percentile(P, percentile, axis=0, method="lower")
    return P[np.where(limit >= P, P, -1).argmax(axis=0)]


def dual_t(posteriors: Any, labels: Any, percentile: float = 97.0) -> np.ndarray:
    """Split T in two at the label that is predicted, and count the second factor.

    With Y' the most probable label of an example by `posteriors`, ``T = C S``:
    ``C[i, l] = P(Y' = l | clean = i)`` is read off anchor points, and
    ``S[l, j] = P(label = j | Y' = l)`` is counted, which needs no calibrated posterior.

    Parameters
    ----------
    posteriors : array of shape (N, K)
        P(label | x) of each example.
    labels : int array of shape (N,)
        Noisy class numbers.
    percentile : float, default=97.0
        As in `anchor_points`.

    Notes
    -----
    Yao et al., "Dual T: Reducing Estimation Error for Transition Matrix in Label-noise
    Learning", NeurIPS 2020.

    Both factors hold the noise if the posteriors are good, so T then has it twice: it is meant for
    networks, whose posteriors are nearly one-hot. C shares the needs of `anchor_points`.

    Examples
    --------
    >>> dual_t([[1, 0], [1, 0], [0, 1], [0, 1]], [0, 1, 1, 1])
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    P = probabilities(posteriors)
    labels = class_numbers(labels, P.shape[1], len(P))
    return anchor_points(P, percentile) @ true_transition_matrix(P.argmax(1), labels, P.shape[1])


def transition_layer(X: Any, labels: Any, n_classes: int) -> np.ndarray:
    """Learn T as a layer on top of a linear softmax model of the features.

    T and the model are fitted together, so that the noisy labels are as likely as can be.

    Parameters
    ----------
    X : array of shape (N, d)
        Features.
    labels : int array of shape (N,)
        Noisy class numbers.
    n_classes : int

    Notes
    -----
    Sukhbaatar et al., "Training Convolutional Networks with Noisy Labels", ICLR workshop 2015,
    with frozen features in place of a network. See
    `labelnoise.clean_class.linear.fit_transition_layer`.

    What tells T from the confusion of classes is the form of the model alone. It fails where clean
    classes are not linear in the features, and where noise depends on the example.
    """
    return volume_minimising(X, labels, n_classes, volume=0.0)


def volume_minimising(X: Any, labels: Any, n_classes: int, volume: float = 1e-4) -> np.ndarray:
    """Learn T as a layer, and prefer the T of the smallest determinant.

    The rows of T enclose the posteriors of all examples. Of all T that do, the tightest is the true
    one, if examples of each class are spread out enough; they need not be sure.

    Parameters
    ----------
    X : array of shape (N, d)
        Features.
    labels : int array of shape (N,)
        Noisy class numbers.
    n_classes : int
    volume : float, default=1e-4
        Weight of ``log det T`` beside the mean loss.

    Notes
    -----
    Li et al., "Provably End-to-end Label-noise Learning without Anchor Points" (VolMinNet), ICML
    2021, with frozen features in place of a network. It fails where `transition_layer` does: a
    linear model leaves little for the volume to choose from.
    """
    return fit_transition_layer(X, labels, n_classes, volume=volume).transition_matrix


def confident_learning(posteriors: Any, labels: Any) -> np.ndarray:
    """Count the examples that are confidently of another class than their label, by cleanlab.

    An example is counted as class k if its P(label = k) reaches the mean over the examples
    labelled k. The counts are scaled to the labels' frequencies, and normalised.

    Parameters
    ----------
    posteriors : array of shape (N, K)
        P(label | x) of each example, from a model fitted without it.
    labels : int array of shape (N,)
        Noisy class numbers.

    Notes
    -----
    Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels",
    JAIR 2021. Needs the `cleanlab` package.

    It takes the confusion of classes that overlap for label noise. It fails where labels are wrong
    nearly as often as right, as in pair flips near one half: the predicted label then tells little
    of the class.
    """
    P = probabilities(posteriors)
    labels = class_numbers(labels, P.shape[1], len(P))
    try:
        from cleanlab.count import compute_confident_joint, estimate_latent
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Expected cleanlab to be installed, but it is not: {install('cleanlab')}"
        ) from error
    _, noise_matrix, _ = estimate_latent(compute_confident_joint(labels, P), labels)
    absent = noise_matrix.sum(axis=0) == 0
    noise_matrix[absent, absent] = 1
    return from_cleanlab(noise_matrix)


def probabilities(posteriors: Any) -> np.ndarray:
    """(N, K) doubles whose rows sum to 1 to the last digit."""
    P = np.asarray(posteriors, np.float64)
    if P.ndim != 2 or not P.size:
        raise LabelNoiseError(f"Expected posteriors of shape (N, K), but their shape is {P.shape}")
    return probability_rows(P, "posteriors")
