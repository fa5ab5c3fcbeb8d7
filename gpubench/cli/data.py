"""`gpubench data`: downloads, prepares and lists datasets and pretrained weights."""

from typing import Annotated

import typer

from gpubench.cli.options import DataFolder
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.show.wrap import wrapped

SHOWN = 20
"""Maximum number of unusable images that are printed; the file complete.json beside the copies lists all."""


def fetch(
    names: Annotated[list[str], typer.Argument(help="Datasets or weights; `gpubench data list` shows them.")],
) -> None:
    """Download datasets or weights from their official address into the cache."""
    from gpubench.data import datasets

    for name in names:
        say(f"{name}: {datasets.fetch(name)}")


def prepare(
    name: Annotated[str, typer.Argument(help="Dataset: imagenet.")],
    sizes: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Lengths of the shorter side in pixels, joined by commas.")
    ] = "160,320",
    data: DataFolder = None,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes that resize; default one per CPU.")
    ] = None,
) -> int:
    """Make resized copies of a folder of images in the cache, once. Exit code 4 if an image cannot be used."""
    from gpubench.data import datasets, images
    from gpubench.hardware.environment import cpu_count

    if name not in datasets.TREES:
        raise UserError(f"data prepare {name}: it can only prepare {', '.join(datasets.TREES)}")
    pixels = [int(text) if text.strip().isdecimal() else 0 for text in sizes.split(",")]
    if not all(16 <= size <= 4096 for size in pixels):
        raise UserError(f"--sizes {sizes}: write pixels from 16 to 4096, as in 160,320")
    root = datasets.locate((name,), data) or datasets.fetch(name)  # `fetch` raises UserError with what to do
    tree = images.read_tree(root)
    parts = f"{len(tree.classes)} classes, {len(tree.train)} train, {len(tree.valid)} val"
    say(f"{root}: {parts} ({tree.name})", err=True)
    bad: dict[str, str] = {}
    for size in pixels:
        done = images.prepare(tree, size, datasets.cache_folder(), processes or cpu_count())
        say(f"{size} px: {done.made} copies made, {done.kept} already there, in {done.folder}", err=True)
        bad |= dict(done.bad)
    if not bad:
        return 0
    lines = [f"cannot be used: {images.shown(file)}: {why}" for file, why in list(bad.items())[:SHOWN]]
    count = f"{len(bad)} of {len(tree.train) + len(tree.valid)} images cannot be used"
    say(*lines, f"{count}. Training skips them; validation stops at them. Repair or remove them.", err=True)
    return 4


def list_data() -> None:
    """List datasets and weights, and whether they are on this machine."""
    from gpubench.data import datasets

    cache = datasets.cache_folder()
    for name, dataset in datasets.DATASETS.items():
        folder = datasets.seen(name)
        say(*wrapped(f"{name}: {dataset.about}; {f'in {folder}' if folder else 'not fetched'}"))
    for name, about in datasets.TREES.items():
        say(*wrapped(f"{name}: {about}; give it with --data DIR"))
    for name in datasets.names()[len(datasets.DATASETS) :]:
        path = cache / "weights" / datasets.weights_url(name).rpartition("/")[2]
        say(*wrapped(f"{name}: ImageNet weights of torchvision; {path if path.exists() else 'not fetched'}"))
