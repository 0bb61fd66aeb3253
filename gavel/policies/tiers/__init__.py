"""The tree of tiers and users: the objective of each tier as a curve of service."""
