"""Programs of users: found, given arguments, and run as for numba.cuda."""
