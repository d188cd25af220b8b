"""The phases of `FedMixedRegressor.fit`: a start, a refinement, and the repair of models that fit no cluster well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import logistic_fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts import cluster_checks
from fedspan.mixed_regression.parts.cluster_assignment import ClusterAssignment, cluster_assignment
from fedspan.mixed_regression.parts.cluster_start import Start, ask_losses
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.random_start import best_random_start, random_start
from fedspan.mixed_regression.spectral_start import spectral_start

STARTS = ("moment_descent", "spectral", "random")
_REFITS = 5
_REFINED_BY = ("local_steps", "weights", "assignment", "max_rounds", "tol", "aggregator", "acceleration")

Fit = tuple[Refinement, ClusterAssignment]


@dataclass(frozen=True)
class Fitting:
    """A fit of the sites of `fed`, with the parameters of the estimator as `options`."""

    fed: Federation
    options: Mapping[str, Any]

    @property
    def robust(self) -> bool:
        """Whether sites may be malicious."""
        return self.options["aggregator"] is not None

    def start(self, k: int, theta0: Vector, scale: float) -> Start:
        """Run the chosen start, about the model `theta0` (d,)."""
        common: dict[str, Any] = {"n_clusters": k, "n_columns": len(theta0), "start": theta0}
        loss, start, aggregator = (self.options[name] for name in ("loss", "start", "aggregator"))
        if start == "random" and self.options["n_starts"] > 1:
            starts = self.options["n_starts"]
            return best_random_start(self.fed, **common, scale=scale, starts=starts, loss=loss, aggregator=aggregator)
        if start == "random":
            return random_start(self.fed, **common, scale=scale)
        if start == "spectral" or loss == "logistic":  # anchors solve least squares, and can't start models of classes
            return spectral_start(self.fed, **common, aggregator=aggregator)
        own = {name: self.options[name] for name in ("aggregator", "p_min", "perturbation")}
        found = moment_descent(self.fed, **common, **own)
        if found.covered or self.robust:
            return found
        # The anchors may have missed a cluster: take the models that fit the sites better, theirs or spectral ones.
        other = spectral_start(self.fed, **common)
        _, losses, counts = ask_losses(self.fed, models=np.vstack([found.models, other.models]))
        ours, theirs = (float(counts @ losses[:, part].min(axis=1)) for part in (slice(k), slice(k, None)))
        self.fed.log(loss_anchors=ours, loss_spectral=theirs)
        return replace(found, models=other.models) if theirs < ours else found

    def refined(self, models: Matrix) -> Refinement:
        """Run the chosen refinement."""
        settings = {name: self.options[name] for name in _REFINED_BY} | {"rate": self.options["step_size"]}
        if self.options["loss"] == "logistic":
            return logistic_fedx(self.fed, models=models, **settings)
        return fedx(self.fed, models=models, update=self.options["update"], origin=self.options["origin"], **settings)

    def settled(self, found: Refinement, *, grow_to: int = 0) -> Fit:
        """Return the refined models and the sites' clusters after all repairs, and warn of remaining faults.

        A model that no site needs replaces one half of a cluster that seems to hold two. With `grow_to`, clusters are
        split up to that number while the Bayesian information criterion improves.
        """
        who, limit = self._assigned(found.models), 0
        if self.options["loss"] == "squared":
            found, who, spare = self._spare_used(*self._agreed(found, who))
            while grow_to and len(found.models) < len(self.fed.sites):
                grown = self._grown(found, who)
                if grown is None:
                    break
                if len(found.models) >= grow_to:  # one too many, to learn whether the limit is enough
                    limit = grow_to
                    break
                (found, who), spare = grown, None
        else:
            spare = int(np.argmin(who.rows)) if (who.rows < 0.5).any() else None
        cluster_checks.warn_of_clusters(self.fed, found.models, who, spare, self.options, limit)
        cluster_checks.warn_of_rule(who, found.refused, self.options["aggregator"])
        return found, who

    def _assigned(self, models: Matrix) -> ClusterAssignment:
        """Return the clusters of all sites."""
        own = {name: self.options[name] for name in ("loss", "aggregator")}
        return cluster_assignment(self.fed, models=models, **own)

    def _fitted(self, models: Matrix) -> Fit:
        """Return refined models, and the clusters of the sites, that agree."""
        found = self.refined(models)
        return self._agreed(found, self._assigned(found.models))

    def _agreed(self, found: Refinement, who: ClusterAssignment) -> Fit:
        """Refit models to the sites that most probably belong to them, while that changes clusters and is likelier.

        A refinement assigns a site to the model of smallest loss. Where clusters differ in noise, or a model serves
        none of its sites well, another one is likelier. With an aggregator, more sites must fit.
        """
        if self.options["assignment"] == "soft":
            return found, who
        few = max(2, len(self.fed.sites) // 20) if self.robust else 0
        fitted = who.nearest
        for _ in range(_REFITS):
            apart = (who.labels != fitted) & (who.labels >= 0)
            if apart.sum() <= few:
                break
            models = found.models.copy()
            try:
                for j in np.union1d(who.labels[apart], fitted[apart]):
                    sites = who.sites_of(j)
                    if sites:
                        models[j] = self._within(sites).refined(models[[j]]).models[0]
                then = self._assigned(models)
            except QuorumError:  # most sites of a small cluster do not reply just now
                break
            except InputError:  # or too few for the aggregator
                if not self.robust:
                    raise
                break
            self.fed.log(refitted=int(apart.sum()), gained=then.log_likelihood - who.log_likelihood)
            if not cluster_checks.fits_better(then, who, robust=self.robust):
                break
            found, who, fitted = replace(found, models=models), then, who.labels
        return found, who

    def _spare_used(
        self, found: Refinement, who: ClusterAssignment
    ) -> tuple[Refinement, ClusterAssignment, int | None]:
        """Put models that no site needs to use in crowded clusters, while that fits better; also return a spare one."""
        spare = self._spare(found, who)
        for _ in range(len(found.models) - 1):
            crowded = cluster_checks.crowded_cluster(who, robust=self.robust)
            if spare is None or crowded is None:
                break
            models = self._with_spare_model(found.models, who, spare, crowded)
            if models is None:
                break
            again, then = self._fitted(models)
            better = cluster_checks.fits_better(then, who, robust=self.robust)
            self.fed.log(repaired=int(better), loss_before=found.loss, loss_after=again.loss)
            if not better:
                break
            found, who = again, then
            spare = self._spare(found, who)
        return found, who, spare

    def _spare(self, found: Refinement, who: ClusterAssignment) -> int | None:
        return cluster_checks.spare_cluster(found.models, who, self._assigned, robust=self.robust)

    def _grown(self, found: Refinement, who: ClusterAssignment) -> Fit | None:
        """Return a fit with the noisiest cluster split, if it improves the Bayesian information criterion."""
        cluster = cluster_checks.widest(who)
        split = self._split(found.models, who, cluster)
        if split is None:
            return None
        again, then = self._fitted(np.vstack([np.delete(found.models, cluster, axis=0), split]))
        before, after = (cluster_checks.criterion(*fit) for fit in ((found.models, who), (again.models, then)))
        self.fed.log(clusters=len(again.models), criterion_before=before, criterion_after=after)
        return (again, then) if after < before else None

    def _with_spare_model(self, models: Matrix, who: ClusterAssignment, spare: int, crowded: int) -> Matrix | None:
        """Return models with the spare one for half of a crowded cluster, or all from a new start, or ``None``."""
        if spare == crowded:
            k, d = models.shape
            own = {"n_columns": d, "start": who.shares @ models, "aggregator": self.options["aggregator"]}
            return spectral_start(self.fed, n_clusters=k, **own).models
        split = self._split(models, who, crowded)
        if split is None:
            return None
        new = models.copy()
        new[crowded], new[spare] = split
        return new

    def _split(self, models: Matrix, who: ClusterAssignment, cluster: int) -> Matrix | None:
        """Return two models (2, d) for the sites of a cluster, or ``None`` if these are too few."""
        sites = who.sites_of(cluster)
        if len(sites) < 4:
            return None
        group = self._within(sites)
        own = {"n_columns": models.shape[1], "start": models[cluster], "aggregator": group.options["aggregator"]}
        try:
            return spectral_start(group.fed, n_clusters=2, **own).models
        except InputError:  # none of them has two rows
            return None

    def _within(self, sites: list[str]) -> Fitting:
        """Return the fit of some sites alone, with an aggregator that their number allows."""
        rule = self.options["aggregator"]
        rule = rule and within_a_group(rule, len(sites), len(self.fed.sites))
        return Fitting(self.fed.subset(sites), {**self.options, "aggregator": rule})
