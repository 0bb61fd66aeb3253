"""The service as a process: API and dashboard in the main thread, the scheduler loop in another.

Composition root: the only place that names the store, the backend, the runner and the estimator together. Several
processes may serve one database; one of them leads the scheduler (leading.py), the others stand by or serve the API.
"""

from gavel.daemon.service import serve

__all__ = ["serve"]
