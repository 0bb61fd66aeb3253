"""The similarity of job kinds, as a covariance, and Gaussian processes over measurements of some of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gavel.estimator.kinds import family_of, log_size
from gavel.types import FloatArray

OF_THE_KIND, OF_THE_FAMILY, OF_ITS_SPEED = 0.2, 0.4, 0.4  # parts of the variance: its own, relatives', the equally fast
SIZE_LENGTH = 1.5  # in logarithms: how far apart in size relatives may be
SPEED_LENGTH = 0.7  # in logarithms of relative speeds, of three types
LEVEL_WEIGHT = 0.3  # steps per second as such say a little of what a kind is


def similarity(kinds: Sequence[str], log_rate: FloatArray) -> FloatArray:
    """Return how alike K kinds are, as a covariance (K, K) with 1 on the diagonal; `log_rate` (K, m) is alone."""
    names: dict[str, int] = {}
    family = np.array([names.setdefault(family_of(kind), len(names)) for kind in kinds])
    sizes = np.array([log_size(kind) for kind in kinds])
    related = (family[:, None] == family) * np.exp(-((sizes[:, None] - sizes) ** 2) / (2 * SIZE_LENGTH**2))
    level = log_rate.mean(axis=1, keepdims=True)
    speeds = np.hstack([(log_rate - level) * np.sqrt(3 / log_rate.shape[1]), LEVEL_WEIGHT * level])
    squares = np.maximum((speeds**2).sum(1)[:, None] + (speeds**2).sum(1) - 2 * speeds @ speeds.T, 0.0)
    alike: FloatArray = OF_THE_FAMILY * related + OF_ITS_SPEED * np.exp(-squares / (2 * SPEED_LENGTH**2))
    return alike + OF_THE_KIND * np.eye(len(kinds))


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A Gaussian process given N observations: predicts values from their covariance with these."""

    solved: FloatArray  # (N,)
    whitening: FloatArray  # (N, N)

    def of(self, across: FloatArray, prior_variance: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean (less the prior's) and variance of P values, from their covariance (P, N) with the N seen."""
        mean: FloatArray = across @ self.solved
        explained: FloatArray = ((across @ self.whitening.T) ** 2).sum(axis=1)
        return mean, np.maximum(prior_variance - explained, 0.0)


def posterior(covariance: FloatArray, noise: FloatArray, above_prior: FloatArray) -> Posterior:
    """Return the posterior of N observations: prior covariance (N, N), noise variance (N,), values less prior (N,)."""
    whitening = np.linalg.inv(np.linalg.cholesky(covariance + np.diag(noise)))
    return Posterior(solved=whitening.T @ (whitening @ above_prior), whitening=whitening)
