"""Transformers of tables that also transform federations."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from sklearn.base import TransformerMixin

from fedspan.federation import Federation


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
        return (for_federations if isinstance(X, Federation) else for_tables)(self, X, *args, **kwargs)

    return method


_let_federations_pass(FedTransformer)
