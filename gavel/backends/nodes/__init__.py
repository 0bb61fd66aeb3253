"""Gangs on machines that are not ours: orders to one agent a node, answers, adoption, fencing.

Order of reading: `protocol` (the messages, and `NodeLink`, the transport that is the only port), `agent` (what runs on
each node), `obeying` (its rules), `gang` and `backend` (the service's side). `gavel.backends.ray` is such a transport.
"""
