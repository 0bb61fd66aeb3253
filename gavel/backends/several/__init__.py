"""One backend made of several: each is a region, and one that cannot be reached holds up none of the others."""
