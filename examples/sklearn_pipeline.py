"""scikit-learn: a classifier of the clean class in a pipeline, chosen by cross-validation."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labelnoise import HOC, ForwardClassifier
from labelnoise.noise import pair_flip

X, digits = load_digits(return_X_y=True)
train, test = slice(0, 1300), slice(1300, None)
labels = pair_flip(digits[train], 0.3, random_state=0).labels

plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
plain.fit(X[train], labels)

# Estimated once, outside of the pipeline: T belongs to the labels, not to a fold.
T = HOC().fit(X[train], labels).transition_matrix_
forward = make_pipeline(StandardScaler(), ForwardClassifier(transition_matrix=T))

# Scored on noisy labels, as there are no others: the best model of the clean class need not be the
# best guess of the label, but a model that is worse at both is worse.
search = GridSearchCV(forward, {"forwardclassifier__C": [0.001, 0.01, 0.1]}, cv=3)
search.fit(X[train], labels)

accuracy_plain = plain.score(X[test], digits[test])
accuracy_forward = search.score(X[test], digits[test])
print(f"Accuracy on clean digits, logistic regression: {accuracy_plain:.1%}")
print(f"Accuracy on clean digits, forward correction:  {accuracy_forward:.1%}")
print(f"Chosen: {search.best_params_}")
