"""Trees of images: found, split, named, copied; and what is wrong with an image."""

import random

import pytest
from PIL import Image

from gpubench.data import crops, images
from gpubench.errors import UserError


def photo(path, size=(60, 40), mode="RGB", colour=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    dice = random.Random(str(path))
    filled = Image.new("RGB", size, colour or tuple(dice.randrange(256) for _ in range(3)))
    filled.convert(mode).save(path)
    return path


@pytest.fixture
def flat(tmp_path):
    for name in ("cat", "dog"):
        for number in range(10):
            photo(tmp_path / "flat" / name / f"{number}.jpg")
    return tmp_path / "flat"


def test_a_tree_with_train_and_val(tmp_path):
    photo(tmp_path / "train" / "b" / "1.JPEG")
    photo(tmp_path / "train" / "a" / "deep" / "1.png")
    photo(tmp_path / "val" / "a" / "2.jpg")
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".hidden").mkdir()
    tree = images.read_tree(tmp_path)
    assert tree.classes == ("a", "b")
    assert [tree.train.path(i) for i in range(2)] == ["train/a/deep/1.png", "train/b/1.JPEG"]
    assert tree.train.labels.tolist() == [0, 1]
    assert [tree.valid.path(0), int(tree.valid.labels[0])] == ["val/a/2.jpg", 0]


def test_a_flat_tree_is_split_always_alike_by_class_and_named_by_its_files(flat):
    tree, again = images.read_tree(flat), images.read_tree(flat)
    assert (len(tree.train), len(tree.valid)) == (16, 4)
    assert sorted(tree.valid.labels.tolist()) == [0, 0, 1, 1]
    assert tree.valid.paths.tolist() == again.valid.paths.tolist()
    assert not set(tree.valid.paths.tolist()) & set(tree.train.paths.tolist())
    before = images.read_tree(flat).name
    assert before.startswith("tree-2-16-")
    photo(flat / "cat" / "1.jpg", (70, 70))
    (flat / "cat" / "broken.jpg").symlink_to("nowhere")
    assert images.read_tree(flat).name != before


@pytest.mark.parametrize(("files", "why"), [
    ([], "not a tree of images"),
    (["a.jpg"], "not a tree of images"),
    (["train/a/1.jpg"], "no val/"),
    (["train/a/1.jpg", "val/b/1.jpg"], "b: a class without training images"),
    (["a/1.jpg"], "one image cannot be split"),
])  # fmt: skip
def test_what_is_no_tree_is_refused(tmp_path, files, why):
    for file in files:
        photo(tmp_path / file)
    with pytest.raises(UserError, match=why):
        images.read_tree(tmp_path)


def test_odd_files_are_converted_and_bad_ones_named(tmp_path, monkeypatch):
    for mode in ("L", "CMYK"):
        image, found = images.open_image(photo(tmp_path / f"{mode}.jpg", mode=mode))
        assert (image.mode, found) == ("RGB", mode)
    image, found = images.open_image(photo(tmp_path / "p.png", mode="P"))
    assert (image.mode, found) == ("RGB", "P")
    Image.frombytes("RGB", (200, 200), random.Random(1).randbytes(120_000)).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    reasons = {"half": "truncated", "text": "not an image", "empty": "not an image", "missing": "not there"}
    for name, why in reasons.items():
        with pytest.raises(images.BadImage, match=why):
            images.open_image(tmp_path / f"{name}.jpg")
    monkeypatch.setattr(images, "MOST_PIXELS", 39_999)
    with pytest.raises(images.BadImage, match="too large: 200 x 200"):
        images.open_image(tmp_path / "whole.jpg")
    assert images.sizes_of([tmp_path / "p.png", tmp_path / "text.jpg"]) == [(60, 40), None]


def test_sizes_are_means(flat):
    tree = images.read_tree(flat)
    sizes = [(flat / tree.train.path(index)).stat().st_size for index in range(len(tree.train))]
    assert images.mean_bytes(flat, tree.train) == pytest.approx(sum(sizes) / len(sizes))
    assert images.mean_bytes(flat / "nowhere", tree.train) == 0


def test_copies_are_made_once_and_never_larger(flat, tmp_path):
    (flat / "cat" / "3.jpg").write_text("no image")
    photo(flat / "dog" / "4.jpg", (20, 30))
    photo(flat / "dog" / "5.jpg", (90, 30), mode="L")
    tree = images.read_tree(flat)
    first = images.prepare(tree, 32, tmp_path / "cache", 1)
    assert (first.made, first.kept, first.bad) == (19, 0, (("cat/3.jpg", "not an image, or broken"),))
    sizes = {name: images.size_of(first.folder / name) for name in ("cat/1.jpg", "dog/4.jpg", "dog/5.jpg")}
    assert sizes == {"cat/1.jpg": (48, 32), "dog/4.jpg": (20, 30), "dog/5.jpg": (90, 30)}
    assert images.copies_are_whole(first.folder)
    again = images.prepare(tree, 32, tmp_path / "cache", 1)
    assert (again.made, again.kept) == (0, 19)


def test_boxes_stay_inside_and_batches_by_shape_have_every_image_once():
    dice = random.Random(1)
    for size in [(500, 375), (30, 400), (1, 1), (1000, 10)]:
        for _ in range(200):
            left, top, right, bottom = crops.random_box(size, 0.2, dice)
            assert 0 <= left < right <= size[0]
            assert 0 <= top < bottom <= size[1]
    areas = [
        (box[2] - box[0]) * (box[3] - box[1]) for box in (crops.random_box((400, 400), 0.5, dice) for _ in range(500))
    ]
    assert min(areas) >= 0.49 * 160_000
    assert max(areas) <= 160_000
    shapes = [(64, 64), (96, 64), (64, 64), (64, 96), (64, 64)]
    batches = list(crops.batches_by_shape(shapes, 2))
    assert sorted(index for _, indices in batches for index in indices) == [0, 1, 2, 3, 4]
    assert all(shapes[index] == shape for shape, indices in batches for index in indices)
    assert max(len(indices) for _, indices in batches) == 2


@pytest.mark.parametrize(("size", "crop"), [
    ((500, 500), (96, 96)), ((500, 375), (128, 96)), ((375, 500), (96, 128)), ((510, 500), (96, 96)),
    ((900, 100), (192, 96)), ((10, 10), (96, 96)),
])  # fmt: skip
def test_a_rectangle_keeps_the_shape_of_the_image_and_nothing_else(size, crop):
    assert crops.rectangle(size, 96) == crop
    left, top, right, bottom = crops.centre_box(size, crop)
    assert left >= 0
    assert top >= 0
    assert (right - left) / (bottom - top) == pytest.approx(crop[0] / crop[1], rel=1e-6)
    assert left == pytest.approx(size[0] - right)


def test_a_later_pass_reads_the_files_that_an_earlier_one_has_read():
    files = images.FilesRead({0})
    train = [images.Spec("train", indices, 8, 8, 0) for indices in ((1, 2), (3, 4), (5, 6))]
    passing = files.again(train)
    assert [next(passing).indices for _ in range(2)] == [(1, 2), (3, 4)]  # a sample ends here
    later = [images.Spec("train", indices, 9, 9, 0, dice=7) for indices in ((6, 4), (2, 5), (1,))]
    again = list(files.again(later))
    assert [spec.indices for spec in again] == [(1, 2), (3, 4), (1,)]
    assert {(spec.width, spec.dice) for spec in again} == {(9, 7)}
    # Files of another split, and other copies of them, are others.
    valid = [images.Spec("valid", (6, 5), 8, 8, 0)]
    copies = [images.Spec("train", (6, 5), 8, 8, 160)]
    for specs in (valid, copies, copies[::-1]):
        assert list(files.again(specs)) == specs


@pytest.mark.parametrize("fault", images.FAULTS)
def test_a_library_without_a_function_makes_no_file_bad(tmp_path, monkeypatch, fault):
    def lost(*_):
        raise fault("module 'Image' has no attribute 'x'")

    monkeypatch.setattr(Image, "open", lost)
    for read in (images.open_image, images.size_of):
        with pytest.raises(fault, match="attribute 'x'"):
            read(tmp_path / "a.jpg")
