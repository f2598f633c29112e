"""Texts: customers' messages with labels that somebody clicked too fast.

The messages are made up here. TF-IDF with a truncated SVD represents them; a sentence encoder does
better on real ones (pip install '.[text]'):

    from labelnoise.io.embedding import embed_texts
    features = embed_texts(texts).features
"""

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from labelnoise import HOC
from labelnoise.noise import class_conditional

TOPICS = {
    "billing": "invoice charged card refund payment twice amount subscription price euro",
    "delivery": "parcel courier late address tracking box door arrived damaged shipment",
    "login": "password account locked reset email code browser session sign verify",
}
WORDS = {topic: words.split() for topic, words in TOPICS.items()}
ANYWAY = "hello please my the again since yesterday cannot help why still today thanks"
rng = np.random.default_rng(0)


def write(topic: str) -> str:
    """One message: words of its topic, a stray one of another, and what people say anyway."""
    stray = WORDS[rng.choice(list(WORDS))]
    words = [*rng.choice(WORDS[topic], 6), *rng.choice(stray, 1), *rng.choice(ANYWAY.split(), 5)]
    return " ".join(rng.permutation(words))


true = rng.choice(list(WORDS), 1500)
texts = [write(topic) for topic in true]

# Every fifth message about a delivery was filed under billing.
T = [[0.95, 0.03, 0.02], [0.20, 0.78, 0.02], [0.02, 0.03, 0.95]]
labels = class_conditional(true, T, random_state=1).labels

encoder = make_pipeline(TfidfVectorizer(), TruncatedSVD(20, random_state=0))
features = encoder.fit_transform(texts)

est = HOC().fit(features, labels)
print(est)

print("\nTo be looked at again:")
suspects = est.suspects()
for label in list(suspects)[:5]:
    change = f"{label.given_label} -> {label.predicted_label}"
    print(f"  {label.probability_wrong:.0%} wrong, {change}: {texts[label.row]}")
