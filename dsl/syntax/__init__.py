"""The syntax tree of a kernel, before anything has a type."""
