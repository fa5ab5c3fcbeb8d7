"""Which apex is installed: NVIDIA's of then, of now, the unrelated one, or none. None of them is imported.

And the parts of benchmarks/against_apex.py that need none.
"""

import math

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


@pytest.fixture
def script(benchmark_script):
    return benchmark_script("against_apex")


@pytest.mark.parametrize(
    ("line", "replaced"),
    [
        ("if param.type() == 'torch.cuda.HalfTensor':", "if param.type() == 'torch.HalfTensor':"),
        ("self._overflow_buf = torch.cuda.IntTensor([0])", "self._overflow_buf = torch.IntTensor([0])"),
        ("if not x.is_cuda or type_string(x) == 'HalfTensor':", "if not x.is_cpu or type_string(x) == 'HalfTensor':"),
        ("if utils.is_cuda_enabled():", "if utils.is_cuda_enabled():"),
        ("if not torch.cuda.is_available:", "if not torch.cuda.is_available:"),
    ],
)
def test_only_tensor_types_and_places_are_replaced_for_a_cpu(script, line, replaced):
    assert script.for_a_cpu(line) == replaced


def test_the_copy_leaves_the_checkout_and_the_rest_of_apex_as_they_are(script, tmp_path):
    for part in ("amp/lists", "fp16_utils", "parallel"):
        (tmp_path / "checkout" / "apex" / part).mkdir(parents=True)
        (tmp_path / "checkout" / "apex" / part / "a.py").write_text("x.is_cuda")
    script.copy_for_a_cpu(tmp_path / "checkout", tmp_path / "copy")
    texts = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.py")}
    replaced = {path for path, text in texts.items() if text == "x.is_cpu"}
    assert replaced == {"copy/apex/amp/lists/a.py", "copy/apex/fp16_utils/a.py"}
    assert len(texts) == 6


@pytest.mark.parametrize(
    ("ours", "apex", "difference"),
    [
        ([1.5, 2.5], [1.5, 2.5], 0),
        ([1.5, 2.5], [1.25, 2.625], 0.25),
        ([1.5, math.nan, 1.5], [1.5, 2.5, 1.5], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([math.inf], [math.inf], 0),
    ],
)
def test_a_loss_that_is_not_a_number_is_never_equal(script, ours, apex, difference):
    assert script.largest_difference(ours, apex) == difference
