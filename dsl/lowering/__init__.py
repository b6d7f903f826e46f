"""Typed values and what an operation on them emits; no syntax."""
