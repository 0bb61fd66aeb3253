"""Throughput of co-located pairs, completed from few measured ones (the estimator of Gavel, OSDI '20, section 6).

Rates are normalised: the rate of a kind colocated with a partner, divided by its rate alone, in [0, 1]; 0: the two do
not fit together. They are completed without logarithms, with which zeros and the slowest pairs would dominate the
result (docs/estimator.md has the figures).

1. What does a new kind resemble? Each hypothesis is a Gaussian around one reference kind, or around their mean,
   stretched along the directions in which references differ: rank at most R - 1. The evidence weighs them.
2. The weights say how to mix the references' rates, for both members of a pair.
3. A Gaussian process over what is left of the measured pairs: pairs whose members resemble each other err alike.
"""

from dataclasses import dataclass

import numpy as np

from gavel.errors import InvalidRequest
from gavel.types import FloatArray, IntArray

STRETCHES = (0.0, 0.1, 0.2)  # how far a kind may lie from a reference, in units of the references' differences
FLOORS = (0.02, 0.06, 0.08)  # error of a normalised rate that each of them leaves
ALONE_FLOOR = 3.0  # the same of log(steps/s) alone, per unit of FLOORS
ALONE_NOISE = 0.1
LEVEL_WEIGHT = 0.5  # steps per second as such say a little of what a kind is
OF_A_KIND, OF_SIMILAR, OF_A_PAIR = 0.05, 0.1, 0.03  # parts of the residual, standard deviations
SIMILAR_WITHIN, SAME_WITHIN = 0.7, 0.1  # lengths in the space of weights
KNOWN = 0.2  # residual beside and of a reference, in units of a new kind's


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReferenceProfiles:
    """R kinds measured in pairs on m types. `colocated[t, a, b]` is the normalised rate of a beside b on type t."""

    alone: FloatArray  # (R, m) steps/s
    colocated: FloatArray  # (m, R, R)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiles:
    """Measurements of n kinds: `own[a, t, r]` is kind a's rate beside reference r, `other` is r's; NaN: none."""

    alone: FloatArray  # (n, m) steps/s
    own: FloatArray  # (n, m, R) normalised
    other: FloatArray  # (n, m, R) normalised


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completed:
    """`rate[t, a, b]` of kind a beside kind b on type t, in [0, 1], with its standard deviation.

    `weights[a, r]` is how much kind a resembles reference r; `novelty[a]` is the probability that it is none of them.
    """

    rate: FloatArray  # (m, n, n)
    deviation: FloatArray  # (m, n, n)
    weights: FloatArray  # (n, R)
    novelty: FloatArray  # (n,)


def complete(reference_profiles: ReferenceProfiles, profiles: Profiles, *, noise: float = 0.05) -> Completed:
    """Return the rates of all pairs of the n kinds; `noise` is the relative error of one measurement.

    Raises InvalidRequest for arrays whose shapes do not agree, or with values out of range.
    """
    _check(reference_profiles, profiles)
    colocated = np.clip(reference_profiles.colocated, 0.0, 1.0)
    reference_profiles = ReferenceProfiles(alone=reference_profiles.alone, colocated=colocated)
    profiles = Profiles(alone=profiles.alone, own=np.minimum(profiles.own, 1), other=np.minimum(profiles.other, 1))
    weights, novelty = _resemblance(reference_profiles, profiles, noise)
    rate = np.einsum("ar,trs,bs->tab", weights, colocated, weights)
    deviation = np.empty_like(rate)
    spread = colocated.std(axis=(1, 2)) / colocated.std()
    for t, mixed in enumerate(rate):
        measured = _measured(profiles.own[:, t], profiles.other[:, t], weights, colocated[t])
        correction, deviation[t] = _residual(measured, weights, novelty, spread=float(spread[t]), noise=noise)
        rate[t] = np.clip(mixed + correction, 0.0, 1.0)
    return Completed(rate=rate, deviation=deviation, weights=weights, novelty=novelty)


# --- 1 what a kind resembles ------------------------------------------------------------------------------------------


def _resemblance(
    reference_profiles: ReferenceProfiles, profiles: Profiles, noise: float
) -> tuple[FloatArray, FloatArray]:
    """Weights over the references (n, R), each row summing to 1, and novelty (n,)."""
    swapped = np.transpose(reference_profiles.colocated, (2, 0, 1))  # [s, t, r]: r's rate beside s
    rows = np.hstack(
        [
            _flat(np.transpose(reference_profiles.colocated, (1, 0, 2))),
            _flat(swapped),
            _alone_features(reference_profiles.alone),
        ]
    )
    seen = np.hstack([_flat(profiles.own), _flat(profiles.other), _alone_features(profiles.alone)])
    alone_from = rows.shape[1] - reference_profiles.alone.shape[1]
    mixtures = [_hypotheses(rows, row, alone_from, noise * 2**0.5) for row in seen]
    return np.array([weights for weights, _ in mixtures]), np.array([novelty for _, novelty in mixtures])


def _hypotheses(rows: FloatArray, seen: FloatArray, alone_from: int, noise: float) -> tuple[FloatArray, float]:
    """Return the mean weights (R,) of one kind over the hypotheses, and the probability of the stretched ones."""
    is_measured = np.isfinite(seen)
    count = len(rows)
    directions = (rows - rows.mean(axis=0))[:, is_measured]
    centres = np.vstack([np.eye(count), np.full((1, count), 1 / count)])
    is_alone = np.arange(len(seen))[is_measured] >= alone_from
    log_evidence, weights, is_new = [], [], []
    for centre in centres:
        around = centre @ rows[:, is_measured]
        for stretch, floor in zip(STRETCHES, FLOORS, strict=True):
            if stretch == 0 and centre.max() < 1:
                continue  # the mean of all references is no kind
            at_alone = np.hypot(ALONE_NOISE, ALONE_FLOOR * floor)
            variance = np.where(is_alone, at_alone, np.hypot(noise * around, floor)) ** 2
            covariance = np.diag(variance) + stretch**2 * directions.T @ directions
            factor = np.linalg.cholesky(covariance)
            scaled = np.linalg.solve(factor, seen[is_measured] - around)
            moved = stretch**2 * directions @ np.linalg.solve(factor.T, scaled)
            log_evidence.append(-0.5 * scaled @ scaled - np.log(np.diag(factor)).sum())
            weights.append(centre + moved - moved.mean())
            is_new.append(stretch > 0)
    share = np.exp(np.array(log_evidence) - max(log_evidence))
    share /= share.sum()
    return share @ np.array(weights), float(share @ np.array(is_new))


def _alone_features(alone: FloatArray) -> FloatArray:
    """Return the logarithms of the rates alone relative to the last type, and the level with a small weight, (n, m)."""
    logs = np.log(alone)
    return np.hstack([logs[:, :-1] - logs[:, -1:], LEVEL_WEIGHT * logs[:, -1:]])


def _flat(array: FloatArray) -> FloatArray:
    return array.reshape(len(array), -1)


# --- 3 what is left ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """N ordered pairs: the index of each member (reference r is -1 - r) and its weights over the references."""

    left: IntArray  # (N,)
    right: IntArray  # (N,)
    left_weights: FloatArray  # (N, R)
    right_weights: FloatArray  # (N, R)
    rate: FloatArray  # (N,) measured
    residual: FloatArray  # (N,) measured less mixed


def _measured(own: FloatArray, other: FloatArray, weights: FloatArray, colocated: FloatArray) -> _Pairs:
    """Return the pairs that were measured on one type; own, other (n, R)."""
    identity = np.eye(len(colocated))
    a, r = np.nonzero(np.isfinite(own))
    b, s = np.nonzero(np.isfinite(other))
    rate = np.concatenate([own[a, r], other[b, s]])
    mixed = np.concatenate([(weights @ colocated)[a, r], (colocated @ weights.T).T[b, s]])
    return _Pairs(
        left=np.concatenate([a, -1 - s]),
        right=np.concatenate([-1 - r, b]),
        left_weights=np.vstack([weights[a], identity[s]]),
        right_weights=np.vstack([identity[r], weights[b]]),
        rate=rate,
        residual=rate - mixed,
    )


def _residual(
    seen: _Pairs, weights: FloatArray, novelty: FloatArray, *, spread: float, noise: float
) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the mixture's error for every pair of kinds, (n, n) each."""
    n = len(weights)
    left, right = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    wanted = _Pairs(left, right, weights[left], weights[right], np.zeros(n * n), np.zeros(n * n))
    uncertainty = np.append(np.maximum(novelty, KNOWN), np.full(weights.shape[1], KNOWN))  # references at -1, -2, ..
    size_seen = spread * np.maximum(uncertainty[seen.left], uncertainty[seen.right])
    size_wanted = spread * np.maximum(uncertainty[left], uncertainty[right])
    prior = size_wanted * np.sqrt(2 * OF_A_KIND**2 + 2 * OF_SIMILAR**2 + OF_A_PAIR**2)
    if not len(seen.rate):
        return np.zeros((n, n)), prior.reshape(n, n)
    within = _kernel(seen, seen) * np.outer(size_seen, size_seen) + np.diag((noise * seen.rate + 0.005) ** 2)
    across = _kernel(wanted, seen) * np.outer(size_wanted, size_seen)
    factor = np.linalg.cholesky(within)
    scaled = np.linalg.solve(factor, across.T)
    mean = scaled.T @ np.linalg.solve(factor, seen.residual)
    variance = np.maximum(prior**2 - (scaled**2).sum(axis=0), 0.0)
    return mean.reshape(n, n), np.sqrt(variance).reshape(n, n)


def _kernel(one: _Pairs, two: _Pairs) -> FloatArray:
    """Return the covariance of the residuals of two lists of pairs, (N, M)."""
    same_left, same_right = one.left[:, None] == two.left, one.right[:, None] == two.right
    left, right = _squared(one.left_weights, two.left_weights), _squared(one.right_weights, two.right_weights)
    similar = 2 * SIMILAR_WITHIN**2
    covariance: FloatArray = OF_A_KIND**2 * same_left + OF_A_KIND**2 * same_right
    covariance += OF_SIMILAR**2 * (same_left * np.exp(-right / similar) + same_right * np.exp(-left / similar))
    covariance += OF_A_PAIR**2 * np.exp(-(left + right) / (2 * SAME_WITHIN**2))
    return covariance


def _squared(one: FloatArray, two: FloatArray) -> FloatArray:
    """Return the squared distances between the rows of `one` and `two`, (N, M)."""
    squares: FloatArray = np.maximum((one**2).sum(1)[:, None] + (two**2).sum(1) - 2 * one @ two.T, 0.0)
    return squares


def _check(reference_profiles: ReferenceProfiles, profiles: Profiles) -> None:
    types, count, _ = reference_profiles.colocated.shape
    wanted = {"own": (len(profiles.alone), types, count), "other": (len(profiles.alone), types, count)}
    for name, shape in wanted.items():
        if getattr(profiles, name).shape != shape:
            raise InvalidRequest(name, f"give shape {shape} (kinds, types, references)")
    if reference_profiles.alone.shape != (count, types) or profiles.alone.shape[1:] != (types,):
        raise InvalidRequest("alone", f"give one rate for each of the {types} types")
    for name, alone in (("reference_profiles.alone", reference_profiles.alone), ("profiles.alone", profiles.alone)):
        if not (np.isfinite(alone).all() and (alone > 0).all()):
            raise InvalidRequest(name, "steps per second must be finite and above 0")
    if not np.isfinite(reference_profiles.colocated).all() or reference_profiles.colocated.min(initial=0.0) < 0:
        raise InvalidRequest("reference_profiles.colocated", "normalised rates must be finite and not negative")
