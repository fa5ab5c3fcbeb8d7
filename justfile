# The contributor's verbs, inside an environment made by README's first command: `just check` before a commit.

# Everything that .ci/run checks, in the present environment.
check: test lint types

test *arguments:
    pytest {{arguments}}

lint:
    ruff check
    ruff format --check

# Mend what ruff can.
format:
    ruff check --fix
    ruff format

types:
    mypy

# Build the wheel, install it away from the checkout, and use it.
wheel:
    #!/usr/bin/env bash
    set -euo pipefail
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    pip wheel --quiet --no-deps --wheel-dir "$scratch" .
    python3 -m venv "$scratch/venv"
    "$scratch/venv/bin/pip" install --quiet --constraint constraints.txt "$scratch"/*.whl
    cp tests/suites/scripted.py "$scratch"
    cd "$scratch"
    venv/bin/gpubench list
    venv/bin/gpubench run --suite scripted.py --device cpu --quick --out rows.csv

# Write the column table of results/README.md again.
columns:
    python tests/test_docs.py
