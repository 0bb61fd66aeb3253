"""Simulation of faults: the production service in one thread and in virtual time, with faults that a seed draws.

Real are the driver with all that it decides by, the backend for many nodes (gavel/backends/nodes), the rules of the
store and of the leadership, and the rules by which nodes obey orders and supervisors end gangs. Simulated are time, the
network, the disks of the nodes, and the programs of the jobs. The same seed always gives the same run.

Order of reading: `scenario` (what a seed draws), `world` (time, events, the run), `service`, `link` and `node` (the
machines), `gang` (what runs on them), `invariants` (what must hold after each event).
"""
