"""Which type and how many workers each elastic job has: prices of the types, with a certificate (docs/elastic.md)."""
