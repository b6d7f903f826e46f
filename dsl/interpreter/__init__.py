"""The oracle of machine code: WarpIR with numpy, one warp at a time."""
