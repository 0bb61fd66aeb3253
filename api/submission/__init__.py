"""Turns submissions of users into job specifications: fields, rules, quotas."""
