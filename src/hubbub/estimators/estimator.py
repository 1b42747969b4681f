"""The base of all estimators: scikit-learn's interface, and inputs that no row can make fail.

An estimator holds its parameters; `fit` learns the attributes that end in an underscore. No error depends on
the content of a row: it would disclose the row. Errors are about parameters, shapes and types, and are raised
before anything is charged.
"""

import copy
import sys
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import Account, PrivacyLoss, Receipt
from hubbub.accounting.in_memory_account import UNSPECIFIED, Unspecified, resolve_account
from hubbub.errors import InvalidInput, Refused
from hubbub.estimators.fit_budget import FitBudget, FitMeasurer
from hubbub.estimators.fixed_point import FeatureBounds, FixedPoint
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.sensitivity import Sensitivity
from hubbub.unit import Unit, elementwise_array, has_dtype, is_valid_identifier

__all__ = ["Classifier", "Estimator", "to_matrix", "to_target"]

Reals = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(ABC):
    """Abstract: the parameters of every estimator, and the steps of a fit.

    Guarantee: a fit costs each unit at most (ε, δ), and is charged before anything is computed from rows.
    Assumes: parameters, shapes and dtypes are public; the estimator sees the rows through `fit` only. Each
        element of a list is converted separately.
    Proof: docs/proofs/estimators.md
    """

    epsilon: Number
    """The ε of one fit."""
    delta: Number = 0
    """The δ of one fit: above 0 the noise is Gaussian; at 0 it is Laplace, and the privacy pure."""
    bounds: Any
    """(low, high) of the features, each one number or one per feature: public. Values outside are clamped."""
    unit: Unit | None = None
    """The unit of privacy: None for one row, added or removed; with a key, `fit` takes `units`."""
    rows_per_unit: int = 1
    """How many rows of a unit count: its first ones."""
    account: Account | Unspecified | None = UNSPECIFIED
    """The account that each fit is charged to, also a clone's; None must be passed to charge none."""
    population: int | None = None
    """The public number of people: required for a δ above 1/1000."""
    allow_large_epsilon: bool = False
    """Confirms a large ε, as for `Budget`."""

    n_features_in_: int = field(init=False)
    feature_names_in_: NDArray[Any] = field(init=False)
    """The names of the columns, if `fit` was given a data frame."""
    loss_: PrivacyLoss = field(init=False)
    release_: Release = field(init=False)
    receipt_: Receipt | None = field(init=False)

    estimator_type: ClassVar[str]
    """scikit-learn's type: classifier, regressor, clusterer or transformer."""

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Charge, then learn from the rows.

        Args:
            X: the rows, one per sample.
            y: the targets or labels, one per row.
            units: the unit of each row, if the unit has a key.
        """

    # scikit-learn's interface

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - scikit-learn's
        """Return the parameters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; the next fit uses them."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidInput(
                    f"{name} is not a parameter of {type(self).__name__}",
                    why="it would change nothing",
                    fix=f"pass one of {', '.join(known)}",
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = {each.name: each.default for each in fields(self)}
        parameters = (
            f"{name}={value!r}" for name, value in self.get_params().items() if value is not default[name]
        )
        return f"{type(self).__name__}({', '.join(parameters)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import (  # only scikit-learn asks, so it is there
            ClassifierTags,
            InputTags,
            RegressorTags,
            Tags,
            TargetTags,
            TransformerTags,
        )

        supervised = self.estimator_type in {"classifier", "regressor"}
        return Tags(
            estimator_type=None if self.estimator_type == "transformer" else self.estimator_type,
            target_tags=TargetTags(required=supervised),
            transformer_tags=TransformerTags() if self.estimator_type == "transformer" else None,
            classifier_tags=ClassifierTags() if self.estimator_type == "classifier" else None,
            regressor_tags=RegressorTags() if self.estimator_type == "regressor" else None,
            # Rows with a non-finite value are ignored; and every fit draws new noise.
            input_tags=InputTags(allow_nan=True),
            non_deterministic=True,
        )

    def __sklearn_clone__(self) -> Self:
        # A copied account would be a second budget: clones spend from the same one.
        return type(self)(**{name: _copy_parameter(name, value) for name, value in self.get_params().items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = copy.copy(self)
        memo[id(self)] = clone
        for name, value in vars(self).items():
            setattr(clone, name, value if name == "account" else copy.deepcopy(value, memo))
        return clone

    def __copy__(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # An account is not stored: an unpickled estimator predicts, but cannot spend.
        elsewhere = (
            self.account if self.account is None or isinstance(self.account, str) else _DetachedAccount()
        )
        return {**self.__dict__, "account": elsewhere}

    # Steps of a fit

    def _feature_bounds(self, features: int) -> FeatureBounds:
        return FeatureBounds.of(self.bounds, features, "bounds")

    def _make_budget(self) -> FitBudget:
        budget = FitBudget.of(
            self.epsilon,
            self.delta,
            self.unit,
            self.rows_per_unit,
            population=self.population,
            allow_large_epsilon=self.allow_large_epsilon,
        )
        resolve_account(self.account)
        if budget.unit.window is not None:
            raise Refused(
                "the unit has a window",
                why="rows here have no time, so rows outside the window would count",
                fix="pass the rows of the window alone, and a unit without one",
            )
        theirs = getattr(self.account, "unit", None) or budget.unit
        if theirs != budget.unit:
            raise Refused(
                f"the account protects {theirs}, the fit {budget.unit}",
                why="the noise would protect another unit, or too little",
                fix="pass the account's unit as unit=, and units= to fit where it has a key",
            )
        return budget

    def _charge(self, budget: FitBudget, *measurements: tuple[Sensitivity, Fraction]) -> FitMeasurer:
        """Charge the fit. From here on the rows may be read.

        Args:
            budget: what the fit costs.
            measurements: the sensitivity and the share of the budget of each kind of measurement. Noise that
                cannot be sampled is refused before anything is charged.
        """
        for sensitivity, share in measurements:
            budget.mechanism(sensitivity, share)
        return FitMeasurer(f"{type(self).__name__}.fit", budget, resolve_account(self.account))

    def _finish(self, measurer: FitMeasurer, learned: dict[str, Any], features: int, X: Any) -> Self:  # noqa: N803
        """Set the learned attributes."""
        self.n_features_in_ = features
        vars(self).pop("feature_names_in_", None)
        if (names := _feature_names(X)) is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.loss_ = measurer.budget.loss
        self.receipt_ = measurer.receipt
        self.release_ = measurer.release(learned)
        for name, value in learned.items():
            setattr(self, name, value)
        return self

    def _to_fixed_point(
        self, box: FeatureBounds, rows: Reals, units: Any
    ) -> tuple[FixedPoint, NDArray[np.bool_]]:
        """Return the rows in fixed point, and which of them count."""
        fixed, is_valid = box.to_fixed_point(rows)
        return fixed, is_valid & self._select_rows(units, len(rows))

    def _select_rows(self, units: Any, rows: int) -> NDArray[np.bool_]:
        """Return which rows count: all of them, or the first ones of each unit.

        Guarantee: which rows of a unit count depends on its own rows only, up to rows_per_unit of them.
        Proof: docs/proofs/estimators.md, "Rows of one unit"
        """
        if units is None:
            return np.ones(rows, dtype=np.bool_)
        seen: dict[Any, int] = {}
        counts = np.zeros(rows, dtype=np.bool_)
        for place, unit in enumerate(elementwise_array(units).tolist()):
            try:
                number = seen.get(unit, 0) if is_valid_identifier(unit) else self.rows_per_unit
                counts[place] = number < self.rows_per_unit
                seen[unit] = number + 1
            except Exception:  # noqa: BLE001 - hashing and comparing run the keys' own code
                counts[place] = False
        return counts

    def _check_units(self, units: Any, rows: int) -> None:
        is_keyed = self.unit is not None and self.unit.key is not None
        if is_keyed != (units is not None):
            raise InvalidInput(
                "units is not given" if is_keyed else "units is given, but a row is the unit",
                why="the rows of one unit are counted together",
                fix="pass the unit of every row as units=, and unit=Unit(…) when it is made",
            )
        if units is not None and elementwise_array(units).shape != (rows,):
            raise InvalidInput(
                "units does not have one entry for each row",
                why="every row belongs to one unit",
                fix="pass a list as long as the rows",
            )

    def _check_fitted(self, X: Any) -> Reals:  # noqa: N803
        """Return the rows as a matrix, if the estimator is fitted and the features match."""
        if not hasattr(self, "n_features_in_"):
            raise _not_fitted_error(type(self).__name__)
        rows = to_matrix(X)
        if rows.shape[1] != self.n_features_in_:
            raise InvalidInput(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input",
                why="it was fitted on that number of features",
                fix="pass the features that it was fitted on",
            )
        names, known = _feature_names(X), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != known.tolist():
            raise InvalidInput(
                "The feature names should match those that were passed during fit",
                why="features are matched by position, and these are different or in another order",
                fix="pass the columns in the order of feature_names_in_: X[list(model.feature_names_in_)]",
            )
        return rows


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(Estimator):
    """Abstract: an estimator of labels from a public set of classes."""

    classes: Any
    """The possible labels, two or more: public. A row with another label is ignored."""

    classes_: NDArray[Any] = field(init=False)

    estimator_type: ClassVar[str] = "classifier"

    @abstractmethod
    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """Return the probability of each class, row by row."""

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most likely class of each row."""
        probabilities = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[np.argmax(probabilities, axis=1)]
        return labels

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the accuracy on these rows: exact, so use public rows only."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def _check_classes(self) -> NDArray[Any]:
        """Return the declared classes as an array."""
        try:
            labels = np.asarray(self.classes)
            distinct = labels.ndim == 1 and len(labels) >= 2 and len(set(labels.tolist())) == len(labels)
        except (TypeError, ValueError):
            distinct = False
        if not distinct:
            raise InvalidInput(
                "classes is not a list of two or more distinct labels",
                why="the set of labels is public, and never taken from the rows",
                fix="pass a list, such as classes=[0, 1]",
            )
        return labels

    def _check_labels(self, y: Any, rows: int, labels: NDArray[Any]) -> NDArray[Any]:
        """Return one label for each row; a (public) dtype that cannot match the classes is refused."""
        targets = to_target(y, rows, type(self).__name__)
        numbers, texts = set("biuf"), set("US")
        kinds = {targets.dtype.kind, labels.dtype.kind}
        if _has_numpy_dtype(y) and kinds & numbers and kinds & texts:
            raise InvalidInput(
                "classes and y are of different types: one is text, the other is numeric",
                why="no row would be of a declared class",
                fix="declare the classes as y has them",
            )
        return targets

    @staticmethod
    def _encode_labels(y: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the index of each row's class, −1 for an undeclared label."""
        codes = np.full(len(y), -1, dtype=np.int64)
        numbers = {label: number for number, label in enumerate(labels.tolist())}
        for place, label in enumerate(y.tolist()):
            codes[place] = _find_code(numbers, label)
        return codes


def _has_numpy_dtype(y: Any) -> bool:
    """Return whether the dtype is numpy's own; otherwise the array's dtype could depend on one element."""
    kinds = [y.dtype] if hasattr(y, "dtype") else list(getattr(y, "dtypes", ()))
    return bool(kinds) and all(isinstance(kind, np.dtype) for kind in kinds)


def to_matrix(data: Any) -> Reals:
    """Convert rows to doubles; what is no number becomes NaN, and no row raises.

    >>> to_matrix([[1, "2"], [None, "three"]]).tolist()
    [[1.0, 2.0], [nan, nan]]
    """
    if hasattr(data, "tocsr") or isinstance(data, np.ma.MaskedArray):
        raise InvalidInput(
            f"X is a {type(data).__name__}: sparse and masked input is not supported",
            why="rows are clipped and scaled as plain numbers",
            fix="pass a plain array: for sparse data X.toarray()",
        )
    if any(getattr(kind, "kind", "") in {"M", "m"} for kind in getattr(data, "dtypes", ())):
        raise InvalidInput(
            "X has a column of dates or durations",
            why="features are real numbers, and every row would be ignored",
            fix="leave it out, or make a number of it, such as days since 2000",
        )
    try:
        rows = np.asarray(data) if has_dtype(data) else _cells_to_array(data)
        rows = rows.astype(object) if rows.dtype.kind in "US" else rows
    except Exception:  # noqa: BLE001 - making an array runs the cells' own code
        raise _shape_error() from None
    if not len(rows) and not has_dtype(data):
        raise InvalidInput(
            "X is an empty list",
            why="without rows a list does not show the number of features",
            fix="pass an array with a shape: numpy.empty((0, features))",
        )
    if rows.ndim != 2:
        raise _shape_error()
    if rows.shape[1] == 0:
        raise InvalidInput(
            "0 feature(s) (shape=(, 0)) while a minimum of 1 is required",  # without the number of rows
            why="there is nothing to learn from",
            fix="pass rows with features",
        )
    if rows.dtype.kind in "biu" or (rows.dtype.kind == "f" and rows.dtype.itemsize <= 8):
        with np.errstate(all="ignore"):
            return rows.astype(np.float64)
    if rows.dtype.kind == "O":
        with warnings.catch_warnings(action="ignore"):  # a warning would disclose an element
            numbers = [_to_float(cell) for cell in rows.ravel().tolist()]
        return np.array(numbers, dtype=np.float64).reshape(rows.shape)
    raise InvalidInput(
        "Complex data not supported" if rows.dtype.kind == "c" else f"X is of {rows.dtype.type.__name__}",
        why="features are real numbers",
        fix="pass an array of floats, integers or booleans",
    )


def to_target(y: Any, rows: int, name: str) -> NDArray[Any]:
    """Return the target as a vector with one entry for each row."""
    if y is None:
        raise InvalidInput(
            f"{name} requires y to be passed, but the target y is None",
            why="it learns from labelled rows",
            fix="pass y to fit",
        )
    target = elementwise_array(y)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.shape != (rows,):
        raise InvalidInput(
            "y does not have one entry for each row of X",
            why="every row has one target",
            fix="pass a list as long as X",
        )
    return target


def _feature_names(frame: Any) -> list[str] | None:
    """Return the column names of a data frame, which are public; None unless all are texts."""
    try:
        columns = frame.column_names if hasattr(frame, "column_names") else frame.columns
        names = list(columns)
    except Exception:  # noqa: BLE001 - anything that is no data frame
        return None
    return [str(name) for name in names] if names and all(isinstance(n, str) for n in names) else None


def _cells_to_array(cells: Any) -> NDArray[Any]:
    """Convert a list of rows element by element."""
    rows = [list(row) for row in cells]
    table = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for place, row in enumerate(rows):
        if len(row) != table.shape[1]:
            raise _shape_error()
        for number, cell in enumerate(row):
            table[place, number] = cell
    return table


def _to_float(cell: Any) -> float:
    try:
        return float("nan") if isinstance(cell, np.complexfloating) else float(cell)
    except Exception:  # noqa: BLE001 - converting runs the cell's own code
        return float("nan")


def _find_code(numbers: dict[Any, int], label: Any) -> int:
    try:
        return numbers.get(label, -1)
    except Exception:  # noqa: BLE001 - hashing and comparing run the label's own code
        return -1


def _copy_parameter(name: str, value: Any) -> Any:
    return value if name == "account" else copy.deepcopy(value)


class _DetachedAccount:
    """Stands for the account of an unpickled estimator: nothing can be charged."""

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:  # noqa: ARG002
        raise Refused(
            "the estimator was pickled without its account",
            why="a copy of an account would be a second budget",
            fix="use set_params(account=…) before fitting again",
        )


def _not_fitted_error(name: str) -> InvalidInput:
    kind = _sklearn_not_fitted() if "sklearn" in sys.modules else InvalidInput
    return kind(f"this {name} is not fitted yet", why="it has learned nothing", fix="call fit first")


@cache
def _sklearn_not_fitted() -> type[InvalidInput]:
    """Return our error class, which is scikit-learn's NotFittedError too."""
    from sklearn.exceptions import NotFittedError

    return type("NotFitted", (InvalidInput, NotFittedError), {})


def _shape_error() -> InvalidInput:
    return InvalidInput(
        "X is not a table of rows and features: Expected 2D array",
        why="every row has the same features",
        fix="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row",
    )
