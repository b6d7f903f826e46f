"""Pictures as files: what matplotlib's SVG lacks."""

from __future__ import annotations

import re
from xml.dom import minidom

from visualize import memory_chart
from visualize.save import svg, with_hatches

AREA = '<path style="fill: url(#h1); fill-opacity: 0.4; stroke: #009e73"/>'
PATTERN = '<pattern id="h1" width="72">\n <rect x="0" fill="#009e73"/><path style="fill: #009e73"/></pattern>'


def test_the_ground_of_a_hatched_area_shines_through_and_its_lines_do_not():
    found = with_hatches(AREA + PATTERN)
    assert '<path style="fill: url(#h1); stroke: #009e73"/>' in found
    assert '<rect x="0" fill-opacity="0.4" fill="#009e73"/><path style="fill: #009e73"/>' in found


def test_two_areas_of_one_pattern_leave_well_formed_xml(make_launch):
    found = with_hatches(AREA + AREA + PATTERN)
    assert found.count('fill-opacity="0.4"') == 1
    minidom.parseString(svg(memory_chart.figure([make_launch(), make_launch()])))


def test_an_area_without_a_pattern_keeps_its_opacity():
    plain = '<path style="fill: #009e73; fill-opacity: 0.4"/>'
    assert with_hatches(plain) == plain


def test_modelled_arrows_are_hatched_in_an_svg(make_launch):
    text = svg(memory_chart.figure([make_launch()]))
    hatched = set(re.findall(r"fill: url\(#(\w+)\); stroke", text))
    assert len(hatched) == 3  # L2 to L1, the two of DRAM in one colour, the key
    assert len(re.findall(r'<rect [^>]*fill-opacity="0.4" fill="#(?:009e73|d55e00)"/>', text)) == 2


def test_the_letters_of_an_svg_are_text_and_names_are_no_markup(make_launch):
    text = svg(memory_chart.figure([make_launch(kernel="<b>_$x$")]))
    assert ">&lt;b&gt;_$x$, NVIDIA H200</text>" in text and ">loads 4.10 kB</text>" in text
    assert "<b>" not in text and 'id="DejaVuSans' not in text  # no letter is a path
