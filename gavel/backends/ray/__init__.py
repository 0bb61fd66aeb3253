"""A Ray cluster as a `ClusterBackend`: many machines, one placement group a gang, one warm node agent a node.

What is not Ray's is in `gavel.backends.nodes`. Order of reading: `control` (calls to Ray), `bridge` (the process that
makes them), `link` (the service's end of it), `backend` (the port).
"""
