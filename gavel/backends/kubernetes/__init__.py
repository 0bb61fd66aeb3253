"""Gangs on a Kubernetes cluster: a pod for each of their nodes, bound by the cluster's own scheduler.

It needs the extra `kubernetes`.
"""
