"""The selftest's own judgement: what passes, what fails, and that its models do what they are for."""

import pytest
from facts import lacking
from inside import described
from rows import row

from gpubench.analysis.stats import ratio
from gpubench.cli import selftest
from gpubench.hardware.environment import Device, devices_of
from gpubench.rows import write as records
from gpubench.runner.options import Options
from gpubench.runner.session import RunSummary
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

CLOCK = {"resolution_seconds": 1e-7, "step_seconds": 0.01, "clock_seconds_per_step": 2e-6} | {
    f"pair_{number}": 1.0 + (number - 7) / 1000 for number in range(14)
}


def rows(tmp_path, seconds):
    """A CSV as the selftest's sampled run writes it: six trials of each model."""
    file = tmp_path / "a.csv"
    file.unlink(missing_ok=True)
    usual = {"suite": "selftest_suite", "batch_size": 256, "mode": "sampled", "measured": "projected"}
    for model, times in seconds.items():
        records.append(file, [row(model=model, trial=trial, seconds=each, **usual) for trial, each in enumerate(times)])
    return file


def is_same(comparison):
    return selftest.check_verdict("A/A", comparison, {"same", "undecided"}).passed


def is_slower(comparison):
    return selftest.check_verdict("25% slower", comparison, {"slower"}).passed


A = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02]


def test_equal_cases_pass_and_a_slowdown_is_found(tmp_path):
    same = selftest._comparisons(rows(tmp_path, {"a": A, "b": A[::-1]}))
    assert is_same(same["b"])
    different = selftest._comparisons(rows(tmp_path, {"a": A, "b": [1.2 * each for each in A]}))
    assert not is_same(different["b"])
    found = selftest._comparisons(rows(tmp_path, {"a": A, "padded": [1.25 * each for each in A]}))
    assert is_slower(found["padded"])
    missed = selftest._comparisons(rows(tmp_path, {"a": A, "padded": A[::-1]}))
    assert not is_slower(missed["padded"]), "a tool that is always undecided must not pass"
    found = selftest._comparisons(rows(tmp_path, {"a": A, "b": [1.25 * each for each in A]}))
    plain = ratio([1.25 * each for each in A], A)
    assert found["b"].ratio.low < plain.low
    assert found["b"].ratio.high > plain.high


def test_the_clock_has_to_be_fine_and_cheap_and_missing_trials_fail(tmp_path):
    assert selftest.check_timer(CLOCK).passed
    assert not selftest.check_timer(CLOCK | {"resolution_seconds": 0.015}).passed
    assert selftest.check_overhead(CLOCK).passed
    assert not selftest.check_overhead(CLOCK | {"clock_seconds_per_step": 1e-4}).passed
    dear = {name: value + 0.05 if name.startswith("pair") else value for name, value in CLOCK.items()}
    assert not selftest.check_overhead(dear).passed
    assert selftest._comparisons(rows(tmp_path, {"b": A})) == {}
    assert not is_same(None)
    assert not is_slower(None)
    assert not selftest.check_projection([], [10.0]).passed
    assert not selftest.check_timer({}).passed
    assert not selftest.check_overhead({}).passed


TWO_LOOKS = [("sampled", 3), ("full", 1), ("sampled", 6), ("full", 2), ("sampled", 11), ("full", 5)]


def pretend(monkeypatch, tmp_path, times):
    """The checks of a device whose trials take these times, by model, and what was asked of it."""
    asked = []

    def run(options):
        asked.append((options.mode, options.repeats))
        folder = options.out.parent / "now"
        folder.mkdir(exist_ok=True)
        rows(folder, {model: times[model][: options.repeats] for model in options.models}).rename(options.out)

    monkeypatch.setattr(selftest, "_run", run)
    monkeypatch.setattr(selftest, "_clock", lambda options, device: CLOCK)
    monkeypatch.setattr(selftest, "_precisions", lambda options, device, folder: iter(()))
    cpu = Device("cpu", "cpu", "Some CPU", 8 * 2**30, "", "", "abc", {})
    return {check.name: check for check in selftest._checks(cpu, tmp_path)}, asked


def test_two_trials_out_of_place_lead_to_more_rounds(tmp_path, monkeypatch):
    """Twelve seconds a trial, two of `a` take 22: six and eleven rounds cannot tell 25%, twenty can."""
    times = {
        "a": [12.2, 22.4, 12.1, 12.5, 12.3, 12.0, 12.4, 22.2, 12.15, 12.35, 12.25, 12.1, 12.3, 12.2, 12.4] + [12.2] * 5
    }
    times |= {"b": times["a"][2:4] * 10, "padded": [1.25 * seconds for seconds in times["a"][2:4] * 10]}
    checks, asked = pretend(monkeypatch, tmp_path, times)
    assert asked == [*TWO_LOOKS, ("sampled", 20), ("full", 10)]
    assert all(check.passed for check in checks.values()), checks


def test_a_machine_too_restless_for_twenty_rounds_fails(tmp_path, monkeypatch):
    restless = [10.0, 20.0, 40.0, 14.0, 28.0] * 4
    times = {"a": restless, "b": restless, "padded": [1.25 * each for each in restless]}
    checks, asked = pretend(monkeypatch, tmp_path, times)
    assert asked == [*TWO_LOOKS, ("sampled", 20), ("full", 10)]
    assert [name for name, check in checks.items() if not check.passed] == ["25% slower"]


def test_a_false_difference_gets_no_second_look(tmp_path, monkeypatch):
    times = {"a": A * 4, "b": [1.2 * each for each in A * 4], "padded": [1.25 * each for each in A * 4]}
    checks, asked = pretend(monkeypatch, tmp_path, times)
    assert asked == TWO_LOOKS[:4]
    assert not checks["A/A"].passed


@pytest.mark.parametrize(("full", "passed"), [(10.0, True), (12.0, False), (8.0, False)])
def test_a_projection_has_to_foretell_the_full_run(full, passed):
    assert selftest.check_projection(A, [full, full]).passed is passed


def test_ctrl_c_ends_all_of_it(monkeypatch):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, say: RunSummary(130))
    with pytest.raises(KeyboardInterrupt):
        selftest._run(Options())


def test_trials_beside_other_programs_are_said(tmp_path):
    records.append(tmp_path / "rows.csv", [row(), row(trial=1, marks="shared unsteady")])
    beside = selftest.marked_shared(tmp_path / "rows.csv")
    assert lacking(beside, 1, "2 trials") == []
    assert selftest.marked_shared(tmp_path / "none.csv") == ""
    lines = selftest.verdict([selftest.SelftestCheck("timer", True, "fine")], "Some CPU", beside)
    assert lines[0] == f"note  {beside}"


@pytest.mark.parametrize("passed", [True, False])
def test_the_command_prints_each_check_and_ends_with_the_verdict(cli, monkeypatch, passed):
    check = selftest.SelftestCheck("timer", passed, "fine")
    monkeypatch.setattr(selftest, "_checks", lambda device, folder: iter([check]))
    monkeypatch.setattr(selftest, "marked_shared", lambda path: "")
    monkeypatch.setattr("gpubench.runner.process.describe", lambda: described()["facts"])
    done = cli("selftest", "--device", "cpu")
    assert done.returncode == (0 if passed else 1)
    assert check.line in done.stdout
    assert ("PASSED" if passed else "FAILED (timer)") in done.stdout.splitlines()[-1]
    assert cli("selftest", "--device", "all,cpu").returncode == 2


def options(**changes):
    settings = {"width": "64", "steps": "20"}
    return Options(
        suites=(str(selftest.SUITE),), precision="fp32", batch="64", device="cpu", settings=settings, peaks=False,
        **changes,
    )  # fmt: skip


@pytest.mark.usefixtures("cli")
def test_precisions_are_proved_and_a_lie_is_caught(tmp_path):
    cpu = next(device for device in devices_of(described()["facts"]) if device.kind == "cpu")
    precisions, label = selftest._precisions(options(), cpu, tmp_path)
    assert precisions.passed, precisions.detail
    assert "fp32" in precisions.detail
    assert label.passed, label.detail


@pytest.mark.e2e
def test_the_clock_is_timed_in_a_real_trial():
    cpu = next(device for device in devices_of(described()["facts"]) if device.kind == "cpu")
    found = selftest._clock(options(), cpu)
    assert selftest.check_timer(found).passed, found
    assert found["step_seconds"] > 0
    assert found["clock_seconds_per_step"] > 0
    assert sum(name.startswith("pair_") for name in found) == 14


@pytest.mark.parametrize("settled_after", [5.0, 15.0])
def test_a_sampled_trial_on_a_card_leaves_much_of_the_run_to_project(settled_after):
    now = 0.0
    clock = Clock(sampling_for("sampled", accelerator=True), now=lambda: now, settled=lambda: now > settled_after)
    batches = [[0]] * round(selftest.ACCELERATOR_FULL_SECONDS / 0.01)
    for _ in clock.epochs(1):
        for _ in clock.steps(batches, "train"):
            now += 0.01
    assert now < selftest.ACCELERATOR_FULL_SECONDS / 2
    assert clock.summary()["seconds"] == pytest.approx(selftest.ACCELERATOR_FULL_SECONDS)
