"""The base of all estimators: a table or a federation in, one run, and a file without pickle out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from functools import cache, wraps
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from fedspan.checks import as_table, first_of, gaps, printable, text_columns, time_columns, true_or_false
from fedspan.engines.local.embedded import LocalFederation, federate
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Federation, PrivacySpent, RunRecord, Site
from fedspan.progress import ProgressBar
from fedspan.sums.batches import Fading, in_other_units, uncounted, with_batch
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.one_round import Agree

#: Learns from the sites whose rows are new; the number is the factor for the sums of rows before.
Learner = Callable[[Federation, float], None]
#: Times that a partial fit begins again without the sites that failed.
_MOST_TRIES = 4


def _lost(record: RunRecord, sites: tuple[str, ...]) -> set[str]:
    """Return which of the sites failed in some call of a run."""
    return {site for call in record.calls for site in call.failed if site in sites}


def check_aggregator(aggregator: Any) -> None:
    """Refuse what is not an aggregator, such as a class instead of its instance."""
    if aggregator is not None and (isinstance(aggregator, type) or not callable(aggregator)):
        raise InputError(
            f"aggregator={aggregator!r} must be None or a callable (values, weights) -> Aggregate, such as "
            "fedspan.aggregation.GeometricMedian()"
        )


def secure(X: Any) -> bool:
    """Return whether the calls of a fit on `X` are carried by secure sums, which add and merge nothing."""
    return isinstance(X, Federation) and bool(X.policy.secure_sum)


def in_single_precision(X: Any) -> bool:
    """Return whether a table holds float32 alone; a federation's coordinator does not know."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is not None and not isinstance(X, np.ndarray):
        return len(dtypes) > 0 and all(str(dtype).lower() == "float32" for dtype in dtypes)
    return bool((isinstance(X, np.ndarray) or hasattr(X, "tocsr")) and X.dtype == np.float32)


@dataclass(eq=False, repr=False)
class _Parameters:
    """The parameters that all estimators have."""

    _: KW_ONLY
    random_state: Any = None
    verbose: int = 0


class FedEstimator(_Parameters, BaseEstimator):
    """Base of the estimators.

    ``fit`` takes a table, with ``sites`` naming the site of each row (none: one site), or a federation.
    """

    run_: Any
    sites_: tuple[str, ...]
    n_features_in_: int
    #: After ``partial_fit``: the sites whose rows of the last batch were counted, and those of named batches.
    batch_sites_: tuple[str, ...]
    counted_batches_: dict[str, tuple[str, ...]]
    #: Whether the columns of tables may hold text.
    takes_text = False
    #: What to do with columns of text where they may not.
    _way_out_of_text = "encode it first, with FedTabularEncoder"
    #: Whether tables may be sparse matrices.
    takes_sparse = False
    #: Whether it learns targets, though it is neither a regressor nor a classifier of scikit-learn's.
    learns_target = False

    def save(self, path: str | os.PathLike[str], *, record: bool = True) -> None:
        """Write the fitted estimator to one file: arrays and plain values, no pickle. Read it with `fedspan.load`.

        Without `record` the file has no ``run_``, and is smaller.
        """
        from fedspan.persistence import save

        save(self, path, record=record)

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's diagram for notebooks, and for a fitted model a table of its run."""
        diagram = printable(super()._repr_html_inner())  # names of columns come from sites
        record = getattr(self, "run_", None)
        return diagram if record is None else diagram + str(record._repr_html_())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {kind: self._repr_html_inner() if kind == "text/html" else text for kind, text in bundle.items()}

    @property
    def privacy_(self) -> PrivacySpent | None:
        """What the fit has spent of the sites' privacy, what that covers and what not."""
        spent: PrivacySpent | None = self.run_.privacy
        return spent

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Return the names of the parameters: scikit-learn reads the signature each time, as slow as a small fit."""
        names: list[str] = super()._get_param_names()
        return names

    @contextmanager
    def _fitting(self, X: Any, y: Any, sites: Any, *, agree: Agree | None = None, **given: Any) -> Iterator[Federation]:
        """Run the block as one run on the federation that `X` is or becomes: the calls are the same.

        `agree` is how the sites agree on their columns, if the same call is to learn more (`OneRound`).

        Sets ``n_features_in_``, ``sites_`` and ``run_``. What else is `given` goes to `_as_federation`.
        """
        for name in self._get_param_names():
            if isinstance(getattr(type(self), name, None), bool):
                true_or_false(name, getattr(self, name))
        fed = self._as_federation(X, y, sites, **given)
        needs = self._single_replies()
        if needs is not None:
            fed.need_single_replies(f"{type(self).__name__}{needs}", or_totals=self._totals_will_do())
        settings = {**self._settings_that_count(), "random_state": self._seed()}
        observers = self._observers()
        with fed.begin(type(self).__name__, settings, settings["random_state"], observers) as run:
            columns, agreed = agree_on_columns(run, text=self.takes_text) if agree is None else agree(run)
            if columns.weighted:
                self._check_weights()
            self.__dict__.pop("names_before_", None)
            if isinstance(X, Federation):  # scikit-learn has validated the columns of a table
                self.n_features_in_ = columns.count
                self.__dict__.pop("feature_names_in_", None)
                if columns.names is not None:
                    self.feature_names_in_ = np.array(columns.names, dtype=object)
                elif len(X.column_names or ()) == columns.count:  # not in feature_names_in_: tables need no names then
                    self.names_before_ = np.array(X.column_names, dtype=object)
            self.sites_ = agreed.sites
            yield agreed
        self.run_ = run.record  # which states the versions only once the run has ended

    def _learn_batch(
        self,
        X: Any,
        y: Any,
        sites: Any,
        batch: str | None,
        fading: Fading,
        *,
        first: bool,
        learn: Learner | None,
        rows: bool = True,
    ) -> Self:
        """Keep learning from a batch: a site's rows count whole, or not at all, and only once.

        `first` fits the model before. `learn` gets the sites whose rows are new, and the factor for old sums; ``None``
        where a fit is all. After an error the model is what it was before. A site that fails in the middle is left out,
        and the others are requested again: it may send its rows of the batch later. Without `rows` sites have sums.
        """
        before, seen = dict(vars(self)), X
        for _ in range(_MOST_TRIES):
            try:
                lost: set[str] = set()
                if first:
                    self.fit(seen, y, sites=sites)
                    self.counted_batches_ = {}
                    lost |= _lost(self.run_, self.sites_)
                    if learn is None:
                        self.batch_sites_ = self.sites_
                        self.counted_batches_ = with_batch(batch, {}, self.sites_)
                if learn is not None and not lost:
                    lost |= self._update(seen, sites, batch, fading, learn, rows)
                if not lost:
                    self._keep_time(fading)
                    return self
            except BaseException:
                self._restore(before)
                raise
            self._restore(before)
            seen = self._as_federation(seen, None, sites, reset=False)
            sites, seen = None, seen.subset([name for name in seen.sites if name not in lost])
        raise FedspanError(
            f"sites failed in the middle of {_MOST_TRIES} partial fits, the last time {', '.join(sorted(lost))}: the "
            "model is what it was before; send the batch again"
        )

    def _change_units(self, factor: NDArray[np.float64], shift: NDArray[np.float64]) -> None:
        """Express what was learned in other units of the columns: x is from now on ``factor x + shift``.

        An estimator before this one in a pipeline has moved its means and scales.
        """
        given: Any = self
        if hasattr(self, "mean_"):
            given.mean_ = factor * given.mean_ + shift
            given.scale_ = factor * (1.0 if given.scale_ is None else given.scale_)
        if hasattr(self, "moments_"):
            given.moments_ = in_other_units(given.moments_, self.n_features_in_, factor, shift)

    def _restore(self, before: dict[str, Any]) -> None:
        self.__dict__.clear()
        self.__dict__.update(before)

    def _keep_time(self, fading: Fading) -> None:
        latest = fading.latest(getattr(self, "learned_at_", None))
        if latest is not None:
            self.learned_at_ = latest

    def _update(self, X: Any, sites: Any, batch: str | None, fading: Fading, learn: Learner, rows: bool) -> set[str]:
        """Learn from new rows as one run; return the sites that failed after they had agreed on the columns.

        Sets ``run_``, and adds to ``sites_`` and to ``counted_batches_``.
        """
        fed = self._as_federation(X, None, sites, reset=False)
        counted = getattr(self, "counted_batches_", {})
        new = uncounted(batch, counted, fed)
        if new is None:
            self.batch_sites_ = ()
            return set()
        observers = self._observers()
        settings = {**self._settings_that_count(), "random_state": self._seed()}
        with new.begin(f"{type(self).__name__}.partial_fit", settings, settings["random_state"], observers) as run:
            agreed = self._agreed(run) if rows else run
            self.sites_ = tuple(sorted({*self.sites_, *agreed.sites}))
            late = batch is not None and batch in counted
            learn(agreed, fading.factor(agreed, getattr(self, "learned_at_", None), begun=late))
        self.run_ = run.record
        self.batch_sites_ = agreed.sites
        self.counted_batches_ = with_batch(batch, counted, agreed.sites)
        return _lost(run.record, agreed.sites)

    def _agreed(self, run: Federation) -> Federation:
        """Return the sites that have the columns that the estimator was fitted on."""
        columns, agreed = agree_on_columns(run, text=self.takes_text)
        names = self._names()
        known = names is None or columns.names is None or set(names) == set(columns.names)
        if columns.count != self.n_features_in_ or not known:
            raise InputError(
                f"the rows have {columns.count} columns{'' if known else ' of other names'}, and "
                f"{type(self).__name__} was fitted on {self.n_features_in_} features"
            )
        return agreed

    def _observers(self) -> list[ProgressBar]:
        if not isinstance(self.verbose, int | np.integer | np.bool_):
            raise InputError(f"verbose={self.verbose!r} must be 0, or 1 for a progress bar")
        return [ProgressBar()] if self.verbose else []

    def _settings_that_count(self) -> dict[str, Any]:
        """Return the parameters that have an effect, for the record of the run."""
        return dict(self.get_params(deep=False))

    def _check_weights(self) -> None:
        """Refuse rows with weights; estimators that use them override this."""
        raise InputError(
            f"{type(self).__name__} takes no account of sample_weight, and rows have weights: use sites without them, "
            "or repeat rows"
        )

    def _refuse_weights_with(self, **parameters: Any) -> None:
        """Refuse rows with weights beside parameters that can't use them: those that are not ``None``."""
        used = [name for name, value in parameters.items() if value is not None]
        if used:
            raise InputError(
                f"{type(self).__name__}({used[0]}={parameters[used[0]]!r}) takes no account of sample_weight, and rows "
                f"have weights: use another {used[0]}, or repeat rows"
            )

    def _single_replies(self) -> str | None:
        """Return which parameters need the replies of single sites, as a call has them, or ``None`` for sums alone."""
        aggregator = getattr(self, "aggregator", None)
        return None if aggregator is None else f"(aggregator={aggregator!r})"

    def _totals_will_do(self) -> bool:
        """Return whether totals of groups of sites will do in place of single replies."""
        return False

    def _as_federation(
        self,
        X: Any,
        y: Any,
        sites: Any,
        task: Any = None,
        sample_weight: Any = None,
        *,
        reset: bool = True,
        **checks: Any,
    ) -> Federation:
        """Return the federation that `X` is, or the embedded one of a table; `reset` learns the table's columns.

        `checks` go to scikit-learn's validation of tables.
        """
        if isinstance(X, Federation):
            if sample_weight is not None:
                raise InputError(
                    "sample_weight=... goes with a table: a federation's sites have their own, "
                    "fedspan.Site(name, X, sample_weight=...)"
                )
            for name, value in (("sites", sites), ("task", task)):
                if value is not None:
                    raise InputError(f"{name}=... goes with a table: a federation has its {name.rstrip('s')}s already")
            return X
        if isinstance(sites, str):
            raise InputError(
                f"sites={sites!r} is one text, and fit takes the label of each row: for a column of that name use "
                f"fit(fedspan.federate(X, sites={sites!r}))"
            )
        # Values that are not finite are refused later, by feature and site.
        table = self._validated(X, reset=reset, ensure_all_finite=False, **checks)
        if sites is None:
            return LocalFederation([Site("site", table, y, task, sample_weight=sample_weight)])
        return federate(table, y, sites=sites, task=task, sample_weight=sample_weight)

    def _later_rows(self, X: Any, sites: Any) -> Federation:
        """Return rows that come after the fit as a federation: a table with the site of each row, or one already."""
        if isinstance(X, Federation):
            if sites is not None:
                raise InputError("sites=... goes with a table: a federation has its sites already")
            return X
        table = self._validated(X)
        return LocalFederation([Site("site", table)]) if sites is None else federate(table, sites=sites)

    def _validated(self, X: Any, *, reset: bool = False, **checks: Any) -> NDArray[Any]:
        """Return `X` as scikit-learn validates it: numbers, finite, the columns that the estimator was fitted on."""
        if isinstance(X, Federation):
            raise InputError("X is a federation, and a table of rows is needed here: its rows stay at their sites")
        X = as_table(X)
        sparse = {"accept_sparse": "csr"} if self.takes_sparse else {}
        try:
            table: NDArray[Any] = validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], **sparse, **checks
            )
        except (ValueError, TypeError) as error:  # scikit-learn's would show a cell, or advise another estimator
            times = time_columns(X)
            if isinstance(error, TypeError) and not times:
                raise
            found = times or ([] if hasattr(X, "tocsr") else text_columns(X))
            bad = "" if found or hasattr(X, "tocsr") or not checks.get("ensure_all_finite", True) else gaps(X)
            if bad:
                raise InputError(f"X contains NaN or infinity: feature {bad}; fill or drop them first") from None
            if not found:
                raise
            raise InputError(
                f"X holds {'times' if times else 'text'} in column {first_of(found)}, and {type(self).__name__} takes "
                f"numbers: {self._way_out_of_text}, or leave it out"
            ) from None
        return table

    def _names(self) -> tuple[str, ...] | None:
        """Return the names of the columns: those of the tables, or those that the transform before it gives."""
        names = getattr(self, "feature_names_in_", getattr(self, "names_before_", None))
        return None if names is None else tuple(names)

    def _seed(self) -> int | None:
        """Return `random_state` as a seed; ``None`` leaves it to the federation."""
        random_state = self.random_state
        if random_state is None:
            return None
        if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
            return int(random_state)
        if isinstance(random_state, np.random.RandomState):
            return int(random_state.randint(2**31))
        if isinstance(random_state, np.random.Generator):
            return int(random_state.integers(2**31))
        raise InputError(f"random_state={random_state!r} must be an integer of at least 0, a generator, or None")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LearnsOn(FedEstimator):
    """Base of the estimators that keep learning from batches of rows; each states what its batches are exact for."""

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sites: Any = None,
        decay: float = 1.0,
        half_life: float | str | timedelta | None = None,
        batch: str | None = None,
        at: str | float | datetime | None = None,
    ) -> Self:
        """Keep learning from new rows alone, a table (with ``sites``) or a federation; the first call is a fit.

        Parameters
        ----------
        decay : float, default=1.0
            What the rows before count from now on, above 0 and at most 1. With 1 nothing is forgotten. Rows of a
            `batch` that other sites have sent before fade nothing.
        half_life : float, str or timedelta, optional
            Instead of `decay`: the number of rows after which old ones count half, or a time such as ``"6h"``.
        batch : str, optional
            A name of these rows. A site's rows of a batch are counted once, however often it is sent.
        at : time, optional
            Of the batch, for a `half_life` that is a time: ISO text, seconds since 1970, or a datetime. Default: now. A
            batch that comes late counts as if it had come in time: numbers of rows are weights at the time of the last
            batch.
        """
        fading = Fading.of(decay, half_life, at)
        first, learn = self._learner(X)
        return self._learn_batch(X, y, sites, batch, fading, first=first, learn=learn)

    def _learner(self, X: Any) -> tuple[bool, Learner | None]:
        """Return whether a batch is the first one, and how to learn from it, ``None`` where a fit is all.

        Refuse parameters that do not go with batches.
        """
        raise NotImplementedError


class FedTransformer(TransformerMixin):
    """Mixin like scikit-learn's, whose ``set_output`` lets federations pass."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _let_federations_pass(cls)

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit to `X` and return what `transform` makes of it."""
        return self.fit(X, y, sites=sites).transform(X)


def _let_federations_pass(cls: type) -> None:
    """Undo scikit-learn's wrapping of results in data frames for calls whose result is a federation."""
    for name in ("transform", "fit_transform"):
        wrapped = cls.__dict__.get(name)
        if wrapped is not None and hasattr(wrapped, "__wrapped__"):
            setattr(cls, name, _dispatching(wrapped, wrapped.__wrapped__))


def _dispatching(for_tables: Callable[..., Any], for_federations: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(for_tables)
    def method(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(X, Federation):
            return for_tables(self, X, *args, **kwargs)
        seen = for_federations(self, X, *args, **kwargs)
        names = self._names() if isinstance(self, FedEstimator) else None
        known = names is not None and isinstance(seen, Federation)
        return seen.named(map(str, self.get_feature_names_out(names))) if known else seen

    return method


_let_federations_pass(FedTransformer)


class WeightedTransformer(FedTransformer):
    """Mixin of transformers whose ``fit`` takes the weights of rows."""

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Any:
        """Fit to `X` and return what `transform` makes of it."""
        return self.fit(X, y, sites=sites, sample_weight=sample_weight).transform(X)
