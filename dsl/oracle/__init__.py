"""The oracle of the front end: a kernel's Python source, one thread at a time."""
