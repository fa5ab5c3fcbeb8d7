"""float8 and int8-mixed: the products are torchao's, the label is proved, and devices without them are refused."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion

from gpubench.errors import Unsupported
from gpubench.suite import files
from gpubench.suite.precisions import LEAST_CAPABILITY, PRECISIONS, without_low_precision
from gpubench.suite.trial import Measurement
from gpubench.training import low_precision, precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.low_precision import Float8Linear, Int8Linear, LowPrecisionLinear
from gpubench.training.operands import OperandWatch
from gpubench.training.precision import KINDS, PrecisionError, mode_of
from gpubench.training.stepper import Stepper
from gpubench.worker.run_trial import with_low_share

LOW = ("float8", "int8-mixed")
OLDER_TORCH = torch.__version__ < "2.15"


def network() -> nn.Sequential:
    """Two layers that both precisions take, a third that is the head."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64), nn.Linear(64, 64))


def watched(model: nn.Module, autocast: torch.dtype | None = torch.bfloat16, rows: int = 64) -> OperandWatch:
    """The watch of a step whose inputs need gradients, too."""
    watch, x = OperandWatch(), torch.randn(rows, 64, requires_grad=True)
    with watch:
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = model(x if autocast else x.to(torch.bfloat16)).float().square().mean()
        loss.backward()
    return watch


def prepared(name: str) -> nn.Module:
    return mode_of(name, "cpu").prepare(network())


def both_ways(layer: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """The output and all gradients of a layer."""
    x = x.clone().requires_grad_()
    output = layer(x)
    output.backward(gradient)
    return [output.detach(), x.grad, *(weight.grad for weight in layer.parameters())]


def with_torchaos(dtype: torch.dtype, kind: type[LowPrecisionLinear], convert) -> zip:
    """Pairs of results of a layer that torchao has converted, and of ours."""
    torch.manual_seed(0)
    mine = nn.Linear(64, 96).to(dtype)
    other = nn.Sequential(copy.deepcopy(mine))
    convert(other)
    mine.__class__ = kind
    x, gradient = torch.randn(4, 16, 64, dtype=dtype), torch.randn(4, 16, 96, dtype=dtype)
    return zip(both_ways(mine, x, gradient), both_ways(other, x, gradient), strict=True)


@pytest.fixture
def torchao():
    reason = "torchao, the oracle of these tests, cannot be imported (extra: test)"
    return pytest.importorskip("torchao.float8", reason=reason, exc_type=ImportError)


def to_float8(model: nn.Module, **options) -> nn.Module:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    return convert_to_float8_training(model, config=Float8LinearConfig(**options))


def to_int8(model: nn.Module, *, module_swap: bool) -> nn.Module:
    from torchao import quantize_
    from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig

    quantize_(model, Int8MixedPrecisionTrainingConfig(module_swap=module_swap))
    return model


def test_float8_is_torchaos_bit_for_bit(torchao):
    assert all(torch.equal(mine, other) for mine, other in with_torchaos(torch.bfloat16, Float8Linear, to_float8))
    for mine, other in with_torchaos(torch.float32, Float8Linear, to_float8):  # AMX rounds its scales otherwise
        assert (mine - other).norm() <= 1e-6 * other.norm()


def test_torchaos_int8_is_ours_and_its_default_is_bf16(torchao):
    pairs = with_torchaos(torch.float32, Int8Linear, lambda model: to_int8(model, module_swap=True))
    for mine, other in pairs:
        assert (mine - other).norm() <= 1e-6 * other.norm()
    watch = watched(to_int8(network().to(torch.bfloat16), module_swap=False), autocast=None)
    assert watch.check("bf16") == "operands matmul bfloat16 x9 on cpu"
    with pytest.raises(PrecisionError, match="asked for int8-mixed, but only 0 products"):
        watch.check("int8-mixed", low_products=6)


@pytest.mark.skipif(OLDER_TORCH, reason="older releases have no public product of float8 on a CPU")
def test_the_public_name_of_the_float8_product_has_the_bits_of_the_older_one(monkeypatch):
    layer = nn.Linear(64, 96).bfloat16()
    layer.__class__ = Float8Linear
    x, gradient = torch.randn(64, 64).bfloat16(), torch.randn(64, 96).bfloat16()
    public = both_ways(layer, x, gradient)
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.14.0"))
    layer.zero_grad()
    assert all(torch.equal(one, other) for one, other in zip(public, both_ways(layer, x, gradient), strict=True))


@pytest.mark.parametrize("kind", [Float8Linear, Int8Linear])
def test_any_number_of_rows(kind):
    """The last 32 rows are filled up with zeros, which change nothing."""
    layer = nn.Linear(64, 96, bias=False)
    layer.__class__ = kind
    x, gradient = torch.randn(3, 11, 64), torch.randn(3, 11, 96)
    x[0, 0, 0] = gradient[0, 0, 0] = 5.0
    few = both_ways(layer, x, gradient)
    layer.zero_grad()
    zeros = torch.zeros(31, 64), torch.zeros(31, 96)
    many = both_ways(layer, torch.cat([x.flatten(0, 1), zeros[0]]), torch.cat([gradient.flatten(0, 1), zeros[1]]))
    assert few[0].shape == (3, 11, 96)
    assert torch.equal(few[0].flatten(0, 1), many[0][:33])
    assert torch.equal(few[1].flatten(0, 1), many[1][:33])
    assert torch.equal(few[2], many[2])
    layer.zero_grad()
    output, x_gradient, of_weight = both_ways(layer, torch.randn(0, 64), torch.randn(0, 96))
    assert (output.shape, x_gradient.shape, bool(of_weight.any())) == ((0, 96), (0, 64), False)


def test_an_infinite_input_is_seen_in_the_output():
    for kind in (Float8Linear, Int8Linear):
        for bad in (float("inf"), float("nan")):
            layer = nn.Linear(32, 32)
            layer.__class__ = kind
            assert not layer(torch.full((32, 32), bad)).isfinite().any()


@pytest.mark.parametrize("name", LOW)
def test_the_probe_knows_them(name):
    errors = precision.probe(name, "cpu", mode_of(name, "cpu"))
    low, high = PRECISIONS[name].probe_errors
    assert set(errors) == {"matmul"}
    assert low < errors["matmul"] < high
    for other in {"bf16", "fp32", *LOW} - {name}:
        with pytest.raises(PrecisionError, match=f"asked for {name}"):
            precision.probe(name, "cpu", mode_of(other, "cpu"))


def test_which_layers_change():
    model = nn.Sequential(
        nn.Linear(48, 32),
        nn.Linear(32, 16),
        nn.Linear(16, 40),
        nn.Linear(40, 64),
        nn.MultiheadAttention(64, 2),
        nn.Sequential(nn.Linear(64, 32)),
        nn.Linear(32, 64),
    )
    weights = [id(weight) for weight in model.parameters()]
    assert mode_of("float8", "cpu").prepare(model) is model
    changed = [name for name, module in model.named_modules() if isinstance(module, LowPrecisionLinear)]
    assert changed == ["0", "5.0"]
    assert [id(weight) for weight in model.parameters()] == weights
    for without in (nn.Sequential(nn.Conv2d(3, 3, 1), nn.Linear(512, 1024)), nn.ReLU()):
        with pytest.raises(Unsupported, match="no linear layer is large enough"):
            mode_of("float8", "cpu").prepare(without)


@pytest.mark.parametrize("name", ["resnet", "cifar10", "imagenet", "largebatch", "tricks", "scaling"])
def test_suites_of_convolutions_refuse_before_anything_runs(name):
    assert files.find(name).suite.large_linears is False
    assert files.find("gpt").suite.large_linears is None


@pytest.mark.parametrize("name", LOW)
def test_a_step_proves_them_and_knows_their_flops(name):
    model = prepared(name)
    clock = Clock(sampling_for("full", accelerator=False))
    Stepper(mode_of(name, "cpu"), model, torch.optim.SGD(model.parameters(), lr=0.1), clock)
    watch = watched(model)
    assert clock.notes.low_products == 6
    assert watch.check(name, low_products=6).startswith("operands matmul bfloat16 x3, matmul ")
    assert watch.low_flops == 3 * 2 * 2 * 64 * 64 * 96


@pytest.mark.parametrize("name", LOW)
def test_compiled_code_proves_them_too(name):
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    model = prepared(name)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, watch = torch.randn(64, 64, requires_grad=True), OperandWatch()

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compiled(x).float().square().mean()
        loss.backward()

    step()
    for context in watch.steps(watch):
        with context:
            step()
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    assert "9 of 9 in compiled code" in watch.check(name, low_products=low_precision.products_of(model))
    assert low_precision.products_of(model) == 6
    assert watch.low_flops == 3 * 2 * 2 * 64 * 64 * 96


@pytest.mark.parametrize("direction", [None, 0, 1, 2])
@pytest.mark.parametrize(("name", "product"), [("float8", "float8_product"), ("int8-mixed", "int8_product")])
def test_a_plain_product_fails_the_proof(monkeypatch, name, product, direction):
    """In all three directions, or in one: the output, the gradient of the input, or that of the weight."""
    sizes = {(64, 96): 0, (96, 64): 1}  # of the second operand, by direction; the weight's gradient has (64, 64) rows
    original = getattr(low_precision, product)
    model = nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 40))
    mode_of(name, "cpu").prepare(model)

    def replaced(a, b, *others):
        # Rows of a: 128 on both ways through the layer, its 96 outputs for the gradient of the weight.
        way = 2 if a.shape[0] == 96 else sizes[tuple(b.shape)]
        plain = (a.float() @ b.float()).to(torch.bfloat16)
        return plain if direction in (None, way) else original(a, b, *others)

    monkeypatch.setattr(low_precision, product, replaced)
    watch = watched(model, rows=128)
    expected = low_precision.products_of(model)
    assert expected == 3
    with pytest.raises(PrecisionError, match=rf"asked for {name}, but only {0 if direction is None else 2} products"):
        watch.check(name, low_products=expected)


@pytest.mark.parametrize("name", LOW)
def test_a_suite_that_does_not_prepare_its_model_is_caught(name):
    with pytest.raises(PrecisionError, match=f"asked for {name}: the suite must use mode.prepare and a Stepper"):
        watched(network()).check(name)


@pytest.mark.parametrize(("asked", "used"), [("bf16", "float8"), ("bf16", "int8-mixed"), ("float8", "int8-mixed")])
def test_one_under_the_name_of_another_is_caught(asked, used):
    watch = watched(prepared(used))
    with pytest.raises(PrecisionError, match=f"asked for {asked}"):
        watch.check(asked, low_products=6 if asked in LOW else 0)


def test_products_in_another_precision_than_the_label_are_caught():
    """The others are the majority."""
    model = network()
    model[0].__class__ = Int8Linear
    with pytest.raises(PrecisionError, match="asked for bf16, but 3 products had 8-bit operands of another precision"):
        watched(model).check("bf16")
    x = torch.ones(32, 32, dtype=torch.int8)
    watch = OperandWatch()
    with watch:
        torch.mm(x, x)
        torch.mm(x.bfloat16(), x.bfloat16())
    with pytest.raises(PrecisionError, match="asked for bf16, but 1 products had 8-bit operands of another precision"):
        watch.check("bf16")
    # Without autocast the head computes in float32.
    model, watch = prepared("float8"), OperandWatch()
    with watch:
        model(torch.randn(64, 64, requires_grad=True)).square().mean().backward()
    with pytest.raises(PrecisionError, match="asked for float8, but no call beside 8-bit products was in bfloat16"):
        watch.check("float8", low_products=6)


@pytest.mark.parametrize("label", ["bf16", "bf16-pure", "fp32", "int8-mixed"])
@pytest.mark.parametrize("emulate", [False, True])
def test_torchaos_float8_has_no_other_name(torchao, label, emulate):
    model = to_float8(network().to(torch.bfloat16), emulate=emulate)
    with pytest.raises(PrecisionError, match=f"asked for {label}"):
        watched(model, autocast=None).check(label)


MEASURED = Measurement(status="ok", flops_per_sample=100.0, reason="something")
TRIAL, ON_CPU = (
    SimpleNamespace(case=SimpleNamespace(precision="float8", device=device)) for device in ("cuda:0", "cpu")
)


def seen(flops_per_sample, counted=False):
    """Of the 400 in a step, which is counted (if `counted`), or has the suite's 100 a sample."""
    watch, work = SimpleNamespace(low_flops=4 * flops_per_sample), SimpleNamespace(flops=400 if counted else None)
    return watch, work, SimpleNamespace(watched_samples=4)


@pytest.mark.parametrize(
    ("trial", "flops", "share", "reason"),
    [
        (TRIAL, 60.0, 0.6, "float8 has 60% of the FLOPs; something"),
        (TRIAL, 10.0, 0.1, "float8 has 10% of the FLOPs; something"),
        (TRIAL, 0.0, None, "float8 has an unknown share of the FLOPs; something"),
        (ON_CPU, 60.0, 0.6, "float8 has 60% of the FLOPs; a CPU's rate in float8 means nothing; something"),
    ],
)
def test_the_row_has_the_share(trial, flops, share, reason):
    for counted in (False, True):
        measurement = with_low_share(MEASURED, trial, *seen(flops, counted))
        assert (measurement.low_flops_share, measurement.reason) == (share, reason)
    nothing_declared = with_low_share(replace(MEASURED, flops_per_sample=None), trial, *seen(flops))
    assert nothing_declared.low_flops_share is None


def test_a_small_share_is_refused():
    with pytest.raises(Unsupported, match=r"its linear layers in float8 have only 9\.9% of the FLOPs"):
        with_low_share(MEASURED, TRIAL, *seen(9.9))
    bf16 = SimpleNamespace(case=SimpleNamespace(precision="bf16", device="cpu"))
    assert with_low_share(replace(MEASURED), bf16, *seen(0.0)) == MEASURED


@pytest.mark.parametrize(
    ("capability", "too_new"),
    [
        ((7, 5), ("float8", "int8-mixed", "mxfp8", "nvfp4")),
        ((8, 0), ("float8", "mxfp8", "nvfp4")),
        ((8, 9), ("mxfp8", "nvfp4")),
        ((9, 0), ("mxfp8", "nvfp4")),
        ((12, 0), ()),
    ],
)
def test_the_table_of_capabilities(capability, too_new):
    reasons = without_low_precision("CARD", capability)
    own = "{}.{}".format(*capability)
    assert set(reasons) == {*too_new, "mxfp8", "nvfp4"}
    for name, reason in reasons.items():
        least = {"float8": "8.9", "int8-mixed": "8.0", "mxfp8": "10.0", "nvfp4": "10.0"}[name]
        needs = f"{name} needs an NVIDIA card of capability {least} or later; CARD has {own}"
        assert reason == (needs if name in too_new else f"gpubench has no proof of {name} yet")


@pytest.mark.parametrize("chip", ["gfx942:sramecc+:xnack-", "gfx950", "gfx90a", ""])
def test_other_makers(chip):
    reasons = without_low_precision("CARD", None, chip)
    assert set(reasons) == set(LEAST_CAPABILITY) - ({"float8"} if chip.startswith(("gfx942", "gfx950")) else set())
    assert reasons.get("float8", "or an MI300").endswith("or an MI300")
    assert reasons["int8-mixed"] == "int8-mixed needs an NVIDIA card of capability 8.0 or later"


def test_the_encoding_of_an_mi300(monkeypatch):
    assert low_precision.float8_types() == (torch.float8_e4m3fn, torch.float8_e5m2)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    for chip, end in (("gfx942:xnack-", "fnuz"), ("gfx950", "")):
        card = SimpleNamespace(gcnArchName=chip)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda card=card: card)
        assert all(str(dtype).endswith("fnuz") == bool(end) for dtype in low_precision.float8_types())
        assert set(low_precision.float8_types()) <= KINDS["float8"].linears


@pytest.mark.parametrize(("name", "dtype"), [("float8", torch.float8_e4m3fn), ("int8-mixed", torch.int8)])
def test_the_peak_is_of_the_operator(name, dtype):
    watch = OperandWatch()
    multiply = low_precision.random_product(name, 64, torch.device("cpu"))
    with watch:
        assert multiply().shape == (64, 64)
    assert dict(watch.seen) == {("matmul", dtype): 1}
