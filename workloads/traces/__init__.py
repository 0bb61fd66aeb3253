"""Workloads to simulate: readers of published and real traces, and generators."""
