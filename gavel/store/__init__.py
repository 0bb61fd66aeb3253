"""Where everything durable lives: `SqlStore` (SQLite, PostgreSQL) and `MemoryStore`, one conformance suite for both."""
