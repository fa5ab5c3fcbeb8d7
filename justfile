# just check: everything CI runs, in the environment you are in

check: test lint types

test:
    pytest
    pytest -m 'e2e and not slow'
    pytest -n 0 -m alone

lint:
    ruff check .
    ruff format --check .

types:
    mypy

# the tables that are made from code
docs:
    gpubench columns > results/columns.tmp
    python -c "import re, pathlib as p; r = p.Path('results/README.md'); r.write_text(re.sub(r'(?s)\| column \|.*', p.Path('results/columns.tmp').read_text(), r.read_text()))"
    rm results/columns.tmp
    typer gpubench.cli.app utils docs --name gpubench --title Commands --output docs/cli.md

# a wheel in an empty environment, away from the checkout
wheel:
    rm -rf dist && pip wheel --no-deps --wheel-dir dist .
    python -m venv dist/venv && dist/venv/bin/pip install --quiet dist/*.whl
    cd / && {{justfile_directory()}}/dist/venv/bin/gpubench list
