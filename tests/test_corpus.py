"""Text becomes the numbers that the public example gives it, and every way to be wrong is one line."""

import hashlib

import numpy as np
import pytest

from gpubench.data import corpus, datasets
from gpubench.errors import UserError

TEXTS = {"train": "the cat sat\n\n the dog\n", "valid": "a cat\n", "test": "the end\n"}


@pytest.fixture
def folder(tmp_path):
    """A tiny corpus."""
    place = tmp_path / "text"
    place.mkdir()
    for split, text in TEXTS.items():
        (place / f"{split}.txt").write_text(text)
    return place


def numbers(folder):
    tokens = corpus.load(folder)
    return [part.tolist() for part in (tokens.train, tokens.valid, tokens.test)]


# the cat sat <eos> | <eos> | the dog <eos> || a cat <eos> || the end <eos>
EXPECTED = [[0, 1, 2, 3, 3, 0, 4, 3], [5, 1, 3], [0, 6, 3]]


def test_words_are_numbered_by_their_first_appearance_whatever_ends_the_text(folder):
    assert numbers(folder) == EXPECTED
    assert corpus.load(folder).vocabulary == 7
    assert corpus.load(folder).train.dtype == np.int32
    (folder / "train.txt").write_bytes(b"\xef\xbb\xbf" + TEXTS["train"].rstrip().encode())
    assert numbers(folder) == EXPECTED


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_other_systems_line_ends_mean_the_same(folder, ending):
    for split, text in TEXTS.items():
        (folder / f"{split}.txt").write_bytes(text.replace("\n", ending).encode())
    assert numbers(folder) == EXPECTED


def test_a_corpus_has_names_of_the_official_archive_or_of_a_folder(folder, tmp_path):
    for split in TEXTS:
        (folder / f"{split}.txt").rename(folder / f"wiki.{split}.tokens")
    assert numbers(folder) == EXPECTED
    assert datasets.locate(["wikitext-2"], folder) == folder
    assert datasets.row_name("wikitext-2", folder).startswith("corpus-")
    folder = folder.rename(tmp_path / "wikitext-2")
    for given in (folder, tmp_path):
        assert datasets.locate(["wikitext-2"], given) == tmp_path
    assert datasets.load_corpus("wikitext-2", tmp_path).vocabulary == 7


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"valid\.txt: not there; .*--synthetic"),
        (b"", "no words"),
        (b"\n\n \n", "no words"),
        ("café\n".encode("latin-1"), r"valid\.txt: not UTF-8 text .*iconv"),
        ("words\n".encode("utf-16"), "not UTF-8 text"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(folder, content, words):
    path = folder / "valid.txt"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=words) as raised:
        corpus.load(folder)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_only_the_official_bytes_earn_the_name(folder, monkeypatch):
    md5 = {f"{split}.txt": hashlib.md5(text.encode()).hexdigest() for split, text in TEXTS.items()}
    assert corpus.name_of(folder, "wikitext-2", md5) == "wikitext-2"
    (folder / "test.txt").write_text("another end\n")
    sums = [hashlib.sha256((folder / f"{split}.txt").read_bytes()).hexdigest() for split in corpus.SPLITS]
    name = f"corpus-{hashlib.sha256(' '.join(sums).encode()).hexdigest()[:8]}"
    assert corpus.name_of(folder, "wikitext-2", md5) == name


def test_a_text_that_is_read_in_blocks_is_numbered_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_BLOCK_CHARACTERS", 1000)
    line = " ".join(f"w{n}" for n in range(100))
    for split, lines in {"train": 200, "valid": 1, "test": 1}.items():
        (tmp_path / f"{split}.txt").write_text(f"{line}\n" * lines)
    corpus_read = corpus.load(tmp_path)
    assert corpus_read.train.tolist() == [*range(101)] * 200
    assert corpus_read.valid.tolist() == corpus_read.test.tolist() == [*range(101)]


@pytest.mark.realdata
def test_the_real_wikitext_2(real_data):
    root = real_data("wikitext-2")
    corpus_read = datasets.load_corpus("wikitext-2", root)
    assert (len(corpus_read.train), len(corpus_read.valid), len(corpus_read.test)) == (2_088_628, 217_646, 245_569)
    assert corpus_read.vocabulary == 33_278
    assert datasets.row_name("wikitext-2", root) == "wikitext-2"
