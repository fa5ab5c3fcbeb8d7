"""Reads the profiler's trace of a step: operand dtypes of calls and kernels, and which calls are of compiled code."""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile

DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "c10::Float8_e5m2": torch.float8_e5m2,
    "c10::Float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "c10::Float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "signed char": torch.int8,
    "unsigned char": torch.uint8,
}
"""Dtype by its name in a trace."""
Operand = tuple[torch.dtype, Sequence[int]]
"""dtype and shape of a tensor."""
REGION = "Torch-Compiled Region"
COMPILED = (REGION, "CompiledFunction", "## Call CompiledFxGraph")
"""Beginnings of the names of events of compiled code, backward pass included."""
KERNELS = {"convolution": re.compile(r"fprop|dgrad|wgrad|convol"), "matmul": re.compile(r"gemm|xmma|cutlass|nvjet")}
"""Pattern for the names of CUDA kernels (cuDNN, cuBLAS, CUTLASS), by family."""
DTYPE_OF_KERNEL = {
    # 8 bits first, because the names of these kernels also contain the 16-bit dtype of the output.
    torch.float8_e4m3fn: re.compile(r"e4m3|e5m2|fp8|nvjet_(sm\d+_)?q"),
    torch.int8: re.compile(r"imma|int8|[_x](i|s)8(?!84)"),  # s884 is Volta's fp16
    torch.bfloat16: re.compile(r"bf16|bfloat16|nvjet_(sm\d+_)?tst"),
    torch.float16: re.compile(r"f(p)?16|half|hgemm|nvjet_(sm\d+_)?hsh"),
    torch.float32: re.compile(
        r"sgemm|scudnn|f32f32|tf32|tensorop_s1688gemm|nvjet_(sm\d+_)?sss|(engine|convolve)\w*<float\b"
    ),
}
"""Pattern of kernel names by the dtype of the operands; the first that matches counts."""


class Trace:
    """The trace of a profiled step."""

    def __init__(self, profiler: profile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            self._events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]

    @property
    def compiled_regions(self) -> int:
        """Number of calls of compiled code."""
        return sum(event["name"].startswith(REGION) for event in self._events)

    @property
    def kernels(self) -> Counter[tuple[str, torch.dtype]]:
        """Number of CUDA kernels with known names, by family and dtype, including those in CUDA graphs."""
        return Counter(filter(None, (family_of_kernel(event["name"]) for event in self._kernel_events)))

    @property
    def has_templates(self) -> bool:
        """Whether some products are kernels of Triton's templates: their names do not contain operand dtypes."""
        return any(event["name"].startswith("triton_tem") for event in self._kernel_events)

    @property
    def devices(self) -> Counter[str]:
        """Number of kernels by CUDA device."""
        return Counter(f"cuda:{event['args']['device']}" for event in self._kernel_events)

    @property
    def _kernel_events(self) -> list[Mapping[str, Any]]:
        return [event for event in self._events if event.get("cat") == "kernel"]

    def calls(
        self, wanted: Callable[[str], bool], whole: Callable[[str], object]
    ) -> Iterator[tuple[str, Sequence[Operand], bool]]:
        """Yield each innermost call with a `wanted` name: name, operands, and whether it is of compiled code.

        A call whose name `whole` accepts counts instead of those inside it: a CPU's `_scaled_mm` calls `mm` in float32.
        """
        calls = [event for event in self._events if event.get("cat") in {"cpu_op", "user_annotation"}]
        calls.sort(key=lambda event: (event["tid"], event["ts"], -event["dur"]))
        compiled = [event for event in calls if event["name"].startswith(COMPILED)]
        last_whole: Mapping[str, Any] | None = None
        for index, call in enumerate(calls):
            name = call["name"].rpartition("::")[2]
            if not wanted(name) or (last_whole and _contains(last_whole, call)):
                continue
            if whole(name):
                last_whole = call
            elif any(wanted(inner["name"].rpartition("::")[2]) for inner in _inside(calls, index)):
                continue
            types, sizes = call["args"].get("Input type", ()), call["args"].get("Input Dims", ())
            operands = [(DTYPES[text], size) for text, size in zip(types, sizes, strict=False) if text in DTYPES]
            yield name, operands, any(_contains(event, call) for event in compiled)


def family_of_kernel(name: str) -> tuple[str, torch.dtype] | None:
    """Return family and operand dtype of a CUDA kernel, or None if its name does not contain both."""
    family = next((family for family, pattern in KERNELS.items() if pattern.search(name)), "")
    dtype = next((dtype for dtype, pattern in DTYPE_OF_KERNEL.items() if pattern.search(name)), None)
    return (family, dtype) if family and dtype else None


def _inside(calls: Sequence[Mapping[str, Any]], index: int) -> Iterator[Mapping[str, Any]]:
    """Yield the calls inside the call at `index`; they come directly after it in `calls`."""
    for call in calls[index + 1 :]:
        if not _contains(calls[index], call):
            return
        yield call


def _contains(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    ends_first = inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    return bool(outer["tid"] == inner["tid"] and outer["ts"] <= inner["ts"] and ends_first)
