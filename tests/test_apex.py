"""Which apex is installed: NVIDIA's of then, of now, the unrelated one, or none. None of them is imported."""

import pytest

from gpubench.hardware import apex
from gpubench.hardware.advice import of_apex

NOW = ("optimizers", "multi_tensor_apply", "normalization")
THEN = (*NOW, "amp", "fp16_utils", "parallel", "RNN")


@pytest.mark.parametrize(
    ("parts", "version", "level", "words"),
    [
        (THEN, "0.1", "ok", "apex 0.1 "),
        (NOW, "", "note", "it has no amp, fp16_utils"),
        ([part for part in THEN if part != "multi_tensor_apply"], "0.1", "note", "it has no multi_tensor_apply"),
        (("amp", "fp16_utils", "multi_tensor_apply"), "0.1", "note", "not NVIDIA Apex"),
        ((), "0.9.10.dev0", "note", "not NVIDIA Apex"),
    ],
)
def test_an_apex_is_told_by_its_modules(tmp_path, monkeypatch, parts, version, level, words):
    site = tmp_path / "site"
    for folder in (site / "apex", *(site / "apex" / part for part in parts)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    if version:
        info = site / f"apex-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: apex\nVersion: {version}\n")
    monkeypatch.syspath_prepend(site)
    check = of_apex(apex.installed())
    assert check.level == level
    assert words in check.text
    assert apex.installed().version == version


def test_none_is_needed():
    assert of_apex(None).level == "ok"
