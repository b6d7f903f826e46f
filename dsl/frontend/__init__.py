"""Python's syntax to WarpIR: statements, expressions, subscripts and calls."""
