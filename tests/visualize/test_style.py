"""Numbers with units and prefixes."""

import pytest

from visualize.style import quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1024, "1.02 kB"), (999_950, "1.00 MB"),
     (135_266_304, "135 MB"), (9_996, "10.0 kB"), (12.5, "12.5 B"), (0.25, "0.25 B"),
     (None, "n/a")])  # fmt: skip
def test_a_quantity_has_three_digits_and_its_unit(value, text):
    assert quantity(value, "B") == text
