"""`gpubench data prepare`: resized copies of a tree of images, and a list of the images that cannot be used."""

from pathlib import Path

from gpubench.console import Screen
from gpubench.data import datasets, images
from gpubench.errors import UserError
from gpubench.hardware.environment import cpu_count

SHOWN = 20
"""Most files that are named on the screen; the copies' complete.json has all."""


def prepare(name: str, sizes_text: str, data: Path | None, processes: int | None) -> int:
    """Make the copies and print how many were made; returns 4 where an image cannot be used."""
    if name not in datasets.TREES:
        raise UserError(f"data prepare {name}: there is {', '.join(datasets.TREES)}")
    sizes = [int(text) if text.strip().isdecimal() else 0 for text in sizes_text.split(",")]
    if not all(16 <= size <= 4096 for size in sizes):
        raise UserError(f"--sizes {sizes_text}: write pixels from 16 to 4096, as in 160,320")
    root = datasets.locate((name,), data)
    if root is None:
        datasets.fetch(name)  # says what to do
        return 2
    tree = images.read_tree(root)
    console = Screen(stderr=True, soft_wrap=True)
    console.print(f"{root}: {len(tree.classes)} classes, {len(tree.train)} train, {len(tree.valid)} val ({tree.name})")
    bad: dict[str, str] = {}
    for size in sizes:
        done = images.prepare(tree, size, datasets.cache_folder(), processes or cpu_count())
        console.print(f"{size} px: {done.made} copies made, {done.kept} were there, in {done.folder}")
        if done.odd:
            modes = ", ".join(sorted({mode for _, mode in done.odd}))
            console.print(
                f"  {len(done.odd)} were not RGB ({modes}) and were converted, {images.shown(done.odd[0][0])} for one"
            )
        bad |= dict(done.bad)
    for file, why in list(bad.items())[:SHOWN]:
        console.print(f"cannot be used: {images.shown(file)}: {why}")
    if bad:
        console.print(
            f"{len(bad)} of {len(tree.train) + len(tree.valid)} images cannot be used: training skips them, validation"
            " refuses them; mend or remove them"
        )
    return 4 if bad else 0
