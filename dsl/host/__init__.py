"""The host side: kernels, launches, the device and its arrays."""
