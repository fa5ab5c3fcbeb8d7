"""Keep or return: limits that hold what they promise, silence where too little is known, a page for support."""

import math
import random
import statistics
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rows import row, rows

from gpubench.commands.accept import accept as command
from gpubench.commands.accept.accept import CODES, Wishes, judged
from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState
from gpubench.plan.options import Options
from gpubench.rows import write
from gpubench.rows.read import load
from gpubench.runner import measured_peaks
from gpubench.runner import run as run_command
from gpubench.runner.progress import describe
from gpubench.runner.warm_up import WarmUp
from gpubench.studies.acceptance.alike import measured_rows, references_of
from gpubench.studies.acceptance.checks import CANNOT_SAY, KEEP, RETURN, judge
from gpubench.studies.acceptance.kind import is_called
from gpubench.studies.acceptance.limits import LEAST, LEAST_HOSTS, found_by, limit_of, robust_spread

H100 = {"card": "NVIDIA H100 80GB HBM3", "precision": "fp16", "mode": "sampled", "threads": 8}
PEAK, BANDWIDTH = 700e12, 2.9e12


def session(name, specimen, share=1.0, **changes):
    """Six trials of two cases on one device, with everything this share of what is usual."""
    peaks = {"measured_peak_flops": PEAK * share, "measured_bandwidth_bytes_per_second": BANDWIDTH * share}
    own = {**H100, **peaks, "session": name, "device_hash": specimen, **changes}
    slow = own.pop("slow", {})
    made = []
    for model, rate in (("resnet50", 2800.0), ("bert-base", 840.0)):
        made += rows([100.0] * 3, **{**own, "model": model, "samples_per_second": rate * share * slow.get(model, 1.0)})
    return made


def others(count, spread=0.005, share=1.0, **changes):
    shares = [share * (1 + spread * (at % 5 - 2)) for at in range(count)]
    return [line for at, own in enumerate(shares) for line in session(f"o{at}", f"d{at}", own, **changes)]


def judgement(folder, mine, references):
    folder.mkdir(exist_ok=True)
    write.append(folder / "mine.csv", mine)
    if references:
        write.append(folder / "theirs.csv", references)
    known, problems = measured_rows([folder])
    assert problems == []
    own = known[known["session"] == "mine"]
    return judge(own, references_of(own, known))


def test_a_card_like_its_kind_is_kept_and_a_slow_one_returned(tmp_path):
    kept = judgement(tmp_path, session("mine", "aaaa", 0.99), others(8))
    assert (kept.verdict, len(kept.figures), kept.references) == (KEEP, 4, 8)
    assert kept.sentence.startswith("Keep it: NVIDIA H100 80GB HBM3 is as fast as 8 others of its kind.")
    slow = judgement(tmp_path / "slow", session("mine", "aaaa", slow={"bert-base": 0.88}), others(8))
    assert slow.verdict == RETURN
    assert "bert-base fp16 is 0.88 of what is typical of 8 others of its kind; of good hosts like" in slow.sentence


@pytest.mark.parametrize(
    ("card", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "a100 80gb"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 4090", "4090"),
    ],
)
def test_a_card_has_the_names_that_people_use(card, kind):
    assert is_called(card, kind)


@pytest.mark.parametrize(
    ("card", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 PCIe"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti"),
        ("NVIDIA GeForce RTX 4070 Ti", "RTX 4070"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100"),
        ("Tesla V100-SXM2-32GB", "V100 SXM3"),
        ("NVIDIA H100 80GB HBM3", " "),
    ],
)
def test_a_name_of_another_card_is_none_of_this_one(card, kind):
    assert not is_called(card, kind)


@pytest.mark.parametrize("mig", ["on", "off"])
def test_another_card_is_named_and_never_called_slow(monkeypatch, mig):
    card = SimpleNamespace(state=lambda: CardState(mig=mig))
    monkeypatch.setattr(command, "readers", lambda devices: {"cuda:0": card})
    device = Device("cuda:0", "cuda", "NVIDIA A100-SXM4-40GB", 40 * 10**9, "", "550", "aaaa", {})
    assert bool(command.another_card(device, "A100")) == (mig == "on")
    assert "this is NVIDIA A100-SXM4-40GB" in command.another_card(device, "H100")
    assert command.another_card(device, "") == ""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_others_say_nothing(tmp_path, count):
    found = judgement(tmp_path, session("mine", "aaaa", 0.5), others(count))
    assert found.verdict == CANNOT_SAY
    assert "it takes 6" in found.sentence


@pytest.mark.parametrize(
    "changes",
    [{"torch": "2.9.0"}, {"cuda": "12.6"}, {"batch_size": 32}, {"card": "NVIDIA H100 PCIe"}, {"mode": "quick"}],
)
def test_another_recipe_stack_or_card_is_no_reference(tmp_path, changes):
    assert judgement(tmp_path, session("mine", "aaaa"), others(8, **changes)).references == 0


def test_references_that_scatter_widely_say_nothing_of_a_card_like_them(tmp_path):
    found = judgement(tmp_path, session("mine", "aaaa"), others(8, spread=0.15))
    assert found.verdict == CANNOT_SAY
    assert "scatter so much" in found.sentence


def test_a_slow_card_beside_other_programs_is_not_blamed_but_a_fast_one_is_kept(tmp_path):
    found = judgement(tmp_path, session("mine", "aaaa", 0.8, marks="shared"), others(8))
    assert found.verdict == CANNOT_SAY
    assert "other programs computed meanwhile" in found.sentence
    assert judgement(tmp_path / "fast", session("mine", "aaaa", marks="shared"), others(8)).verdict == KEEP


def test_its_own_past_is_no_reference_and_neither_are_cards_of_its_host(tmp_path):
    past = [line for at in range(8) for line in session(f"p{at}", "aaaa", 0.8)]
    assert judgement(tmp_path / "past", session("mine", "aaaa", 0.8), past).verdict == CANNOT_SAY
    beside = [*session("chassis", "aaaa"), *session("chassis", "bbbb"), *session("later", "bbbb")]
    assert judgement(tmp_path / "host", session("mine", "aaaa"), beside).references == 0


def test_cards_that_were_measured_together_are_one_host(tmp_path):
    chassis = [line for at in range(8) for line in session("chassis", f"d{at}")]
    found = judgement(tmp_path, session("mine", "aaaa", 0.9), [*chassis, *session("again", "d3")])
    assert (found.verdict, found.references) == (CANNOT_SAY, 1)


@pytest.mark.parametrize("marks", ["shared throttled", "shared", "throttled", "shared_peak"])
def test_references_beside_other_programs_or_slowed_by_heat_do_not_count(tmp_path, marks):
    found = judgement(tmp_path, session("mine", "aaaa", 0.8), others(8, spread=0.001, share=0.8, marks=marks))
    assert (found.verdict, found.references) == (CANNOT_SAY, 0)


def test_a_peak_measured_beside_other_programs_is_no_reason_to_return_a_card(tmp_path):
    mine = session("mine", "aaaa", marks="shared_peak", measured_peak_flops=0.7 * PEAK)
    found = judgement(tmp_path, mine, others(8))
    assert found.verdict == CANNOT_SAY
    assert "peak fp16 is 0.70" in found.sentence


def test_a_figure_of_which_nothing_is_known_keeps_no_card(tmp_path):
    wide = [line for at in range(8) for line in session(f"o{at}", f"d{at}", slow={"bert-base": 1.2 ** (at % 4 - 1.5)})]
    found = judgement(tmp_path, session("mine", "aaaa", slow={"bert-base": 0.56}), wide)
    assert [each.said for each in found.figures] == ["ok", "not known", "ok", "ok"]
    assert found.verdict == CANNOT_SAY
    assert "bert-base fp16 is 0.5" in found.sentence


def test_a_slow_figure_with_references_counts_where_others_have_few(tmp_path):
    none = {"measured_peak_flops": None, "measured_bandwidth_bytes_per_second": None}
    found = judgement(tmp_path / "slow", session("mine", "aaaa", 0.5), [*others(3), *others(12, **none)])
    assert [len(each.references) for each in found.figures] == [12, 12, 3, 3]
    assert found.verdict == RETURN
    good = judgement(tmp_path / "good", session("mine", "aaaa"), [*others(3), *others(12, **none)])
    assert good.verdict == CANNOT_SAY
    assert "there is 3 of peak fp16 and bandwidth fp16" in good.sentence


def test_a_figure_that_is_missing_keeps_no_card(tmp_path):
    found = judgement(tmp_path, session("mine", "aaaa", measured_peak_flops=None), others(8))
    assert found.verdict == CANNOT_SAY
    assert "peak fp16 could not be measured" in found.sentence


def test_a_limit_is_never_nearer_than_hosts_differ_and_widens_with_few_or_scattered_ones():
    assert limit_of([100.0] * 50, 4).least == pytest.approx(100 * (1 - LEAST))
    assert limit_of([99, 100, 101, 100, 100.0], 4).least < limit_of([99, 100, 101, 100, 100.0] * 4, 4).least
    assert limit_of([80, 100, 125, 90, 110.0], 4).found < 0.2
    assert limit_of([100.0], 4).least == pytest.approx(85, abs=2)


def test_half_of_the_references_cannot_spoil_the_spread():
    dice = random.Random(1)
    good = [dice.gauss(0, 1) for _ in range(9)]
    assert robust_spread([*good, 1e6, 1e6, 1e6]) < 3
    spreads = [robust_spread([dice.gauss(0, 1) for _ in range(8)]) for _ in range(800)]
    assert statistics.mean(spreads) == pytest.approx(1, abs=0.05)
    assert robust_spread([1.0]) == 0


def test_found_by_several_figures_is_what_the_best_of_them_finds():
    near, far = limit_of([99, 100, 101, 100, 100.0], 4), limit_of([80, 100, 125, 90, 110.0], 4)
    assert found_by([near, far, near]) == near.found > far.found
    assert found_by([]) == 0


@pytest.mark.parametrize("spread", [0.01, 0.04, 0.06, 0.1])
def test_hosts_that_scatter_cause_few_false_alarms_from_the_least_number_on(spread):
    dice = random.Random(1)

    def alarms():
        for _ in range(1500):
            *logs, new = (dice.gauss(0, spread) for _ in range(LEAST_HOSTS + 1))
            yield math.exp(new) < limit_of([math.exp(each) for each in logs], 4).least

    # Of each check a quarter of 1%, and three standard errors of so many trials.
    assert statistics.mean(alarms()) < 0.0025 + 3 * 0.0013


def test_published_hosts_are_not_returned_and_slow_ones_are(benchmark_script):
    """What docs/accept.md promises, on a tenth of its trials."""
    script = benchmark_script("accept_simulation")
    own, dice = script.hosts(), random.Random(1)
    assert len(own) == 39
    shares = script.simulated(6, lambda count: script.published(own, dice, count), 300)
    assert shares["good"] <= 0.01
    assert shares["all four"] >= 0.9
    assert script.simulated(8, lambda count: script.published(own, dice, count), 300)["wrong"] < 0.1
    alone = script.left_out(own, dice)
    assert alone["good"] == 0
    assert alone["all four"] == 39


def test_the_verdict_is_the_exit_code_and_the_page_carries_the_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine, theirs, slow = (tmp_path / f"{name}.csv" for name in ("mine", "theirs", "slow"))
    write.append(mine, session("mine", "aaaa"))
    write.append(slow, session("slow", "bbbb", 0.8))
    write.append(theirs, others(8))
    wishes = Wishes(against=(theirs,))
    assert judged(mine, ["mine"], wishes, code=0) == CODES[KEEP] == 0
    said = capsys.readouterr().out
    assert said.startswith("Keep it")
    assert max(map(len, said.splitlines()[:-1])) <= 79
    assert len(load([tmp_path / "mine.html"]).frame) == 6
    page = (tmp_path / "mine.html").read_text()
    assert "Intervals are 95%" not in page
    assert "1 file, 6 rows." in page
    assert "<td>d7</td>" in page, "the references"
    assert judged(mine, ["mine"], Wishes(), code=0) == CODES[CANNOT_SAY] == 3
    assert judged(slow, ["slow"], wishes, code=4) == CODES[RETURN] == 5
    with pytest.raises(UserError, match="nothing can be judged"):
        judged(mine, ["another"], wishes, code=0)


def test_a_failed_trial_keeps_no_card_on_screen_and_page(tmp_path, capsys):
    mine, theirs = tmp_path / "mine.csv", tmp_path / "theirs.csv"
    write.append(
        mine, [*session("mine", "aaaa"), row(**H100, session="mine", model="bert-base", status="failed", trial=3)]
    )
    write.append(theirs, others(8))
    assert judged(mine, ["mine"], Wishes(against=(theirs,)), code=4) == 4
    sentence = "bert-base fp16 could not be measured"
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in (tmp_path / "mine.html").read_text()
    assert "Keep it" not in (tmp_path / "mine.html").read_text()


def test_a_trial_that_was_stopped_and_done_later_is_not_missing(tmp_path):
    mine, theirs = tmp_path / "mine.csv", tmp_path / "theirs.csv"
    stopped = [replace(each, status="interrupted", samples_per_second=None) for each in session("mine", "aaaa")[4:]]
    write.append(mine, [*stopped, *session("mine", "aaaa")])
    write.append(theirs, others(8))
    assert judged(mine, ["mine"], Wishes(against=(theirs,)), code=0) == CODES[KEEP]


def test_the_command_runs_two_cases_with_fresh_peaks_and_judges_them(cli, tmp_path, monkeypatch):
    asked = []

    def run(options, found):
        asked.append(options)
        write.append(options.out, session("mine", "aaaa", card="AMD EPYC", device="cpu"))
        found(options.out, {"mine"})
        return 0

    monkeypatch.setattr("gpubench.runner.run.run", run)
    done = cli("accept", "--short", "--device", "cpu", "--out", "mine.csv")
    assert done.returncode == 3, done.stderr
    assert "Cannot say whether AMD EPYC is slow" in done.stdout
    assert "for support: mine.html" in done.stdout
    (options,) = asked
    assert options.peaks_anew
    assert (options.suites, options.batch, options.repeats) == (("reference",), "8", 1)
    other = cli("accept", "--card-kind", "H100", "--device", "cpu", "--out", "other.csv")
    assert other.returncode == 3
    assert "Nothing was measured" in " ".join(other.stdout.split())
    assert len(asked) == 1


def test_the_run_speaks_of_rates_alone_and_leaves_the_advice_to_the_verdict(cli, tmp_path):
    suite = Path(__file__).parent / "suites" / "scripted.py"
    options = Options(suites=(str(suite),), device="cpu", precision="fp32", peaks=False, repeats=1)
    said = {}
    for later in (False, True):
        screen = Screen(file=StringIO())
        run_command.run(replace(options, judged=later, out=tmp_path / f"{later}.csv"), screen)
        said[later] = screen.file.getvalue()
    assert "next: gpubench compare" in said[False]
    assert said[True].split() == ["wrote", str(tmp_path / "True.csv")]
    line = row(model="resnet50", seconds=3.2e5, measured="projected", samples_per_second=2800.0)
    assert describe(line, "samples", rate_only=True) == "2,800.0 samples/s"
    assert "projected" in describe(line, "samples")


def test_a_file_whose_trials_are_all_done_is_no_verdict(cli, monkeypatch):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, found: 0)
    done = cli("accept", "--device", "cpu", "--out", "mine.csv")
    assert done.returncode == 2
    assert "name another file" in done.stderr


def test_references_that_are_not_there_are_told_before_anything_is_measured(cli, monkeypatch):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, found: pytest.fail("measured"))
    done = cli("accept", "--device", "cpu", "--against", "none")
    assert done.returncode == 2
    assert "--against none" in done.stderr


def test_a_reader_that_has_gone_is_no_verdict(cli, monkeypatch):
    def gone(options, found):
        raise BrokenPipeError

    monkeypatch.setattr("gpubench.runner.run.run", gone)
    assert cli("accept", "--device", "cpu").returncode == 4


def test_a_run_that_was_stopped_has_no_verdict(cli, monkeypatch):
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, found: 130)
    assert cli("accept", "--device", "cpu").returncode == 130


def test_several_cards_are_refused(cli):
    done = cli("accept", "--device", "cpu,cpu,tpu")
    assert done.returncode == 2


def test_fresh_peaks_go_before_known_ones(monkeypatch):
    known = measured_peaks.Peak(1e12, 1e10, 1e-6, 512)
    monkeypatch.setattr(measured_peaks, "known", lambda *arguments: known)
    monkeypatch.setattr(measured_peaks, "measure", lambda *arguments: replace(known, side=1024))
    sides = {}
    for anew in (False, True):
        session = SimpleNamespace(
            suites={"made": SimpleNamespace(suite=SimpleNamespace(torch=True))},
            devices={"cpu": None},
            environment=SimpleNamespace(torch="2.15.0"),
            options=Options(peaks_anew=anew),
        )
        case = SimpleNamespace(
            suite="made", device="cpu", precision="fp32", processes=1, nodes=1, params={"threads": 0}
        )
        warm_up = WarmUp(session, None, lambda text: None)
        warm_up.before(case, [], searched=False)
        sides[anew] = warm_up.peak_of(case).side
    assert sides == {False: 512, True: 1024}
