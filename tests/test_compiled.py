"""The proof of a compiled step is of the code that is timed; tensor subclasses are seen as what they compute."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from gpubench.training import operands
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.flops import Work, beside, product_flops
from gpubench.training.operands import OperandWatch
from gpubench.training.precision import PrecisionError, mode_of
from gpubench.training.trace import family_of_kernel


class Counting:
    """A backend of torch.compile that runs the traced graph and counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, graph, inputs):
        def run(*arguments):
            self.calls += 1
            return graph(*arguments)

        return run


@pytest.fixture(autouse=True)
def fresh():
    """Nothing that an earlier test compiled."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def prove(name, model, *, run_in=None, backend=None):
    """Train for a few steps; return the watch, and the calls of compiled code before and after the watched steps."""
    mode, watch = mode_of(run_in or name, "cpu"), OperandWatch()
    if backend:
        model = torch.compile(model, backend=backend)  # model.compile() skips torch's own layers in torch 2.11
    calls = []
    one_step_laps = replace(sampling_for("quick", accelerator=False), lap_seconds=0.0)
    clock = Clock(one_step_laps, watch=lambda: watch.steps(watch))

    def step():
        with mode.autocast():
            loss = model(torch.ones(4, 16)).float().square().mean()
        loss.backward()
        calls.append(getattr(backend, "calls", 0))

    for _ in clock.epochs(1):
        for _ in clock.steps([0] * 4, "train"):
            step()
    before = calls[-1]
    for _ in clock.resident():
        step()
    return watch, calls[calls.index(before) + 1 :]


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_compiled_code_runs_in_the_step_that_is_proved(name):
    watch, calls = prove(name, nn.Linear(16, 8), backend=Counting())
    assert calls == [5, 6], "one watched step and one timed step, both of compiled code"
    assert watch.compiled_regions == 1, "its backward pass is eager: the backend compiles forward only"
    assert watch.check(name).endswith("on cpu, 1 of 2 in compiled code (1 calls)")


def test_compiled_code_in_another_precision_is_caught():
    watch, _ = prove("bf16", nn.Linear(16, 8), run_in="fp32", backend=Counting())
    with pytest.raises(PrecisionError, match=r"asked for bf16, but .* had operands other than bfloat16"):
        watch.check("bf16")


def test_compiled_code_without_visible_products_is_proved_on_its_eager_twin():
    class Halves(nn.Module):
        """A product outside the compiled part."""

        def __init__(self):
            super().__init__()
            self.linear, self.rest = nn.Linear(16, 8), torch.compile(lambda x: x * 2, backend=backend)

        def forward(self, x):
            return self.linear(self.rest(x))

    backend = Counting()
    watch, _ = prove("bf16", Halves())
    assert backend.calls == 4 + 1 + 1, "it runs when profiled and when timed, and not under the dispatch mode"
    assert watch.check("bf16").endswith(", proved on its eager twin")


def test_a_step_that_does_not_compile_is_proved_as_before():
    torch.compile(lambda x: x + 1, backend=Counting())(torch.ones(2))  # something else was
    watch, _ = prove("bf16", nn.Linear(16, 8))
    assert watch.check("bf16") == "operands matmul bfloat16 x2 on cpu"


def test_kernels_by_their_names():
    expected = {
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64": ("matmul", torch.bfloat16),
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn": ("matmul", torch.float16),
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc": ("convolution", torch.float16),
        "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64": ("matmul", torch.float8_e4m3fn),
        "sm80_xmma_gemm_i8f16_i8i32_f32_tn_n_tilesize64x64x64": ("matmul", torch.int8),
        "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4": ("matmul", torch.float32),
        # of an H100 in fp32, torch 2.11
        "sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize64x32x8_stage3_ffma_aligna8": ("matmul", torch.float32),
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>": ("convolution", torch.float32),
        "void wgrad_alg0_engine_NHWC<float, 128, 5, 5, 3, 3, 3, false, 512>": ("convolution", torch.float32),
        "void convolve_common_engine_float_NHWC<float, float, 1024, 5>": ("convolution", torch.float32),
        "void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>": None,  # one of three for a convolution
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel<float, cutlass::arch::Sm80, true>": None,
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>": None,
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>": None,
        "triton_poi_fused_relu_0": None,
        "triton_tem_fused_mm_3": None,
    }
    assert {kernel: family_of_kernel(kernel) for kernel in expected} == expected


class MadeTrace:
    """A trace of one compiled product that is seen, and kernels of others in a CUDA graph."""

    compiled_regions, has_templates, devices = 2, False, Counter({"cuda:0": 51})

    def __init__(self, hidden):
        self.kernels = Counter({("matmul", torch.bfloat16): 1}) + Counter({("matmul", hidden): 50})

    def calls(self, wanted, whole):
        yield "mm", [(torch.bfloat16, (2, 2)), (torch.bfloat16, (2, 2))], True


@pytest.mark.parametrize(("hidden", "kernels"), [(torch.bfloat16, {}), (torch.float32, {"cuda:0": 3})])
def test_what_a_cuda_graph_hides_counts(monkeypatch, hidden, kernels):
    trace = MadeTrace(hidden)
    trace.devices = Counter(kernels)
    monkeypatch.setattr(operands, "Trace", lambda profiler: trace)
    watch = OperandWatch("cuda:0")
    assert watch._read(None) == 51
    assert watch.devices == (kernels or {"cuda:0": 51})
    if hidden is torch.bfloat16:
        assert watch.check("bf16", "cuda:0").startswith("operands matmul bfloat16 x51 on cuda:0")
    else:
        with pytest.raises(PrecisionError, match="other than bfloat16"):
            watch.check("bf16", "cuda:0")


INT8, FLOAT8, BF16 = torch.int8, torch.float8_e4m3fn, torch.bfloat16


@pytest.mark.parametrize(
    ("name", "dtypes", "counted", "flops"),
    [
        ("mm", (torch.float32, BF16), torch.float32, 0),
        ("mm", (torch.int64, BF16), BF16, 0),
        ("mm", (INT8, INT8), INT8, 0),
        ("_int_mm", (INT8, INT8), INT8, 48),
        ("_scaled_mm", (FLOAT8, FLOAT8, torch.float32), FLOAT8, 48),
        ("gemm_4bit", (BF16, torch.uint8), torch.uint8, 0),
        ("mm", (torch.int64, torch.int64), None, 0),
        ("relu", (torch.float32,), None, 0),
    ],
)
def test_a_call_counts_by_its_first_operand_or_its_narrowest_beside_scales(name, dtypes, counted, flops):
    watch, shapes = OperandWatch(), ((2, 3), (3, 4), ())
    assert watch._count(name, list(zip(dtypes, shapes, strict=False))) is counted
    assert dict(watch.seen) == ({("matmul", counted): 1} if counted else {})
    assert watch.low_flops == flops  # 2 x 2 x 3 x 4


@pytest.mark.parametrize(("kernels", "flops"), [(3, 7), (4, 0)])
def test_flops_in_8_bits_are_unknown_where_a_cuda_graph_hides_some(monkeypatch, kernels, flops):
    trace = MadeTrace(torch.float8_e4m3fn)
    trace.kernels = Counter({("matmul", torch.float8_e4m3fn): kernels, ("matmul", torch.bfloat16): 12 - 3 * kernels})
    monkeypatch.setattr(operands, "Trace", lambda profiler: trace)
    watch = OperandWatch("cuda:0")
    watch.seen["matmul", torch.float8_e5m2], watch.low_flops = 3, 7
    trace.has_templates = kernels == 3
    assert watch._read(None) == (0 if kernels == 3 else 1)
    assert watch.low_flops == flops


ONE = torch.ones(())


class Shell(torch.Tensor):
    """A tensor that says it is bfloat16 and multiplies in 8 bits."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        assert func is torch.ops.aten.mm.default
        a, b = (shell.inner for shell in args)
        if a.dtype is torch.int8:
            return torch._int_mm(a, b)
        return torch._scaled_mm(a, b, scale_a=ONE, scale_b=ONE, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_tensor_subclass_is_seen_as_what_it_computes(dtype):
    a, b = torch.ones(32, 16).to(dtype), torch.ones(8, 16).to(dtype).t()
    watch, work = OperandWatch(), Work()
    with beside(work, watch):
        Shell(a) @ Shell(b)
    assert dict(watch.seen) == {("matmul", dtype): 1}
    assert work.flops == 2 * 32 * 16 * 8
    assert (work.calls, work.odd_flops) == (1, 0)
    with pytest.raises(PrecisionError, match="8-bit operands of another precision"):
        watch.check("bf16")


@pytest.mark.parametrize(("a", "b", "flops"), [
    ((6, 8), (3, 8, 4), 2 * 6 * 8 * 4), ((3, 6, 8), (3, 8, 4), 3 * 2 * 6 * 8 * 4), ((6, 8), (8, 4), 2 * 6 * 8 * 4),
    ((3, 6, 8), (8, 12), 2 * 6 * 8 * 12),
])  # fmt: skip
def test_flops_of_groups_of_products(a, b, flops):
    assert product_flops(torch.empty(a), torch.empty(b)) == flops
