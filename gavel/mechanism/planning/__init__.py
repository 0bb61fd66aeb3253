"""How a round is decided: the problem, its allocation, the gangs that run, their workers and leases."""
