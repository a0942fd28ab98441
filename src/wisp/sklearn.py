"""Networks with scikit-learn's habits: `fit`, `predict`, `score`, in pipelines and grid searches.

    >>> from sklearn.datasets import load_iris
    >>> from wisp.sklearn import NetClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> net = NetClassifier(random_state=0).fit(X, y)
    >>> net.score(X, y) > 0.95
    True

Needs scikit-learn: `pip install 'wisp[sklearn]'`.
"""

import copy
import math

import numpy

import wisp
from wisp import _reference, nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("wisp.sklearn needs scikit-learn 1.6 or newer: pip install 'wisp[sklearn]'") from error

__all__ = ["NetClassifier", "NetRegressor"]

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "rmsprop": "RMSprop", "adagrad": "Adagrad"}
_EVALUATE = 4096  # rows at a time


def _multilayer(inputs, outputs, hidden, activation):
    sizes = [inputs, *hidden]
    layers = []
    for size, following in zip(sizes, sizes[1:]):
        layers += [nn.Linear(size, following), getattr(nn, activation)()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], outputs))


class _Net(BaseEstimator):
    """What classifier and regressor have in common. Subclasses say how targets and losses look."""

    def __init__(
        self,
        module=None,
        *,
        hidden=(64, 64),
        activation="ReLU",
        criterion=None,
        optimizer="adam",
        lr=0.005,
        weight_decay=0.0,
        max_epochs=200,
        batch_size=200,
        shuffle=True,
        scale=True,
        early_stopping=False,
        validation_fraction=0.1,
        patience=10,
        tol=1e-4,
        warm_start=False,
        device="cpu",
        random_state=None,
        verbose=False,
    ):
        self.module = module
        self.hidden = hidden
        self.activation = activation
        self.criterion = criterion
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.scale = scale
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------ data
    def _checked(self, X, reset, **options):
        """X, and y if it is given, by scikit-learn's rules; X as a float array."""
        return validate_data(self, X, dtype=(numpy.float64, numpy.float32), allow_nd=True, reset=reset, **options)

    def _checked_pair(self, X, y, reset):
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return self._checked(X, reset, y=y, multi_output=True, y_numeric=self._numeric_targets)

    def _tensor(self, array):
        return wisp.tensor(numpy.ascontiguousarray(array)).to(self.device)

    def _scaled(self, X):
        return (X - self.input_mean_) / self.input_scale_

    def _measure(self, X, weights):
        """Mean and spread of each input, to scale by; both from the weighted rows."""
        if not self.scale:
            return numpy.zeros((), X.dtype), numpy.ones((), X.dtype)
        mean = numpy.average(X, axis=0, weights=weights)
        spread = numpy.sqrt(numpy.average((X - mean) ** 2, axis=0, weights=weights))
        spread[spread < 10 * numpy.finfo(X.dtype).eps * numpy.maximum(1, abs(mean))] = 1
        return mean.astype(X.dtype), spread.astype(X.dtype)

    # ------------------------------------------------------------ the network and its optimizer
    def _make_module(self, inputs):
        if self.module is None:
            made = _multilayer(math.prod(inputs), self._outputs, self.hidden, self.activation)
        elif isinstance(self.module, nn.Module):
            made = copy.deepcopy(self.module)
        else:
            made = self.module(inputs[0], self._outputs)
        return made.to(self.device)

    def _make_optimizer(self):
        kind = self.optimizer
        if isinstance(kind, str):
            if kind.lower() not in _OPTIMIZERS:
                raise ValueError(f"optimizer: expected one of {sorted(_OPTIMIZERS)} or an optimizer's class, got {kind!r}")
            kind = getattr(wisp.optim, _OPTIMIZERS[kind.lower()])
        return kind(self.module_.parameters(), lr=self.lr, weight_decay=self.weight_decay)

    def _begin(self, X, weights):
        """A fresh network for data like X."""
        self.input_mean_, self.input_scale_ = self._measure(X, weights)
        with wisp.random.fork_rng():
            wisp.manual_seed(self._seed())
            module = self._make_module(X.shape[1:])
        self.dtype_ = X.dtype
        self.module_ = module.to(getattr(wisp, X.dtype.name))
        self.optimizer_ = self._make_optimizer()
        self.history_ = []
        self.n_epochs_ = 0

    def _seed(self):
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # ------------------------------------------------------------ training
    def _batch_loss(self, X, y, weights):
        losses = (self.criterion or self._losses)(self.module_(X), y)
        if weights is None:
            return losses.mean()
        if losses.dim() == 0:
            raise ValueError(
                "sample_weight needs a criterion that returns one loss for each row, such as "
                "functools.partial(cross_entropy, reduction='none')"
            )
        losses = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        return (losses * weights).sum() / weights.sum()

    def _epoch(self, X, y, weights, order):
        self.module_.train()
        total, parts = 0.0, 0
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            batch_weights = None if weights is None else weights[rows]
            if batch_weights is not None and not batch_weights.sum() > 0:
                continue
            self.optimizer_.zero_grad()
            loss = self._batch_loss(X[rows], y[rows], batch_weights)
            loss.backward()
            self.optimizer_.step()
            total, parts = total + loss.item() * len(rows), parts + len(rows)
        return total / max(parts, 1)

    def _check_settings(self):
        for name in ("max_epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if not isinstance(value, (int, numpy.integer)) or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")
        if self.early_stopping and not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction: expected a number between 0 and 1, got {self.validation_fraction!r}")

    def _train(self, X, y, weights, epochs, early_stopping):
        self._check_settings()
        generator = wisp.Generator().manual_seed(self._seed() + self.n_epochs_)
        X = self._tensor(self._scaled(X).astype(self.dtype_, copy=False))
        y = self._tensor(y.astype(self.dtype_, copy=False) if self._numeric_targets else y)
        weights = None if weights is None else self._tensor(weights.astype(self.dtype_, copy=False))
        rows, held = wisp.arange(len(X)), None
        if early_stopping:
            mixed = wisp.randperm(len(X), generator=generator)
            count = max(1, round(self.validation_fraction * len(X)))
            held, rows = mixed[:count], mixed[count:]
            if not len(rows):
                raise ValueError(f"early_stopping: {len(X)} sample is too few to hold some of them back")
        best, best_state, waited = math.inf, None, 0
        bar = None
        if self.verbose:
            from wisp import progress

            bar = progress.bar(range(epochs), type(self).__name__)
        with wisp.random.fork_rng():
            wisp.manual_seed(self._seed() + self.n_epochs_)
            for _ in bar if bar is not None else range(epochs):
                order = rows[wisp.randperm(len(rows), generator=generator)] if self.shuffle else rows
                record = {"epoch": self.n_epochs_ + 1, "loss": self._epoch(X, y, weights, order)}
                if held is not None:
                    record["valid_loss"] = self._evaluate(X[held], y[held], None if weights is None else weights[held])
                self.history_.append(record)
                self.n_epochs_ += 1
                if bar is not None:
                    bar.set(**{name: value for name, value in record.items() if name != "epoch"})
                if held is None:
                    continue
                if record["valid_loss"] < best - self.tol:
                    best, waited, best_state = record["valid_loss"], 0, copy.deepcopy(self.module_.state_dict())
                else:
                    waited += 1
                    if waited >= self.patience:
                        break
        if best_state is not None:
            self.module_.load_state_dict(best_state)
        self.module_.eval()
        return self

    def _evaluate(self, X, y, weights):
        self.module_.eval()
        with wisp.no_grad():
            return self._batch_loss(X, y, weights).item()

    def _weights(self, sample_weight, X):
        if sample_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if not weights.sum() > 0:
            raise ValueError("sample_weight: all weights are zero")
        return weights

    def fit(self, X, y, sample_weight=None):
        """Train for `max_epochs` (fewer with early stopping), from the beginning unless `warm_start`."""
        again = self.warm_start and hasattr(self, "module_")
        X, y = self._checked_pair(X, y, reset=True)
        weights = self._weights(sample_weight, X)
        y = self._fit_targets(y, weights, keep=again)
        if not again:
            self._begin(X, weights)
        return self._train(X, y, weights, self.max_epochs, self.early_stopping)

    def _partial_fit(self, X, y, sample_weight, **options):
        first = not hasattr(self, "module_")
        X, y = self._checked_pair(X, y, reset=first)
        weights = self._weights(sample_weight, X)
        y = self._fit_targets(y, weights, keep=not first, **options)
        if first:
            self._begin(X, weights)
        return self._train(X, y, weights, 1, False)

    # ------------------------------------------------------------ use
    def _forward(self, X):
        check_is_fitted(self, "module_")
        X = self._checked(X, reset=False)
        X = self._scaled(X).astype(self.dtype_, copy=False)
        self.module_.eval()
        with wisp.no_grad():
            parts = [self._output(self.module_(self._tensor(X[start : start + _EVALUATE]))).cpu() for start in range(0, len(X), _EVALUATE)]
        return wisp.cat(parts).numpy()

    def __sklearn_is_fitted__(self):
        return hasattr(self, "module_")


_PARAMETERS = """
    `module` is None for a multilayer perceptron with `hidden` layers, a `Module` (copied before training), or a function
    `module(inputs, outputs)` that makes one. `optimizer` is a name (adam, adamw, sgd, rmsprop, adagrad) or a class.
    `criterion(output, target)` replaces the loss. With `scale`, inputs are brought to mean 0 and spread 1.
    `early_stopping` holds back `validation_fraction` of the rows, stops when their loss has not fallen by `tol` for
    `patience` epochs, and keeps the best weights. With `warm_start`, `fit` goes on from where the last one ended.
    `verbose` shows a progress bar.

    After `fit`: `module_` is the network, `history_` has the losses of each epoch, `n_epochs_` counts them.
"""


class NetClassifier(ClassifierMixin, _Net):
    __doc__ = (
        """A network that classifies.
    """
        + _PARAMETERS
        + """
    >>> import numpy
    >>> from wisp import nn
    >>> from wisp.sklearn import NetClassifier
    >>> X = numpy.array([[0., 0], [0, 1], [1, 0], [1, 1]])
    >>> net = NetClassifier(hidden=(16,), random_state=1).fit(X, ["no", "yes", "yes", "no"])
    >>> net.predict(X).tolist()
    ['no', 'yes', 'yes', 'no']
    >>> small = NetClassifier(lambda inputs, outputs: nn.Linear(inputs, outputs))
    >>> small.fit(X, [0, 0, 1, 1]).predict_proba(X).shape
    (4, 2)
    """
    )
    _numeric_targets = False

    @staticmethod
    def _losses(output, target):
        return nn.functional.cross_entropy(output, target, reduction="none")

    @staticmethod
    def _output(output):
        return output.softmax(1)

    @property
    def _outputs(self):
        return len(self.classes_)

    def _fit_targets(self, y, weights, keep, classes=None):
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if classes is not None:
            if keep and not numpy.array_equal(self.classes_, numpy.unique(classes)):
                raise ValueError(f"classes={classes!r} is not the same as in the first call: {self.classes_!r}")
            found = numpy.unique(classes)
        else:
            found = numpy.unique(y)
        if not keep:
            self.classes_ = found
        unknown = numpy.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has classes {unknown.tolist()} that the network was not made for: {self.classes_.tolist()}")
        return numpy.searchsorted(self.classes_, y)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """One epoch over these rows. The first call needs all `classes`."""
        if classes is None and not hasattr(self, "classes_"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return self._partial_fit(X, y, sample_weight, classes=classes)

    def predict_proba(self, X):
        """The probability of each class, for each row."""
        return self._forward(X)

    def predict_log_proba(self, X):
        """The logarithm of `predict_proba`."""
        with numpy.errstate(divide="ignore"):
            return numpy.log(self.predict_proba(X))

    def predict(self, X):
        """The most probable class of each row."""
        probabilities = self._forward(X)
        return self.classes_[probabilities.argmax(1)]


class NetRegressor(RegressorMixin, _Net):
    __doc__ = (
        """A network that predicts numbers, one or several for each row.
    """
        + _PARAMETERS
        + """    With `scale`, the targets are scaled too while training.

    >>> import numpy
    >>> from wisp.sklearn import NetRegressor
    >>> X = numpy.linspace(-3, 3, 100)[:, None]
    >>> net = NetRegressor(random_state=0).fit(X, numpy.sin(X[:, 0]))
    >>> net.score(X, numpy.sin(X[:, 0])) > 0.99
    True
    """
    )
    _numeric_targets = True

    @staticmethod
    def _losses(output, target):
        return ((output - target) ** 2).mean(1)

    def _output(self, output):
        scale, mean = (self._tensor(part).to(output.dtype) for part in (self.target_scale_, self.target_mean_))
        return output.reshape(len(output), -1) * scale + mean

    @property
    def _outputs(self):
        return self.n_outputs_

    def _fit_targets(self, y, weights, keep):
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        flat = y.ndim == 1
        y = y.reshape(len(y), -1).astype(numpy.float64 if y.dtype.kind != "f" else y.dtype)
        if keep:
            if y.shape[1] != self.n_outputs_:
                raise ValueError(f"y has {y.shape[1]} outputs, the network was made for {self.n_outputs_}")
        else:
            self._flat, self.n_outputs_ = flat, y.shape[1]
            self.target_mean_, self.target_scale_ = self._measure(y, weights)
        return (y - self.target_mean_) / self.target_scale_

    def partial_fit(self, X, y, sample_weight=None):
        """One epoch over these rows."""
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X):
        """The numbers of each row."""
        values = self._forward(X)
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


_reference.attach(__name__, globals())
