"""Which apex is installed: NVIDIA's of then, of now, the unrelated one, or none. None of them is imported."""

import pytest

from gpubench.hardware.advice import of_apex
from gpubench.hardware.apex import why_no_apex

NOW = ("optimizers", "multi_tensor_apply", "normalization")
THEN = (*NOW, "amp", "fp16_utils", "parallel", "RNN")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (THEN, ""),
        (NOW, "has no amp, fp16_utils"),
        ([part for part in THEN if part != "multi_tensor_apply"], "has no multi_tensor_apply"),
        (("amp", "fp16_utils", "multi_tensor_apply"), "not NVIDIA Apex"),
        ((), "not NVIDIA Apex"),
    ],
)
def test_an_apex_is_told_by_its_modules(tmp_path, monkeypatch, parts, words):
    for folder in (tmp_path / "apex", *(tmp_path / "apex" / part for part in parts)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert words in why_no_apex()
    assert bool(words) == bool(why_no_apex())
    assert (words or "complete") in of_apex().text


def test_none_is_needed():
    assert of_apex().level == "ok"
