"""WarpIR to the LLVM text of a kernel: one warp is a vector of 32 lanes."""
