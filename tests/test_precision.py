"""Each label is proved, and each wrong mode is caught."""

import pytest
import torch
from small_trials import skip_bf16_lstm
from torch import nn

from gpubench.suite.precisions import PRECISIONS
from gpubench.training import precision
from gpubench.training.operands import OperandWatch
from gpubench.training.precision import PrecisionError, mode_of


@pytest.fixture(autouse=True)
def flags():
    precision.set_flags("fp32", reduced_reduction=False, cudnn_benchmark=False)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "fp16-master", "fp16-pure", "bf16-pure"])
def test_the_probe_proves_the_label_on_this_cpu(name):
    found = precision.probe(name, "cpu", mode_of(name, "cpu"))
    low, high = PRECISIONS[name].probe_errors
    assert all(low <= error <= high for error in found.values())
    assert set(found) == {"matmul", "convolution", "RNN"}


@pytest.mark.parametrize(
    ("asked", "got"), [("bf16", "fp32"), ("fp32", "bf16"), ("fp16", "fp32"), ("fp16", "bf16"), ("fp16-master", "fp32")]
)
def test_a_substituted_mode_fails_the_probe(asked, got):
    with pytest.raises(PrecisionError, match=rf"asked for {asked}.*looks like"):
        precision.probe(asked, "cpu", mode_of(got, "cpu"))


def test_no_rnn_speaks_for_bf16_on_cuda_where_autocast_computes_them_in_fp16():
    assert set(precision.parts_of(mode_of("bf16", "cuda:0"))) == {"matmul", "convolution"}
    assert set(precision.parts_of(mode_of("fp16", "cuda:0"))) == {"matmul", "convolution", "RNN"}
    assert set(precision.parts_of(mode_of("bf16", "cpu"))) == {"matmul", "convolution", "RNN"}


def test_a_probe_leaves_the_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    precision.probe("fp32", "cpu", mode_of("fp32", "cpu"))
    assert torch.equal(torch.rand(3), expected)


def test_a_flag_changed_during_the_trial_is_caught():
    precision.check_flags("fp32")
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.cudnn.conv.fp32_precision = "tf32"
    else:  # torch before 2.9 has one switch for all of cuDNN
        torch.backends.cudnn.allow_tf32 = True
    with pytest.raises(PrecisionError, match=r"cudnn\.(conv|allow_tf32).* changed to (tf32|True)"):
        precision.check_flags("fp32")


@pytest.mark.parametrize("less", ["high", "medium"])
def test_less_precise_products_are_caught_however_they_were_asked_for(less):
    """On a CPU `medium` computes fp32 products in bf16."""
    torch.set_float32_matmul_precision(less)
    with pytest.raises(PrecisionError, match=r"cuda\.matmul.* changed to (tf32|True)"):
        precision.check_flags("fp32")
    precision.set_flags("fp32", reduced_reduction=False, cudnn_benchmark=False)
    assert torch.get_float32_matmul_precision() == "highest"
    precision.check_flags("fp32")


@pytest.mark.parametrize("name", ["fp32", "tf32"])
def test_torch_can_still_be_asked_by_its_older_names(name):
    """torch.compile and cudnn.flags do, and torch raises where the two ways say different things."""
    precision.set_flags("fp32" if name == "tf32" else "tf32", reduced_reduction=False, cudnn_benchmark=False)
    precision.set_flags(name, reduced_reduction=False, cudnn_benchmark=False)
    assert torch.backends.cuda.matmul.allow_tf32 is (name == "tf32")
    assert torch.backends.cudnn.allow_tf32 is (name == "tf32")
    assert torch.get_float32_matmul_precision() == ("high" if name == "tf32" else "highest")
    with torch.backends.cudnn.flags(enabled=True):
        pass
    precision.check_flags(name)


def step(model: nn.Module, x: torch.Tensor, mode: precision.Mode) -> None:
    mode.prepare(model)
    with mode.autocast():
        out = model(mode.input(x))
        out = out[0] if isinstance(out, tuple) else out
        loss = out.float().square().mean()
    loss.backward()


class Attention(nn.Module):
    """Scaled dot product alone: its queries, keys and values come from no linear layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x * self.scale, x, x)


MODELS = {
    "linear": (lambda: nn.Linear(16, 8), (4, 16)),
    "convolution": (lambda: nn.Conv2d(8, 8, 3), (2, 8, 8, 8)),
    "gru": (lambda: nn.GRU(16, 16), (3, 2, 16)),
    "lstm": (lambda: nn.LSTM(16, 16), (3, 2, 16)),
    "attention": (Attention, (1, 2, 4, 8)),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16-master", "fp16-pure", "bf16-pure"])
def test_the_watch_sees_the_models_own_operands(name, model):
    if model == "lstm" and name.startswith("fp16"):
        pytest.skip("torch has no fp16 LSTM on a CPU")
    skip_bf16_lstm(model, name)
    make, shape = MODELS[model]
    watch = OperandWatch()
    with watch:
        step(make(), torch.randn(shape), mode_of(name, "cpu"))
    assert watch.check(name).startswith("operands")


@pytest.mark.parametrize("model", MODELS)
def test_a_suite_that_ignores_its_precision_is_caught(model):
    make, shape = MODELS[model]
    watch = OperandWatch()
    with watch:
        step(make(), torch.randn(shape), mode_of("fp32", "cpu"))
    with pytest.raises(PrecisionError, match=r"asked for bf16, but .* had operands other than bfloat16"):
        watch.check("bf16")


def test_autocast_under_the_label_fp32_is_caught():
    watch = OperandWatch()
    with watch:
        step(nn.Linear(16, 8), torch.randn(4, 16), mode_of("bf16", "cpu"))
    with pytest.raises(PrecisionError, match="asked for fp32"):
        watch.check("fp32")


def test_a_step_on_another_device_is_caught():
    watch = OperandWatch()
    with watch:
        step(nn.Linear(16, 8).to("meta"), torch.randn(4, 16, device="meta"), mode_of("fp32", "cpu"))
    assert watch.check("fp32", "meta").endswith(" on meta")
    with pytest.raises(PrecisionError, match=r"asked for cpu, but \d+ of the model's \d+ calls ran on meta"):
        watch.check("fp32", "cpu")


@pytest.mark.parametrize(
    ("name", "linear", "norm"),
    [
        ("fp32", torch.float32, torch.float32),
        ("bf16", torch.float32, torch.float32),
        ("fp16-master", torch.float16, torch.float32),
        ("fp16-pure", torch.float16, torch.float16),
        ("bf16-pure", torch.bfloat16, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("affine", [True, False])
def test_a_model_gets_the_weights_of_its_precision(name, linear, norm, affine):
    mode = mode_of(name, "cpu")
    model = mode.prepare(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=affine), nn.LayerNorm(4)))
    assert model[0].weight.dtype == model[2].weight.dtype == linear
    assert model[1].running_var.dtype == norm
    assert not affine or model[1].weight.dtype == norm
    assert mode.input(torch.ones(2, 4)).dtype == linear
    assert mode.input(torch.ones(2, dtype=torch.int64)).dtype == torch.int64
    assert model(mode.input(torch.ones(2, 4))).dtype == linear


def test_adam_in_pure_fp16_survives_second_moments_that_become_zero():
    weight = torch.nn.Parameter(torch.ones(8, dtype=torch.float16))
    adam = torch.optim.AdamW([weight], lr=0.003, eps=precision.mode_of("fp16-pure", "cpu").adam_eps)
    for _ in range(20):
        weight.grad = torch.full_like(weight, 1e-3)
        adam.step()
    assert ((weight - 1).abs() < 0.5).all()  # -inf with 1e-8
    assert precision.mode_of("fp16-master", "cpu").adam_eps == precision.mode_of("bf16-pure", "cpu").adam_eps == 1e-8
