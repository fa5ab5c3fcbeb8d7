"""`gpubench site`: a static web site of all rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli.options import Files
from gpubench.errors import UserError, writing
from gpubench.printed import say

EXAMPLES = "Example: `gpubench site results -o site`, then open site/index.html"


def site(
    files: Files,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the pages.")] = Path("site"),
    url: Annotated[
        str, typer.Option(metavar="URL", help="Address of the site, for the picture that is shown beside links to it.")
    ] = "",
) -> None:
    """Write a static site: results, cards ranked by rows and by published figures, a page for each card and suite.

    It opens from disk, loads nothing from the network, and links each figure to its rows and their source.
    """
    say(write_site(files, out, url))


def write_site(paths: Sequence[Path], out: Path, url: str = "") -> str:
    """Write the site into the folder and print what could not be read; returns the line to print. Raises UserError.

    A file LICENSE in one of the folders among `paths` is the licence of the rows.
    """
    from importlib.resources import files

    from gpubench.rows.spreadsheet import neutral_table
    from gpubench.show.site import PREVIEW, pages, preview_of
    from gpubench.studies.ranked_cases import contents_of

    if missing := next((path for path in paths if not path.exists()), None):
        raise UserError(f"{missing}: no such file or folder")
    licences = [path / "LICENSE" for path in paths if (path / "LICENSE").is_file()]
    contents = contents_of(paths, licensed=bool(licences))
    say(*contents.answer.problems, err=True)
    speeds = files("gpubench.studies.cards") / "public_speeds.csv"
    data = {"rows.csv": neutral_table(contents.answer.table(None)), "published.csv": speeds.read_bytes()}
    data[PREVIEW] = preview_of(contents.ranking)
    if licences:
        data["LICENSE.txt"] = licences[0].read_bytes()
    written = {name: text.encode() for name, text in pages(contents, url)}
    for name, content in (written | data).items():
        with writing(f"--out {out}", out / name):
            (out / name).write_bytes(content)
    largest = max(written, key=lambda name: len(written[name]))
    size = f"{len(written)} pages, the largest ({largest}) {len(written[largest]) / 1e3:.0f} kB"
    return f"{out / 'index.html'}: {size}; they open from disk and from any web server"
