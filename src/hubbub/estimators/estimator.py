"""What all estimators share: scikit-learn's way of being asked, and rows that cannot make them fail.

An estimator is its parameters; `fit` learns what ends in an underscore. Nothing is raised because of what
is in a row: such an error would tell about it. Errors are about parameters, shapes and types, and come
before anything is charged.
"""

import copy
import sys
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import Account, PrivacyLoss, Receipt
from hubbub.accounting.in_memory_account import UNSPECIFIED, Unspecified, resolve_account
from hubbub.errors import InvalidInput, Refused
from hubbub.estimators.fit_budget import Measuring, Price
from hubbub.estimators.fixed_point import Box
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.unit import Unit, elementwise_array, has_dtype, is_valid_identifier

__all__ = ["Classifier", "Estimator", "column", "matrix"]

Reals = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(ABC):
    """Abstract: the parameters of every estimator, and how one is fitted.

    Guarantee: a fit costs no unit more than (ε, δ), and is charged before anything is computed from rows.
    Assumes: parameters, shapes and the types of arrays are public; the estimator sees the rows through `fit`
        alone. Of lists every cell is read by itself.
    Proof: docs/proofs/estimators.md
    """

    epsilon: Number
    """The ε of one fit."""
    delta: Number = 0
    """Its δ: above 0 the noise is Gaussian; at 0 it is Laplace, and the promise pure."""
    bounds: Any
    """(low, high) of the features, each one number or one for each: public. What is outside is moved in."""
    unit: Unit | None = None
    """Who is protected: None for one row, added or removed; with a key, `fit` is given `units`."""
    rows_per_unit: int = 1
    """Of a unit with a key, so many rows count: its first ones."""
    account: Account | Unspecified | None = UNSPECIFIED
    """What each fit is charged to, also a copy's; None, which must be said, where nobody keeps count."""
    population: int | None = None
    """The public number of people, which a δ above 1/1000 is judged against."""
    allow_large_epsilon: bool = False
    """Confirms an ε above 20."""

    n_features_in_: int = field(init=False)
    feature_names_in_: NDArray[Any] = field(init=False)
    """The names of the columns, where `fit` was given a data frame."""
    loss_: PrivacyLoss = field(init=False)
    release_: Release = field(init=False)
    receipt_: Receipt | None = field(init=False)

    kind: ClassVar[str]
    """What scikit-learn calls it: classifier, regressor, clusterer or transformer."""

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Charge, then learn from the rows."""

    # How scikit-learn asks

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - scikit-learn's
        """The parameters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; the next fit uses them."""
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
        shown = (
            f"{name}={value!r}" for name, value in self.get_params().items() if value is not default[name]
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import (  # only scikit-learn asks, so it is there
            ClassifierTags,
            InputTags,
            RegressorTags,
            Tags,
            TargetTags,
            TransformerTags,
        )

        supervised = self.kind in {"classifier", "regressor"}
        return Tags(
            estimator_type=None if self.kind == "transformer" else self.kind,
            target_tags=TargetTags(required=supervised),
            transformer_tags=TransformerTags() if self.kind == "transformer" else None,
            classifier_tags=ClassifierTags() if self.kind == "classifier" else None,
            regressor_tags=RegressorTags() if self.kind == "regressor" else None,
            # A row that is not finite counts as none; and no fit is like another.
            input_tags=InputTags(allow_nan=True),
            non_deterministic=True,
        )

    def __sklearn_clone__(self) -> Self:
        # A copied account would be a second budget: copies spend from the same one.
        return type(self)(**{name: _copied(name, value) for name, value in self.get_params().items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = copy.copy(self)
        memo[id(self)] = made
        for name, value in vars(self).items():
            setattr(made, name, value if name == "account" else copy.deepcopy(value, memo))
        return made

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __getstate__(self) -> dict[str, Any]:
        # An account stays where it is: what is read elsewhere predicts, but cannot spend.
        elsewhere = self.account if self.account is None or isinstance(self.account, str) else _Elsewhere()
        return {**self.__dict__, "account": elsewhere}

    # How a fit begins

    def _box(self, features: int) -> Box:
        return Box.of(self.bounds, features, "bounds")

    def _price(self) -> Price:
        price = Price.of(
            self.epsilon,
            self.delta,
            self.unit,
            self.rows_per_unit,
            population=self.population,
            allow_large_epsilon=self.allow_large_epsilon,
        )
        resolve_account(self.account)
        if price.unit.window is not None:
            raise Refused(
                "the unit is one person within a window of time",
                why="rows here have no time, so those outside of it would count",
                fix="pass the rows of the window alone, and a unit without one",
            )
        theirs = getattr(self.account, "unit", None) or price.unit
        if theirs != price.unit:
            raise Refused(
                f"the account protects {theirs}, the fit {price.unit}",
                why="its noise would protect somebody else, or too little",
                fix="pass the account's unit as unit=, and units= to fit where it has a key",
            )
        return price

    def _begin(self, price: Price) -> Measuring:
        """Charge. From here on the rows may be read."""
        return Measuring(f"{type(self).__name__}.fit", price, resolve_account(self.account))

    def _end(self, measuring: Measuring, learned: dict[str, Any], features: int, X: Any) -> Self:  # noqa: N803
        """Take over what was learned."""
        self.n_features_in_ = features
        vars(self).pop("feature_names_in_", None)
        if (names := _names(X)) is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.loss_ = measuring.price.loss
        self.receipt_ = measuring.receipt
        self.release_ = measuring.release(learned)
        for name, value in learned.items():
            setattr(self, name, value)
        return self

    def _first_rows(self, units: Any, rows: int) -> NDArray[np.bool_]:
        """Which rows count: all of them, or the first ones of each unit.

        Guarantee: what counts of a unit depends on its own rows alone, and is no more than the limit.
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
                "units has not one entry for each row",
                why="every row belongs to one unit",
                fix="pass a list as long as the rows",
            )

    def _fitted(self, X: Any) -> Reals:  # noqa: N803
        """The rows to be looked at with what was learned."""
        if not hasattr(self, "n_features_in_"):
            raise _not_fitted(type(self).__name__)
        rows = matrix(X)
        if rows.shape[1] != self.n_features_in_:
            raise InvalidInput(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input",
                why="it was fitted on so many",
                fix="pass the features that it was fitted on",
            )
        names, known = _names(X), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != known.tolist():
            raise InvalidInput(
                "The feature names should match those that were passed during fit",
                why="features are taken by their place, and these are others, or in another order",
                fix="pass the columns in the order of feature_names_in_: X[list(model.feature_names_in_)]",
            )
        return rows


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(Estimator):
    """Abstract: an estimator of labels; which there are is public."""

    classes: Any
    """The labels there may be, two or more: public. A row with another counts as none."""

    classes_: NDArray[Any] = field(init=False)

    kind: ClassVar[str] = "classifier"

    @abstractmethod
    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """The chances of the classes, row by row."""

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        chances = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[np.argmax(chances, axis=1)]
        return labels

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """The share of rows that are predicted rightly: exact, so only for rows that are nobody's secret."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def _labels(self) -> NDArray[Any]:
        """The declared classes."""
        try:
            labels = np.asarray(self.classes)
            distinct = labels.ndim == 1 and len(labels) >= 2 and len(set(labels.tolist())) == len(labels)
        except (TypeError, ValueError):
            distinct = False
        if not distinct:
            raise InvalidInput(
                "classes is not a list of two or more distinct labels",
                why="which labels there are is public, and never taken from the rows",
                fix="pass such as classes=[0, 1]",
            )
        return labels

    def _answers(self, y: Any, rows: int, labels: NDArray[Any]) -> NDArray[Any]:
        """One label for each row, of the classes' type if the column has one: that is public."""
        given = column(y, rows, type(self).__name__)
        numbers, texts = set("biuf"), set("US")
        kinds = {given.dtype.kind, labels.dtype.kind}
        if _has_plain_type(y) and kinds & numbers and kinds & texts:
            raise InvalidInput(
                "classes and y are not of one type: texts here, numbers there",
                why="no row would be of a declared class",
                fix="declare the classes as y has them",
            )
        return given

    @staticmethod
    def _codes(y: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
        """The number of each row's class, −1 for a label that was not declared."""
        codes = np.full(len(y), -1, dtype=np.int64)
        numbers = {label: number for number, label in enumerate(labels.tolist())}
        for place, label in enumerate(y.tolist()):
            codes[place] = _number(numbers, label)
        return codes


def _has_plain_type(y: Any) -> bool:
    """Whether its type is numpy's own; of others that of the array made of it may follow from one cell."""
    kinds = [y.dtype] if hasattr(y, "dtype") else list(getattr(y, "dtypes", ()))
    return bool(kinds) and all(isinstance(kind, np.dtype) for kind in kinds)


def matrix(given: Any) -> Reals:
    """Rows of numbers as doubles; what is no number becomes NaN, and nothing in a row raises.

    >>> matrix([[1, "2"], [None, "three"]]).tolist()
    [[1.0, 2.0], [nan, nan]]
    """
    if hasattr(given, "tocsr") or isinstance(given, np.ma.MaskedArray):
        raise InvalidInput(
            f"X is a {type(given).__name__}: sparse and masked input is not supported",
            why="rows are clipped and scaled as plain numbers",
            fix="pass a plain array: for sparse data X.toarray()",
        )
    if any(getattr(kind, "kind", "") in {"M", "m"} for kind in getattr(given, "dtypes", ())):
        raise InvalidInput(
            "X has a column of dates or durations",
            why="features are real numbers, and no row would count",
            fix="leave it out, or make a number of it, such as days since 2000",
        )
    try:
        rows = np.asarray(given) if has_dtype(given) else _table(given)
        rows = rows.astype(object) if rows.dtype.kind in "US" else rows
    except Exception:  # noqa: BLE001 - making an array runs the cells' own code
        raise _wrong_shape() from None
    if not len(rows) and not has_dtype(given):
        raise InvalidInput(
            "X is an empty list",
            why="how many features a row has is said by the rows of a list alone",
            fix="pass an array, whose shape says it also where there are no rows: numpy.empty((0, features))",
        )
    if rows.ndim != 2:
        raise _wrong_shape()
    if rows.shape[1] == 0:
        raise InvalidInput(
            "0 feature(s) (shape=(, 0)) while a minimum of 1 is required",  # how many rows is not said
            why="there is nothing to learn from",
            fix="pass rows with features",
        )
    if rows.dtype.kind in "biu" or (rows.dtype.kind == "f" and rows.dtype.itemsize <= 8):
        with np.errstate(all="ignore"):
            return rows.astype(np.float64)
    if rows.dtype.kind == "O":
        with warnings.catch_warnings(action="ignore"):  # they would tell of a cell
            numbers = [_real(cell) for cell in rows.ravel().tolist()]
        return np.array(numbers, dtype=np.float64).reshape(rows.shape)
    raise InvalidInput(
        "Complex data not supported" if rows.dtype.kind == "c" else f"X is of {rows.dtype.type.__name__}",
        why="features are real numbers",
        fix="pass an array of floats, integers or booleans",
    )


def column(y: Any, rows: int, name: str) -> NDArray[Any]:
    """One entry for each row, as they are."""
    if y is None:
        raise InvalidInput(
            f"{name} requires y to be passed, but the target y is None",
            why="it learns from examples with answers",
            fix="pass y to fit",
        )
    given = elementwise_array(y)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.shape != (rows,):
        raise InvalidInput(
            "y has not one entry for each row of X",
            why="every row has one answer",
            fix="pass a list as long as X",
        )
    return given


def _names(given: Any) -> list[str] | None:
    """The names of a data frame's columns, which are public; None where they are not all texts."""
    try:
        named = given.column_names if hasattr(given, "column_names") else given.columns
        names = list(named)
    except Exception:  # noqa: BLE001 - of anything that is no data frame
        return None
    return [str(name) for name in names] if names and all(isinstance(n, str) for n in names) else None


def _table(given: Any) -> NDArray[Any]:
    """Rows that are lists, or arrays of their own, cell by cell."""
    rows = [list(row) for row in given]
    table = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for place, row in enumerate(rows):
        if len(row) != table.shape[1]:
            raise _wrong_shape()
        for number, cell in enumerate(row):
            table[place, number] = cell
    return table


def _real(cell: Any) -> float:
    try:
        return float("nan") if isinstance(cell, np.complexfloating) else float(cell)
    except Exception:  # noqa: BLE001 - converting runs the cell's own code
        return float("nan")


def _number(numbers: dict[Any, int], label: Any) -> int:
    try:
        return numbers.get(label, -1)
    except Exception:  # noqa: BLE001 - hashing and comparing run the label's own code
        return -1


def _copied(name: str, value: Any) -> Any:
    return value if name == "account" else copy.deepcopy(value)


class _Elsewhere:
    """The account of an estimator that was stored: it is in another process, so nothing can be charged."""

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:  # noqa: ARG002
        raise Refused(
            "the estimator's account stayed behind when it was stored",
            why="a copy of an account would be a second budget",
            fix="use set_params(account=…) before fitting again",
        )


def _not_fitted(name: str) -> InvalidInput:
    kind = _sklearn_not_fitted() if "sklearn" in sys.modules else InvalidInput
    return kind(f"this {name} is not fitted yet", why="it has learned nothing", fix="call fit first")


@cache
def _sklearn_not_fitted() -> type[InvalidInput]:
    """Our error, which scikit-learn's tools take for their own."""
    from sklearn.exceptions import NotFittedError

    return type("NotFitted", (InvalidInput, NotFittedError), {})


def _wrong_shape() -> InvalidInput:
    return InvalidInput(
        "X is not a table of rows and features: Expected 2D array",
        why="every row has the same features",
        fix="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row",
    )
