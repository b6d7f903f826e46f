"""WarpIR: its instructions, the formats of its numbers, and what each instruction counts as."""
