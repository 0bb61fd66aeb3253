"""Co-located throughput as published: a new kind borrows the pair rates of the reference it resembles (a baseline).

Gavel (OSDI '20, section 6): the profiled entries of a kind's row are completed by matrix factorisation, the reference
with the smallest cosine distance lends its rates. The published code reads wrong columns when not every kind is a
reference; here they are the right ones.
"""

import numpy as np

from gavel.estimator.colocation import Profiles, ReferenceProfiles
from gavel.types import BoolArray, FloatArray, IntArray

RANK = 10
REGULARISER = 0.01
SWEEPS = 30
SEED = 0


def nearest_reference(reference_profiles: ReferenceProfiles, profiles: Profiles) -> IntArray:
    """Return the index of the most similar reference of each kind, (n,)."""
    count = len(reference_profiles.alone)
    rows = np.transpose(reference_profiles.colocated, (1, 0, 2)).reshape(count, -1)
    return np.array([_match(rows, own.reshape(-1)) for own in profiles.own], dtype=np.int64)


def lent(reference_profiles: ReferenceProfiles, matches: IntArray) -> FloatArray:
    """Return the normalised rates of every pair of the matched kinds, (m, n, n)."""
    return reference_profiles.colocated[:, matches][:, :, matches]


def _match(rows: FloatArray, seen: FloatArray) -> int:
    is_measured = np.isfinite(seen)
    row = seen if is_measured.all() else factorised(np.vstack([rows, seen]))[-1]
    lengths = np.linalg.norm(rows, axis=1) * max(float(np.linalg.norm(row)), 1e-9)
    return int(np.argmax(rows @ row / lengths))


def factorised(matrix: FloatArray) -> FloatArray:
    """Return the matrix, NaN completed by regularised factors of rank 10 (alternating least squares), in [0, 1]."""
    is_measured = np.isfinite(matrix)
    filled = np.where(is_measured, matrix, 0.0)
    random = np.random.default_rng(SEED)
    left = random.standard_normal((len(matrix), RANK)) * 0.3
    right = random.standard_normal((matrix.shape[1], RANK)) * 0.3
    for _ in range(SWEEPS):
        left = _solved(right, filled, is_measured)
        right = _solved(left, filled.T, is_measured.T)
    return np.clip(left @ right.T, 0.0, 1.0)


def _solved(factor: FloatArray, matrix: FloatArray, is_measured: BoolArray) -> FloatArray:
    """Return the other factor, by one regularised least-squares problem per row."""
    normal = np.einsum("jp,ij,jq->ipq", factor, is_measured.astype(float), factor) + REGULARISER * np.eye(RANK)
    right = (matrix * is_measured) @ factor
    solution: FloatArray = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    return solution
