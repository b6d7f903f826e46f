"""Machine code run block by block, and its counters."""
