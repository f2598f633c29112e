"""The text encoder that ships as a package; `make test-slow` installs it."""

from labelnoise.io.embedding import embed_texts


def test_minilm_knows_that_kittens_are_cats():
    X = embed_texts(["a cat sat", "a kitten sits", "stock prices fell"], device="cpu").features
    assert X.shape == (3, 384)
    assert X[0] @ X[1] > 0.6
    assert X[0] @ X[2] < 0.2
