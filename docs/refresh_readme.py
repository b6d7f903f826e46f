"""Fill the output blocks of README.md from real runs, so that it shows nothing that the code did not print.

A block is a fenced block that follows a marker on a line of its own:

    <!-- output: python cli.py gpus -->
    ```text
    ...
    ```

A marker `<!-- output, exit 2: COMMAND -->` is for a command that must be refused. The command runs in the
root of the repository without a shell; what it prints on both streams replaces the block. Run it by hand, as
the commands take some seconds each:

    python docs/refresh_readme.py            rewrite README.md
    python docs/refresh_readme.py --check    change nothing; print the difference and exit 1 if any
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^<!-- output(?:, exit (?P<status>\d+))?: (?P<command>.+?) -->\n```\w*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WIDTH = "110"


def run(command: str, status: int) -> str:
    """Return what one command printed; raise SystemExit if it ends with another status."""
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, cwd=ROOT, env=env, text=True, **pipes)
    if done.returncode != status:
        raise SystemExit(f"{command}: status {done.returncode}, expected {status}\n{done.stdout}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines()) + "\n"


def refreshed(match: re.Match[str]) -> str:
    """Return one marker and its block with the command's present output."""
    output = run(match["command"], int(match["status"] or 0))
    return match[0][: match.start("body") - match.start()] + output + "```"


def main() -> int:
    """Refresh or check the document; return the exit status."""
    parser = argparse.ArgumentParser(description="Fill the output blocks of README.md from real runs.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a block differs")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "README.md")
    options = parser.parse_args()
    before = options.file.read_text()
    after = BLOCK.sub(refreshed, before)
    if options.check:
        texts = before.splitlines(), after.splitlines()
        diff = difflib.unified_diff(*texts, "written", "printed now", lineterm="")
        print(*diff, sep="\n", end="")
        return int(before != after)
    options.file.write_text(after)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
