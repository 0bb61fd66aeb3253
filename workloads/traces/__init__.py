"""Workloads to replay: readers of published and real traces, and generators."""
