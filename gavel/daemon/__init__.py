"""The processes of the service: one serves the API (service.py), and its child process schedules (scheduling.py).

Composition root: the only place that imports the store, the backend, the runner and the estimator together. Several
services may serve one database; one of them leads the scheduler (leading.py), the others stand by or serve the API.
"""
