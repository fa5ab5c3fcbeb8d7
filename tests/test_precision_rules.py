"""What each precision is and what contradicts it, by hand: bands, switches, weights, operands. No model trains."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gpubench.suite.precisions import PRECISIONS, multiplied_in, unsupported
from gpubench.training import operands, precision
from gpubench.training.operands import OperandWatch
from gpubench.training.precision import KINDS, PrecisionError, mode_of

FLOAT, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16


def refusal(check, *arguments):
    """Why `check` refuses; empty where it does not."""
    try:
        check(*arguments)
    except PrecisionError as error:
        return str(error)
    return ""


def test_operands_follow_autocast_and_a_card_lacks_whole_precisions():
    assert KINDS["tf32"].operand is FLOAT
    assert KINDS["bf16"].operand is BRAIN
    assert KINDS["fp16-pure"].operand is HALF
    assert set(unsupported({"fp16": "no"})) == {name for name in PRECISIONS if name.startswith("fp16")}
    assert multiplied_in("of another version") == "of another version"


def like(name):
    """The precisions whose errors are those of this one, as messages list them."""
    return ", ".join(each for each, kind in PRECISIONS.items() if kind.probe_errors == PRECISIONS[name].probe_errors)


SIXTEEN = like("fp16")


@pytest.mark.parametrize(
    ("name", "errors", "what", "looks"),
    [
        ("fp32", (0.0, 4.5e-5), "", ""),
        ("fp32", (0.0, 4.6e-5), "RNN has a relative error of 4.6e-05", "no known precision"),
        ("fp32", (2.9e-4, 0.0), "matmul has a relative error of 2.9e-04", SIXTEEN),
        ("bf16", (1e-3, 2e-2), "", ""),
        ("bf16", (9e-4, 2e-3), "matmul has a relative error of 9.0e-04", SIXTEEN),
        ("bf16", (3e-3, 0.5), "RNN has a relative error of 5.0e-01", "no known precision"),
        ("fp16", (5e-5, 1.5e-3), "", ""),
        ("fp16", (5e-5, 0.0), "RNN has a relative error of 0.0e+00", "fp32"),
        ("tf32", (5e-5, 1e-7), "", ""),
        ("tf32", (4.9e-5, 1e-7), "matmul has a relative error of 4.9e-05", "no known precision"),
        ("tf32", (1.6e-3, 1e-7), "matmul has a relative error of 1.6e-03", like("bf16")),
    ],
)
def test_where_each_band_ends(name, errors, what, looks):
    said = refusal(precision.check_probe, name, dict(zip(("matmul", "RNN"), errors, strict=True)))
    assert said == (f"asked for {name}, but the probe's {what}, which looks like {looks}" if what else "")


@pytest.mark.parametrize("searching", [True, False])
def test_a_probe_leaves_cudnns_search_as_it_was(searching, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", searching)
    seen = []
    monkeypatch.setattr(precision, "_error", lambda *_: seen.append(torch.backends.cudnn.benchmark) or 1e-7)
    errors = dict.fromkeys(("matmul", "convolution", "RNN"), 1e-7)
    assert precision.probe("fp32", "cpu", mode_of("fp32", "cpu")) == errors
    assert (seen, torch.backends.cudnn.benchmark) == ([False] * 3, searching)
    monkeypatch.setattr(precision, "_error", lambda *_: 0.5)
    with pytest.raises(PrecisionError):
        precision.probe("fp32", "cpu", mode_of("fp32", "cpu"))
    assert torch.backends.cudnn.benchmark is searching


def test_an_error_is_the_distance_from_float64():
    """A layer that doubles, and an input that 16 bits round: 1 + 2**-12 becomes 1."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    x = torch.tensor([[1 + 2**-12]])
    assert precision._error((layer, x), "cpu", mode_of("fp32", "cpu")) == 0
    assert precision._error((layer, x), "cpu", mode_of("fp16-pure", "cpu")) == pytest.approx(2**-12 / (1 + 2**-12))


def stub(newer):
    """torch.backends as an older or a newer torch has them, everything the wrong way round."""

    def switches(**more):
        tf32 = {"fp32_precision": "none"} if newer else {}
        return SimpleNamespace(allow_tf32=True, **tf32, **more)

    matmul = switches(
        allow_fp16_reduced_precision_reduction=True,
        allow_bf16_reduced_precision_reduction=True,
        **({"allow_fp16_accumulation": True} if newer else {}),
    )
    backends = SimpleNamespace(
        cuda=SimpleNamespace(matmul=matmul),
        cudnn=SimpleNamespace(allow_tf32=True, benchmark=False, conv=switches(), rnn=switches()),
        mkldnn=SimpleNamespace(matmul=switches(), conv=switches(), rnn=switches()),
    )
    if newer:
        backends.fp32_precision = "none"
    return backends


def names(matmul="", cudnn="", mkldnn="ieee"):
    where = {"cuda.matmul": matmul, "cudnn.conv": cudnn, "cudnn.rnn": cudnn}
    where |= dict.fromkeys(("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"), mkldnn)
    return {f"{name}.fp32_precision": value for name, value in where.items()}


REDUCED = "cuda.matmul.allow_{}_reduced_precision_reduction"
ACCUMULATED = "cuda.matmul.allow_fp16_accumulation"
CUDNN_SEARCH = "cudnn.benchmark"


@pytest.mark.parametrize(("name", "tf32"), [("fp32", "ieee"), ("bf16", "ieee"), ("tf32", "tf32")])
@pytest.mark.parametrize("reduced", [True, False])
@pytest.mark.parametrize("cudnn_search", [True, False])
def test_every_switch_of_a_newer_torch(monkeypatch, name, tf32, reduced, cudnn_search):
    monkeypatch.setattr(torch, "backends", stub(newer=True))
    precision.set_flags(name, reduced, cudnn_search)
    reductions = {REDUCED.format(kind): str(reduced) for kind in ("fp16", "bf16")}
    assert precision.flags() == {
        **names(tf32, tf32),
        **reductions,
        ACCUMULATED: "False",
        CUDNN_SEARCH: str(cudnn_search),
    }
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is (name == "tf32")
    precision.check_flags(name)


@pytest.mark.parametrize(("name", "tf32"), [("fp32", "False"), ("tf32", "True")])
def test_every_switch_of_an_older_torch(monkeypatch, name, tf32):
    monkeypatch.setattr(torch, "backends", stub(newer=False))
    precision.set_flags(name, reduced_reduction=False, cudnn_benchmark=True)
    assert precision.flags() == {
        "cuda.matmul.allow_tf32": tf32,
        "cudnn.allow_tf32": tf32,
        **{REDUCED.format(kind): "False" for kind in ("fp16", "bf16")},
        CUDNN_SEARCH: "True",
    }
    precision.check_flags(name)
    torch.backends.cudnn.allow_tf32 = name != "tf32"
    changed = torch.backends.cudnn.allow_tf32
    said = f"asked for {name}, but torch.backends.cudnn.allow_tf32 was changed to {changed} during the trial"
    assert refusal(precision.check_flags, name) == said


def test_none_at_every_level_means_no_tf32(monkeypatch):
    monkeypatch.setattr(torch, "backends", stub(newer=True))
    assert {value for key, value in precision.flags().items() if key.endswith("fp32_precision")} == {"ieee"}
    precision.check_flags("fp32")
    with pytest.raises(PrecisionError, match=r"cuda\.matmul\.fp32_precision was changed to ieee"):
        precision.check_flags("tf32")


@pytest.mark.parametrize("part", ["matmul", "conv", "rnn"])
def test_onednn_computes_in_full_whatever_was_asked(monkeypatch, part):
    monkeypatch.setattr(torch, "backends", stub(newer=True))
    precision.set_flags("tf32", reduced_reduction=False, cudnn_benchmark=False)
    getattr(torch.backends.mkldnn, part).fp32_precision = "bf16"
    with pytest.raises(PrecisionError, match=rf"mkldnn\.{part}\.fp32_precision was changed to bf16"):
        precision.check_flags("tf32")


def test_a_switch_that_no_precision_asks_about_has_to_stand_as_it_did(monkeypatch):
    monkeypatch.setattr(torch, "backends", stub(newer=True))
    precision.set_flags("fp32", reduced_reduction=False, cudnn_benchmark=True)
    before = precision.flags()
    torch.backends.cudnn.benchmark = False
    precision.check_flags("fp32")
    with pytest.raises(PrecisionError, match=r"cudnn\.benchmark was changed to False during the trial"):
        precision.check_flags("fp32", before)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.BatchNorm3d(3), nn.SyncBatchNorm(3)])
@pytest.mark.parametrize(("name", "dtype"), [("fp16-master", FLOAT), ("fp16-pure", HALF), ("bf16", FLOAT)])
def test_what_becomes_of_batch_norm(layer, name, dtype):
    layer.float()
    mode_of(name, "cpu").prepare(nn.Sequential(layer))
    assert (layer.weight.dtype, layer.running_mean.dtype) == (dtype, dtype)


@pytest.mark.parametrize("name", KINDS)
def test_a_scaler_starts_where_it_is_told_to(name):
    scaled = name in {"fp16", "fp16-master"}
    for given, start in ((0, 65536.0), (512, 512.0)):
        scaler = mode_of(name, "cpu").scaler(given)
        assert (scaler.is_enabled(), scaler.get_scale()) == (scaled, start if scaled else 1.0)


def seen(**counts):
    """A watch that saw such calls: `matmul_float16=3`."""
    watch = OperandWatch()
    for name, count in counts.items():
        family, _, dtype = name.partition("_")
        watch.seen[family, getattr(torch, dtype)] = count
    return watch


@pytest.mark.parametrize(
    ("name", "counts", "words"),
    [
        ("fp32", {"matmul_float32": 3}, ""),
        ("fp32", {"matmul_float32": 9, "matmul_float16": 1}, "1 of the model's 10 matmul calls"),
        ("tf32", {"matmul_float32": 9, "RNN_bfloat16": 2}, "2 of the model's 2 RNN calls"),
        ("bf16", {"matmul_bfloat16": 3, "matmul_float32": 2}, ""),
        ("bf16", {"matmul_bfloat16": 2, "matmul_float32": 2}, "2 of the model's 4 matmul calls"),
        ("bf16", {"matmul_bfloat16": 9, "convolution_float32": 1}, "1 of the model's 1 convolution calls"),
        ("fp16-pure", {"matmul_float16": 4}, ""),
        ("fp16-master", {"matmul_float32": 4}, "4 of the model's 4 matmul calls"),
    ],
)
def test_most_calls_of_each_family_have_the_dtype_of_the_label(name, counts, words):
    watch, dtype = seen(**counts), str(KINDS[name].operand).removeprefix("torch.")
    expected = f"asked for {name}, but {words} had operands other than {dtype}: {watch.summary}" if words else ""
    assert refusal(watch.check, name) == expected


def test_what_was_seen_is_said_and_nothing_proves_nothing():
    said = refusal(seen().check, "fp16")
    assert said == "asked for fp16, but no matmul, convolution or RNN call was seen to prove it"
    watch = seen(matmul_float32=1, convolution_float16=2, matmul_bfloat16=30)
    assert watch.summary == "convolution float16 x2, matmul bfloat16 x30, matmul float32 x1"
    assert seen(matmul_float32=7).check("fp32") == "operands matmul float32 x7 on cpu"


def test_a_watch_counts_calls_by_their_first_operand_of_floats_and_passes_everything_on():
    watch = OperandWatch()
    half, whole, ints = torch.ones(2, 2, dtype=HALF), torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int64)
    with watch:
        torch.mm(whole, whole)
        torch.mm(half, half)
        torch.mm(ints, ints)
        result = torch.addmm(whole, whole, whole, beta=3.0, alpha=0.5)
        whole + whole
    assert dict(watch.seen) == {("matmul", FLOAT): 2, ("matmul", HALF): 1}
    assert result.tolist() == [[4.0, 4.0], [4.0, 4.0]]  # 3 x 1 + 0.5 x 2


ALL = {"model float16": 2, "BatchNorm float32": 40, "optimizer float32": 6}
PURE = {"model float16": 2, "BatchNorm float16": 1, "optimizer float16": 3}


@pytest.mark.parametrize(
    ("name", "found", "summary"),
    [
        ("fp16-master", ALL, "weights BatchNorm float32 x40, model float16 x2, optimizer float32 x6"),
        ("fp16-pure", PURE, "weights BatchNorm float16 x1, model float16 x2, optimizer float16 x3"),
        ("bf16", {"model float32": 3, "BatchNorm float32": 2}, "weights BatchNorm float32 x2, model float32 x3"),
        ("fp32", {}, ""),
        ("tf32", {}, ""),
    ],
)
def test_weights_as_they_have_to_be(name, found, summary):
    assert precision.check_weights(name, found) == summary


@pytest.mark.parametrize(
    ("name", "found", "words"),
    [
        ("fp16-master", {**ALL, "BatchNorm float16": 1}, "1 of the weights of the BatchNorm are float16, not float32"),
        ("fp16-master", {"model float32": 3}, "3 of the weights of the model are float32, not float16"),
        ("fp16-pure", ALL, "6 of the weights of the optimizer are float32, not float16"),
        ("fp16-pure", {"optimizer float32": 3}, "3 of the weights of the optimizer are float32, not float16"),
        ("bf16", {"BatchNorm bfloat16": 2}, "2 of the weights of the BatchNorm are bfloat16, not float32"),
        ("bf16", {"frozen float16": 4}, "4 of the weights of the frozen are float16, not bfloat16 or float32 or uint8"),
    ],
)
def test_weights_that_contradict_their_label(name, found, words):
    said, _, summary = refusal(precision.check_weights, name, found).rpartition(": ")
    assert said == f"asked for {name}, but {words}"
    assert len(summary.split(", ")) == len(found)


@pytest.mark.parametrize("name", ["fp16-master", "fp16-pure"])
def test_where_nobody_noted_the_weights(name):
    said = refusal(precision.check_weights, name, {})
    assert said.startswith(f"the weights of {name} cannot be checked: ")


@pytest.mark.parametrize(
    ("call", "family"),
    [
        ("mm", "matmul"), ("baddbmm", "matmul"), ("linear", "matmul"), ("mkldnn_linear_backward", "matmul"),
        ("_scaled_dot_product_flash_attention_backward", "matmul"), ("_scaled_dot_product_cudnn_attention", "matmul"),
        ("convolution_backward", "convolution"), ("cudnn_convolution_relu", "convolution"), ("conv2d", "convolution"),
        ("_cudnn_rnn", "RNN"), ("mkldnn_rnn_layer_backward", "RNN"), ("_thnn_fused_lstm_cell", "RNN"),
        ("upsample_bilinear2d", ""), ("upsample_linear1d_backward", ""), ("cummax", ""), ("lgamma", ""),
        ("bmm", "matmul"), ("addmm", "matmul"), ("addbmm", "matmul"), ("mm_", "matmul"), ("mv", "matmul"),
        ("addmv_", "matmul"), ("_addmm_activation", "matmul"), ("_grouped_mm", "matmul"), ("mkldnn_linear", "matmul"),
        ("_flash_attention_forward", "matmul"), ("_efficient_attention_backward", "matmul"), ("xmm", ""), ("mmx", ""),
        ("convolution", "convolution"), ("conv1d", "convolution"), ("conv3d", "convolution"), ("conv4d", ""),
        ("conv_transpose2d", "convolution"), ("miopen_rnn_backward", "RNN"), ("lstm_mps_backward", "RNN"),
        ("_thnn_differentiable_gru_cell_backward", "RNN"), ("thnn_gru", ""), ("bilinear", ""), ("", ""),
    ],
)  # fmt: skip
def test_calls_belong_to_their_family_by_their_names_in_torch(call, family):
    assert operands.family_of(call) == family
