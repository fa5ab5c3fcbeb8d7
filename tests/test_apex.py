"""Which apex is installed: NVIDIA's of then, of now, the unrelated one, or none. None of them is imported."""

import pytest

from gpubench.hardware import apex
from gpubench.hardware.advice import of_apex

NOW = ("optimizers", "multi_tensor_apply", "normalization")
THEN = (*NOW, "amp", "fp16_utils", "parallel", "RNN")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts an `apex` with these parts on the path; importing it would raise."""

    def put(*parts, version="0.1", extensions=False, code=""):
        site = tmp_path / "site"
        for folder in (site / "apex", *(site / "apex" / part for part in parts)):
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
        if code:
            (site / "apex" / "amp" / "code.py").write_text(code)
        if extensions:
            (site / "amp_C.py").write_text("")
        if version:
            info = site / f"apex-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: apex\nVersion: {version}\n")
        monkeypatch.syspath_prepend(site)
        return of_apex(apex.installed())

    return put


def test_none_is_needed():
    found = of_apex(None)
    assert found.level == "ok"
    assert "none is needed" in found.text


def test_the_unrelated_package_is_warned_of(install):
    found = install(version="0.9.10.dev0")
    assert found.level == "note"
    assert "apex 0.9.10.dev0: this is not NVIDIA Apex" in found.text
    assert "pip uninstall apex" in found.advice


def test_a_real_one_of_2025_can_do_what_the_article_did(install):
    found = install(*THEN, extensions=True)
    assert found.level == "ok"
    assert "NVIDIA apex 0.1, with its CUDA extensions" in found.text
    assert "amp, fp16_utils" in found.text
    assert "engine=apex" in found.text
    assert apex.installed().can_fp16_optimizer


def test_a_real_one_of_today_is_told_apart_from_it(install):
    found = install(*NOW, version="")
    assert found.level == "note"
    assert "NVIDIA apex, without its CUDA extensions" in found.text
    assert "after tag 25.05" in found.text
    assert not apex.installed().can_fp16_optimizer


def test_one_that_this_torch_cannot_import_is_told_apart(install):
    """Apex of December 2019 begins so; torch._six left torch in 1.13."""
    found = install(*THEN, code="from torch._six import string_classes\n")
    assert found.level == "note"
    assert "cannot be imported: it needs torch._six" in found.text
    assert not apex.installed().can_fp16_optimizer


@pytest.mark.parametrize(
    "code",
    [
        "import torch.nn.functional\nfrom torch.autograd import Variable\nfrom . import _six\n",
        "try:\n    from torch._six import string_classes\nexcept ImportError:\n    string_classes = str\n",
        "def later():\n    from torch._six import string_classes\n",
        "not python",
    ],
)
def test_what_torch_has_or_a_second_way_replaces_is_nothing(install, code):
    assert install(*THEN, code=code).level == "ok"


def test_one_without_multi_tensor_apply_is_told_apart(install):
    found = install(*(part for part in THEN if part != "multi_tensor_apply"))
    assert found.level == "note"
    assert "it has no multi_tensor_apply" in found.text
    assert "left it" not in found.text
    assert not apex.installed().can_fp16_optimizer


def test_fp16_utils_without_apexs_optimizers_are_not_apexs(install):
    install("amp", "fp16_utils", "multi_tensor_apply")
    assert not apex.installed().real
    assert not apex.installed().can_fp16_optimizer


def test_doctor_says_it(cli):
    assert "apex" in cli("doctor").stdout
