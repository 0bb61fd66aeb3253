"""Where everything durable lives: `SqlStore` (SQLite, PostgreSQL) for all, `MemoryStore` for simulations.

Each port has its conformance suite (conformance.py).
"""
