"""Prints which suites time other code than at a revision, and the files: python benchmarks/timed_code.py REVISION.

Rows of the printed suites get no verdict against rows of that revision. So avoid edits of these files that change no
timing, or make them before a session, not during one.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = """
import json
from gpubench.suite import files, timed_code
print(json.dumps({name: timed_code.parts_of(files.sources(files.find(name).path)) for name in files.built_in_names()}))
"""


def parts(checkout: Path) -> dict[str, dict[str, str]]:
    """Return for each suite the digests of the files that it times."""
    with tempfile.TemporaryDirectory() as folder:
        # Away from the checkout that is installed, whose suites would be found instead.
        copy = Path(folder) / "gpubench"
        shutil.copytree(checkout / "gpubench", copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(checkout / "suites", copy / "suites", dirs_exist_ok=True)
        done = subprocess.run([sys.executable, "-c", PARTS], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout}: it has no digest of timed code (from 0.2 on)\n{done.stderr}")
    return dict(json.loads(done.stdout))


def main(revision: str) -> int:
    """Print a line for each suite; return 1 if one of them times other code."""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", old, revision], check=True)
        try:
            before = parts(old)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", old], check=True)
    changed = 0
    for suite, now in parts(ROOT).items():
        then = before.get(suite, {})
        differing = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        print(f"{suite}: {', '.join(differing) if differing else 'times the same code'}")
        changed += bool(differing)
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
