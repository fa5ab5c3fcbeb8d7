"""Data is fetched from its address, checked before it is unpickled, and every way to be wrong has a way out."""

import functools
import hashlib
import http.server
import io
import pickle
import re
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpubench.data import datasets
from gpubench.errors import UserError


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def pickled(images: int, first: int) -> bytes:
    """A split as the CIFAR-100 pickles hold it."""
    data = (np.arange(images * 3072) + first).astype(np.uint8).reshape(images, 3072)
    return pickle.dumps({"data": data, "fine_labels": list(range(images))}, protocol=2)


FILES = {"train": pickled(6, 0), "test": pickled(2, 100)}
TEXTS = {"train.txt": b"some words\n", "valid.txt": b"more\n", "test.txt": b"last\n"}


@functools.cache  # gzip writes the second into it, and its checksum is known
def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in FILES.items():
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def server(tmp_path):
    """(folder, address): what lies in the folder is served there."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    serve = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=serve.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{serve.server_port}"
    serve.shutdown()
    serve.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def tiny(monkeypatch, server):
    """The registry with tiny datasets of the same shape, at the local server."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder, address = server
    (folder / "cifar-100-python.tar.gz").write_bytes(archive())
    for name, content in TEXTS.items():
        (folder / name).write_bytes(content)
    cifar = replace(
        datasets.DATASETS["cifar100"],
        files={name: md5(content) for name, content in FILES.items()},
        urls={f"{address}/cifar-100-python.tar.gz": md5(archive())},
    )
    words = replace(
        datasets.DATASETS["wikitext-2"],
        files={name: md5(content) for name, content in TEXTS.items()},
        urls={f"{address}/{name}": md5(content) for name, content in TEXTS.items()},
    )
    monkeypatch.setitem(datasets.DATASETS, "cifar100", cifar)
    monkeypatch.setitem(datasets.DATASETS, "wikitext-2", words)


@pytest.fixture
def root(tmp_path) -> Path:
    """A --data folder that holds the tiny CIFAR-100."""
    folder = tmp_path / "data" / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder.parent


def test_fetch_gets_archives_and_files_into_the_cache_once_and_mends_what_is_wrong(server):
    assert datasets.locate(["cifar100"], None) is None
    assert datasets.fetch("cifar100") == datasets.cache_folder()
    assert datasets.fetch("wikitext-2") == datasets.cache_folder()
    assert datasets.locate(["cifar100", "wikitext-2"], None) == datasets.cache_folder()
    assert not list(datasets.cache_folder().glob("*.tar.gz"))
    train, test = datasets.load_cifar("cifar100", datasets.cache_folder())
    assert train.images.shape == (6, 3, 32, 32)
    assert train.images.dtype == np.uint8
    assert test.labels.tolist() == [0, 1]
    assert test.labels.dtype == np.int64
    assert test.images[0, 0, 0, 0] == 100
    datasets.fetch("cifar100")
    broken = datasets.cache_folder() / "cifar-100-python" / "train"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(UserError, match="gpubench data fetch cifar100"):
        datasets.locate(["cifar100"], None)
    datasets.fetch("cifar100")
    assert broken.read_bytes() == FILES["train"]
    (server[0] / "cifar-100-python.tar.gz").unlink()
    datasets.fetch("cifar100")


def test_nothing_that_was_changed_is_unpacked(server, root, tmp_path):
    (server[0] / "cifar-100-python.tar.gz").write_bytes(b"something else")
    with pytest.raises(UserError, match="its MD5 differs"):
        datasets.fetch("cifar100")
    assert not (datasets.cache_folder() / "cifar-100-python").exists()

    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    (root / "cifar-100-python" / "train").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="its MD5 differs"):
        datasets.load_cifar("cifar100", root)
    assert not (tmp_path / "owned").exists()


def test_what_cannot_be_fetched_names_the_ways_out(monkeypatch, root):
    # Port 9 discards; nothing listens there.
    gone = replace(datasets.DATASETS["cifar100"], urls={"http://127.0.0.1:9/cifar-100-python.tar.gz": "0"})
    monkeypatch.setitem(datasets.DATASETS, "cifar100", gone)
    with pytest.raises(UserError, match=r"could not download cifar100 .*--data DIR.*--synthetic"):
        datasets.fetch("cifar100")
    with pytest.raises(UserError, match=r"there are cifar10, cifar100, wikitext-2.*did you mean cifar100\?"):
        datasets.fetch("cifar-100")
    with pytest.raises(UserError, match="dataset mnist: there are"):
        datasets.locate(["mnist"], root)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setattr(datasets, "cache_folder", lambda: blocked / "gpubench")
    with pytest.raises(UserError, match="cannot be written"):
        datasets.fetch("cifar100")


@pytest.mark.parametrize("how", ["root", "itself", "here", "variable"])
def test_data_is_a_root_or_the_folder_itself(root, monkeypatch, how):
    itself = root / "cifar-100-python"
    monkeypatch.chdir(itself)
    if how == "variable":
        monkeypatch.setenv(datasets.ENVIRONMENT_VARIABLE, str(root))
    given = {"root": root, "itself": itself, "here": Path(), "variable": None}[how]
    assert datasets.locate(["cifar100"], given) == root
    monkeypatch.setenv(datasets.ENVIRONMENT_VARIABLE, str(root / "elsewhere"))
    assert datasets.locate(["cifar100"], root) == root, "the option wins over the variable"
    with pytest.raises(UserError, match=r"GPUBENCH_DATA=.*no such folder"):
        datasets.locate(["cifar100"], None)


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (FILES["train"][:1000], "its MD5 differs")])
def test_a_missing_or_truncated_file_is_named_with_both_ways_out(root, content, words):
    path = root / "cifar-100-python" / "train"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=words) as raised:
        datasets.locate(["cifar100"], root)
    assert str(path) in str(raised.value)
    assert "gpubench data fetch cifar100" in str(raised.value)
    assert "--synthetic" in str(raised.value)


def test_weights_are_fetched_checked_and_found(server, tmp_path, monkeypatch):
    folder, address = server
    content = b"not really weights"
    file = f"net-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    monkeypatch.setitem(datasets._WEIGHTS, "net-v1", file)
    monkeypatch.setattr(datasets, "_WEIGHTS_ADDRESS", address)
    assert datasets.locate_weights("net-v1", None) is None
    (folder / file).write_bytes(b"something else")
    with pytest.raises(UserError, match="the downloaded file is not net-v1"):
        datasets.fetch("net-v1")
    (folder / file).write_bytes(content)
    path = datasets.fetch("net-v1")
    assert datasets.locate_weights("net-v1", None) == path
    own = tmp_path / "weights"
    own.mkdir()
    assert datasets.locate_weights("net-v1", own) == path
    (own / file).write_bytes(b"truncated")
    with pytest.raises(UserError, match="not torchvision's file"):
        datasets.locate_weights("net-v1", own)


@pytest.mark.realdata
def test_the_real_cifar_100(real_data, monkeypatch):
    monkeypatch.undo()  # the tiny registry
    train, test = datasets.load_cifar("cifar100", real_data("cifar100"))
    assert (train.images.shape, test.images.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(train.labels).tolist() == [500] * 100
    # torchvision states the same means for these images.
    assert np.allclose(train.images.mean((0, 2, 3)) / 255, (0.5071, 0.4866, 0.4409), atol=1e-3)


def test_the_list_finds_what_a_named_folder_has_and_does_not_stop_at_what_it_lacks(cli, tmp_path, monkeypatch):
    here = datasets.DATASETS["cifar10"]
    for file in here.files:
        (tmp_path / "mine" / here.folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / here.folder / file).touch()
    monkeypatch.setenv("GPUBENCH_DATA", str(tmp_path / "mine"))
    done = cli("data", "list")
    assert done.returncode == 0, done.stderr
    first, second, *_ = re.split(r"\n(?=\S+: )", done.stdout)
    assert first.startswith("cifar10:")
    assert f"; in {tmp_path / 'mine'}"[:60] in " ".join(first.split()), "a longer path is cut"
    assert " ".join(second.split()).endswith("not fetched")
