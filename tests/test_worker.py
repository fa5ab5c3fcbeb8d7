"""A trial in the child's own code: a label that is not true, or a training that led nowhere, is a failed trial."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from facts import lacking
from measured_rows import rows_of_run

from gpubench.rows.read import load
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import fastai, precision
from gpubench.worker import run_trial

LIAR = Path(__file__).parent / "suites" / "liar.py"


def measure(name, path=LIAR, model="mlp", **settings):
    """What the child would answer for one quick trial of the suite at `path` on this CPU."""
    loaded = files.load(Path(path))
    case = Case(
        suite=loaded.name, suite_version=1, suite_digest=loaded.digest, suite_path=str(loaded.path), model=model,
        precision=name, device="cpu", params=loaded.resolve_params(settings), batch_policy="fixed", batch_size=16,
        mode="quick", data="synthetic",
    )  # fmt: skip
    trial = Trial(case, 0, 1)
    return run_trial.measure(trial, lambda event: None, None)["measurement"]


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "fp16-master", "fp16-pure", "bf16-pure"])
def test_an_honest_suite_proves_each_precision(name):
    answer = measure(name)
    assert (answer["status"], answer["reason"]) == ("ok", "")
    assert all(word in answer["precision_proof"] for word in ("probe", "operands", "weights"))


@pytest.mark.parametrize(("asked", "really", "words"), [
    ("fp32", "bf16", "operands other than float32"),
    ("bf16", "fp32", "operands other than bfloat16"),
    ("fp16", "fp32", "operands other than float16"),
    ("fp16", "bf16", "operands other than float16"),
    ("fp16", "fp16-master", "the model are float16, not float32"),
    ("fp16-master", "fp32", "operands other than float16"),
    ("fp16-master", "fp16", "the model are float32, not float16"),
    ("fp16-master", "fp16-pure", "the BatchNorm are float16, not float32"),
    ("fp16-pure", "fp16", "the model are float32, not float16"),
    ("bf16-pure", "bf16", "the model are float32, not bfloat16"),
    ("fp16-pure", "fp16-master", "the optimizer are float32, not float16"),
    ("fp16-master", "alone", "the weights of fp16-master cannot be checked"),
])  # fmt: skip
def test_a_suite_that_ignores_its_precision_fails_its_trial(asked, really, words):
    answer = measure(asked, really=really)
    assert (answer["status"], answer["seconds"], lacking(answer["reason"], words, asked)) == ("failed", None, [])


def resnet(name):
    found = files.find("resnet")
    few = {"image_size": "32", "train_images": "16", "valid_images": "16", "pipeline": "device"}
    return measure(name, found.path, "resnet18", **few)


def test_the_layout_that_ran_is_in_the_answer():
    assert resnet("fp32")["memory_format"] == "channels_last"
    assert measure("fp32")["memory_format"] == ""


def test_autocast_off_for_real_is_caught_by_the_probe(monkeypatch):
    monkeypatch.setattr(precision.Mode, "autocast", lambda self: nullcontext())
    answer = resnet("bf16")
    words = ("asked for bf16, but the probe's matmul", "looks like fp32")
    assert (answer["status"], lacking(answer["reason"], *words)) == ("failed", [])


def test_autocast_off_in_the_training_only_is_caught_by_its_operands(monkeypatch):
    monkeypatch.setattr(fastai.PrecisionCallback, "before_batch", lambda self: None)
    answer = resnet("bf16")
    assert (answer["status"], lacking(answer["reason"], "convolution", "bfloat16")) == ("failed", [])


def test_what_a_card_with_tf32_left_on_would_compute_is_caught(monkeypatch):
    monkeypatch.setattr(precision, "_error", lambda part, device, mode: 2.9e-4)
    answer = measure("fp32")
    assert (answer["status"], lacking(answer["reason"], "asked for fp32", "looks like tf32")) == ("failed", [])


@pytest.mark.parametrize(("name", "rate"), [("fp32", "1e30"), ("fp16-pure", "6e4")])
def test_a_training_that_diverged_is_no_time(name, rate):
    answer = measure(name, lr=rate)
    assert (answer["status"], answer["fault"]) == ("failed", "diverged")
    assert answer["reason"].startswith("diverged: the last loss was not finite")
    assert answer["nonfinite_losses"] > 0
    assert answer["precision_proof"]
    assert answer["laps"] == ()
    assert all(answer[key] is None for key in ("seconds", "samples_per_second", "train_seconds", "data_stall"))


def test_a_model_that_cannot_be_validated_has_diverged():
    """fp16 activations can overflow in validation, where BatchNorm goes by its statistics, and nowhere before."""
    answer = measure("fp32", quality="nan")
    assert answer["reason"] == "diverged: the trained model has loss nan"
    assert (answer["status"], answer["seconds"]) == ("failed", None)
    assert measure("fp32", quality="2")["status"] == "ok"


@pytest.mark.parametrize(("old", "new", "words"), [
    ('clock.steps([torch.randn(16, 8)] * 8, phase="train")', "[torch.randn(16, 8)] * 8", ["gave the suite no batch"]),
    ("randn(16, 8)", "randn(9, 8)", ["no step had more than 9 samples; give a smaller --batch"]),
    ("params.really", "params.realy", ["no realy; it has cudnn_benchmark", "did you mean really", "of the suite"]),
])  # fmt: skip
def test_a_mistake_of_the_author_has_a_reason_and_a_traceback(tmp_path, monkeypatch, capfd, old, new, words):
    monkeypatch.setenv("GPUBENCH_TRACEBACK", "1")
    (tmp_path / "mine.py").write_text(LIAR.read_text().replace(old, new))
    answer = measure("fp32", tmp_path / "mine.py")
    assert (answer["status"], lacking(answer["reason"], *words)) == ("failed", [])
    assert "Traceback" in capfd.readouterr().err


def has_fp16_lstm():
    try:
        torch.nn.LSTM(8, 8).half()(torch.randn(1, 1, 8).half())[0].sum().backward()
    except RuntimeError:
        return False
    return True


def test_the_rows_of_an_overflow_and_of_a_missing_kernel(cli, tmp_path):
    options = ("--quick", "--precision", "fp16-master")
    rows = rows_of_run(cli, tmp_path, LIAR, *options, code=4, loss_scale=2**30).set_index("model")
    assert rows["status"]["mlp"] == "failed"
    assert "diverged: every one of" in rows["reason"]["mlp"]
    assert rows["skipped_steps"]["mlp"] > 0
    assert rows["loss_scale"]["mlp"] == 2**30
    if not has_fp16_lstm():
        assert rows["status"]["lstm"] == "unsupported"
        assert "one step of this model fails here: " in rows["reason"]["lstm"]


def test_a_suites_own_mistake_is_not_a_missing_kernel(cli, tmp_path):
    options = ("--models", "mlp", "--quick", "--precision", "fp16-pure")
    row = rows_of_run(cli, tmp_path, LIAR, *options, code=4, really="bug").iloc[0]
    mistake = "ValueError: a mistake of the suite's own"
    assert (row["status"], row["reason"].partition(" (line")[0]) == ("failed", mistake)


ODD_SUITE = '''"""A suite without torch."""
from gpubench import Suite


def train(trial, clock):
    for _ in clock.epochs(1):
        for _ in LOOP:
            sum(range(10_000))
    return QUALITY


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False, quality="accuracy", goal=0.5)
'''


def odd_row(cli, folder, quality, loop='clock.steps([[0]] * 8, "train")'):
    """(exit code, row) of a full run of a suite that returns this quality."""
    (folder / "odd.py").write_text(ODD_SUITE.replace("LOOP", loop).replace("QUALITY", quality))
    done = cli("run", "--suite", "odd.py", "--device", "cpu", "--precision", "fp32", "--full", "--out", "a.csv")
    return done.returncode, load([folder / "a.csv"]).frame.iloc[0]


def test_a_suite_that_trains_no_step_of_the_clock_fails(cli, tmp_path):
    for loop in ("range(8)", 'clock.steps([], "train")', 'clock.steps([[0]], "valid")'):
        code, row = odd_row(cli, tmp_path, "{}", loop)
        missing = lacking(row["reason"], "clock.steps(", "no training was timed")
        assert (code, row["status"], missing) == (4, "failed", [])
        (tmp_path / "a.csv").unlink()


@pytest.mark.parametrize(("quality", "words"), [
    ('{"accuracy": "94%"}', ("accuracy", "'94%'", "left out")),
    ('{"accuracy": 0.9, "loss": float("inf")}', ("loss", "inf", "left out")),
    ('{"accuracy": 0.9, "f1": 0.5}', ("f1", "no such column")),
])  # fmt: skip
def test_a_quality_that_no_row_can_hold_is_named(cli, tmp_path, quality, words):
    code, row = odd_row(cli, tmp_path, quality)
    assert (code, row["status"]) == (0, "ok")
    assert lacking(row["reason"], *words) == []
    assert row["accuracy"] == 0.9 or "94%" in quality
