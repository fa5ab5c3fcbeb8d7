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

# wheel and sdist, each tried in an empty environment, away from the checkout
release:
    rm -rf dist && mkdir dist
    python -m venv dist/tools && dist/tools/bin/pip install --quiet build
    dist/tools/bin/python -m build --outdir dist .
    for file in dist/*.whl dist/*.tar.gz; do \
        python -m venv --clear dist/empty && dist/empty/bin/pip install --quiet -c constraints.txt $file \
        && (cd / && {{justfile_directory()}}/dist/empty/bin/gpubench list) || exit 1; \
    done
