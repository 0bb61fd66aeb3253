"""A Ray cluster as a `ClusterBackend`: many machines, one placement group a gang, one warm node agent a node.

Order of reading: `protocol` (the messages between service, bridge and agents), `agent` (what runs on each node),
`bridge` (the process that calls Ray), `link` (the service's end of it), `gang` and `backend` (the port).
"""
