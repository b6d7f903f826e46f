"""What is found out about WarpIR, and what is rewritten in it."""
