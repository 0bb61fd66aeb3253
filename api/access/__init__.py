"""Access to the API: bearer tokens, who may see what, and rate limits."""
