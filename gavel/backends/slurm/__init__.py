"""A Slurm cluster as a `ClusterBackend`: one allocation a gang, and in it an agent of ours on each of its nodes.

What is not Slurm's is in `gavel.backends.nodes`. Order of reading: `commands` (calls to Slurm), `nodes` (what it says
of nodes), `letters` (files by which service and agents speak), `control` (the thread that keeps the allocations),
`link` (the transport), `node` (the program on each node), `backend` (the port).
"""
