"""A table: numbers and categories, and a column of labels that is not to be trusted."""

import numpy as np
import pandas as pd

from labelnoise import HOC
from labelnoise.io.embedding import embed_table
from labelnoise.noise import class_conditional

rng = np.random.default_rng(0)
true = rng.choice(["adelie", "chinstrap", "gentoo"], 1500, p=[0.45, 0.2, 0.35])
kind = np.unique(true, return_inverse=True)[1]
islands = np.array([["Biscoe", "Dream", "Torgersen"], ["Dream"] * 3, ["Biscoe"] * 3])

table = pd.DataFrame(
    {
        "bill_length": np.array([38.8, 48.8, 47.5])[kind] + 2.0 * rng.standard_normal(1500),
        "bill_depth": np.array([18.3, 18.4, 15.0])[kind] + 0.8 * rng.standard_normal(1500),
        "flipper": np.array([190.0, 196, 217])[kind] + 5.0 * rng.standard_normal(1500),
        "mass": np.array([3700.0, 3730, 5080])[kind] + 300 * rng.standard_normal(1500),
        "island": islands[kind, rng.integers(0, 3, 1500)],
    }
)
table.loc[rng.random(1500) < 0.02, "mass"] = np.nan

# Chinstraps are taken for adelies at times, and the other way round.
T = [[0.92, 0.08, 0.00], [0.25, 0.75, 0.00], [0.00, 0.02, 0.98]]
table["species"] = class_conditional(true, T, random_state=2).labels

# Numbers standardised, categories one-hot, gaps filled. The label must not be among the features.
features = embed_table(table, drop=["species"]).features

# Such features have no natural origin, so near means a small distance and not a small angle.
est = HOC(metric="euclidean").fit(features, table["species"])
print(est)

interval = est.confidence_interval()
low, high = interval.transition_matrix[:, 1, 0]
print(f"\nTrue chinstraps labelled adelie: {low:.0%} to {high:.0%} (95% interval).")
