"""LLVM text: functions that kernels call, and its compilation."""
