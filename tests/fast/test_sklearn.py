"""wisp.sklearn: estimators by scikit-learn's own rules."""

import doctest
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import wisp
import wisp.sklearn
from wisp import nn
from wisp.sklearn import NetClassifier, NetRegressor


@pytest.mark.parametrize("estimator", [NetClassifier(), NetRegressor()], ids=["classifier", "regressor"])
def test_estimator_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None)
    assert len(results) > 50 and {result["status"] for result in results} <= {"passed", "skipped"}


def test_examples():
    assert doctest.testmod(wisp.sklearn).failed == 0


def spiral(n=300):
    rng = np.random.default_rng(0)
    radius, kind = rng.uniform(0.2, 2, n), np.arange(n) % 2
    angle = 2 * radius + kind * np.pi
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), np.array(["left", "right"])[kind]


def test_in_scikit_learns_tools():
    X, y = spiral()
    assert cross_val_score(make_pipeline(StandardScaler(), NetClassifier(max_epochs=60, random_state=0)), X, y, cv=2).min() > 0.9
    search = GridSearchCV(NetClassifier(random_state=0, max_epochs=20), {"hidden": [(4,), (32, 32)]}, cv=2).fit(X, y)
    assert search.best_params_ == {"hidden": (32, 32)}


def test_modules_and_images():
    X = np.random.default_rng(0).normal(size=(60, 1, 8, 8)).astype(np.float32)
    y = (X[:, 0, 2:4, 2:4].sum((1, 2)) > 0).astype(int)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    net = clone(NetClassifier(network, max_epochs=60, random_state=0)).fit(X, y)
    assert net.score(X, y) > 0.95 and net.module_ is not network and net.predict_proba(X).dtype == np.float32
    made = NetRegressor(lambda inputs, outputs: nn.Linear(inputs, outputs), max_epochs=300, lr=0.05, random_state=0)
    A = np.random.default_rng(1).normal(size=(50, 3))
    B = A @ np.ones((3, 2)) * 100 + 7
    assert made.fit(A, B).score(A, B) > 0.999 and made.predict(A).shape == (50, 2)


def test_going_on():
    X, y = spiral()
    net = NetClassifier(random_state=0, max_epochs=5, warm_start=True)
    first = net.fit(X, y).history_[-1]["loss"]
    assert net.fit(X, y).n_epochs_ == 10 and net.history_[-1]["loss"] < first
    part = NetClassifier(random_state=0)
    with pytest.raises(ValueError, match="classes must be passed"):
        part.partial_fit(X, y)
    for _ in range(3):
        part.partial_fit(X[:50], y[:50], classes=["left", "right", "none"])
    assert part.predict_proba(X).shape == (300, 3) and part.n_epochs_ == 3
    with pytest.raises(ValueError, match="not made for"):
        part.partial_fit(X[:2], ["left", "up"])


def test_early_stopping_and_chance():
    X, y = spiral()
    state = wisp.get_rng_state()
    net = NetClassifier(random_state=0, early_stopping=True, patience=3, max_epochs=500, validation_fraction=0.2).fit(X, y)
    assert net.n_epochs_ < 500 and "valid_loss" in net.history_[0] and net.score(X, y) > 0.9
    assert (state == wisp.get_rng_state()).all()
    again = clone(net).fit(X, y)
    assert again.history_ == net.history_


def test_weights():
    X = np.array([[0.0], [0.0], [1.0]])
    net = NetRegressor(random_state=0, max_epochs=300, lr=0.02).fit(X, [0.0, 1.0, 3.0], sample_weight=[1, 3, 1])
    assert abs(net.predict([[0.0]])[0] - 0.75) < 0.1
    with pytest.raises(ValueError, match="zero"):
        net.fit(X, [0.0, 1.0, 3.0], sample_weight=[0, 0, 0])
    scalar = NetRegressor(criterion=nn.functional.mse_loss, max_epochs=2)
    scalar.fit(X, [0.0, 1.0, 3.0])
    with pytest.raises(ValueError, match="one loss for each row"):
        scalar.fit(X, [0.0, 1.0, 3.0], sample_weight=[1, 1, 1])


def test_settings(capsys):
    X, y = spiral(20)
    for options, text in [
        (dict(optimizer="magic"), "optimizer: expected"),
        (dict(max_epochs=0), "max_epochs"),
        (dict(early_stopping=True, validation_fraction=2), "validation_fraction"),
    ]:
        with pytest.raises(ValueError, match=text):
            NetClassifier(**options).fit(X, y)
    for name in ("adamw", "sgd", "rmsprop", "adagrad", wisp.optim.Adam):
        NetClassifier(optimizer=name, max_epochs=2).fit(X, y)
    NetClassifier(max_epochs=2, verbose=True).fit(X, y)
    assert "loss" in "".join(capsys.readouterr())
