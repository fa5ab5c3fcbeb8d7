"""`gpubench data`: datasets and pretrained weights, fetched, prepared and listed."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.printed import say

FETCH_EXAMPLES = "Example: `gpubench data fetch cifar100`"


def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Datasets or weights; `gpubench data list` shows them.", autocompletion=completion.data_names
        ),
    ],
) -> None:
    """Download datasets or weights from their official address into the cache."""
    from gpubench.data import datasets

    for name in names:
        say(f"{name}: {datasets.fetch(name)}")


PREPARE_EXAMPLES = "Example: `gpubench data prepare imagenet --sizes 160,320 --data DIR`"


def prepare(
    name: Annotated[str, typer.Argument(help="imagenet.", autocompletion=completion.one_of("imagenet"))],
    sizes: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Pixels of the copies' shorter side, joined by commas.")
    ] = "160,320",
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the tree; else $GPUBENCH_DATA.")] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes that resize; all CPUs by default.", show_default=False),
    ] = None,
) -> int:
    """Make resized copies of a tree of images in the cache, once. Exit code 4 if an image cannot be used."""
    from gpubench.commands.prepare import prepare as prepare_copies

    return prepare_copies(name, sizes, data, processes)


LIST_EXAMPLES = "Example: `gpubench data list`"


def list_data() -> None:
    """Datasets and weights, and whether they are here."""
    from gpubench.data import datasets

    cache = datasets.cache_folder()
    for name, dataset in datasets.DATASETS.items():
        here = datasets.seen(name)
        say(f"{name}: {dataset.about}; {f'in {here}' if here else 'not fetched'}")
    for name, about in datasets.TREES.items():
        say(f"{name}: {about}; give it with --data DIR")
    for name in datasets.names()[len(datasets.DATASETS) :]:
        path = cache / "weights" / datasets.weights_url(name).rpartition("/")[2]
        say(f"{name}: ImageNet weights of torchvision; {path if path.exists() else 'not fetched'}")
