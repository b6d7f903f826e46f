"""The device names of the modules cuda and ptx, and what each emits."""
