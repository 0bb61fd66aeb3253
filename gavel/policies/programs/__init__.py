"""What the policies' programs are made of: variables, constraints, the solve and its check."""
