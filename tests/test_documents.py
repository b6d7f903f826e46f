"""The pages whose tables are printed by code show what the code prints now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tables_of_the_page_on_compiled_code_are_those_of_the_rules():
    command = [sys.executable, "docs/refresh_readme.py", "--check", "docs/as_compiled.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_table_that_is_not_there_is_refused_in_one_line():
    command = [sys.executable, "docs/as_compiled_tables.py", "prices"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "as_compiled_tables: name one table of merges, unrolling, arithmetic\n"
