"""Features and a linear classifier of scikit-learn, no network and no images: python examples/sklearn_features.py

Whoever stores the embeddings of a model, and classifies them linearly, can detect shift from these arrays alone.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from shiftprism import Detector, scores
from shiftprism.heads import Linear


def make_head(classifier: LogisticRegression) -> Linear:
    """The same linear layer as a head, which turns features into Outputs."""
    classes, features = classifier.coef_.shape
    head = Linear(features, classes, bias=True)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(classifier.coef_))
        head.get_parameter("bias").copy_(torch.from_numpy(classifier.intercept_))
    return head.eval()


def main() -> None:
    embeddings, digits = load_digits(return_X_y=True)  # these stand for the embeddings of a network
    order = np.random.default_rng(0).permutation(len(digits))
    embeddings, digits = embeddings[order], digits[order]
    known = digits < 8
    scaler = StandardScaler().fit(embeddings[known][:700])
    features = torch.from_numpy(scaler.transform(embeddings)).float()
    labels = torch.from_numpy(digits)
    classifier = LogisticRegression(max_iter=500).fit(features[known][:700], digits[known][:700])

    head = make_head(classifier)
    with torch.no_grad():
        held_out, new, unseen = (head.outputs(one) for one in (*features[known][700:].split(400), features[~known]))
    assert (new.predictions.numpy() == classifier.predict(features[known][1100:])).all()

    detector = Detector.from_outputs(held_out, labels[known][700:1100], head=head, names=[*"01234567"])
    print("known digits:", detector(new).counts())
    print("8 and 9:     ", detector(unseen).counts())

    fitted = scores.KNN.fit(held_out)
    for name, score in {"msp": scores.msp, "energy": scores.energy, "u": scores.u, "knn": fitted}.items():
        both = torch.cat([score(new), score(unseen)])
        auroc = roc_auc_score([1] * new.N + [0] * unseen.N, both)
        print(f"AUROC of {name:6} {auroc:.3f}")


if __name__ == "__main__":
    main()
