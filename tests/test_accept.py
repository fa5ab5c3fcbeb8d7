"""Keep or return: limits that hold what they promise, silence where too little is known, a page for support."""

import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rows import rows

from gpubench.commands.accept.accept import Wishes, judged
from gpubench.errors import UserError
from gpubench.plan.options import Options
from gpubench.rows import write
from gpubench.rows.read import load
from gpubench.runner import measured_peaks
from gpubench.runner.warm_up import WarmUp
from gpubench.studies.acceptance.alike import measured_rows
from gpubench.studies.acceptance.checks import CANNOT_SAY, KEEP, RETURN, judge
from gpubench.studies.acceptance.limits import LEAST, found_by, limit_of, robust_spread

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


def others(count, spread=0.005, **changes):
    return [line for at in range(count) for line in session(f"o{at}", f"d{at}", 1 + spread * (at % 5 - 2), **changes)]


def judgement(tmp_path, mine, references, rented=""):
    write.append(tmp_path / "mine.csv", mine)
    if references:
        write.append(tmp_path / "theirs.csv", references)
    known, problems = measured_rows([tmp_path])
    assert problems == []
    return judge(known[known["session"] == "mine"], known, rented)


def test_a_card_like_its_kind_is_kept_and_a_slow_one_returned(tmp_path):
    kept = judgement(tmp_path, session("mine", "aaaa", 0.99), others(8))
    assert (kept.verdict, len(kept.figures), kept.references) == (KEEP, 4, 8)
    assert kept.sentence.startswith("Keep it: NVIDIA H100 80GB HBM3 is as fast as 8 others of its kind.")
    (tmp_path / "slow").mkdir()
    slow = judgement(tmp_path / "slow", session("mine", "aaaa", slow={"bert-base": 0.88}), others(8))
    assert slow.verdict == RETURN
    assert "bert-base fp16 is 0.88 of typical (of good cards 1% at most are called slow)" in slow.sentence


def test_another_card_than_was_rented_is_returned_whatever_its_speed(tmp_path):
    assert judgement(tmp_path, session("mine", "aaaa"), [], "H100 SXM").verdict == RETURN
    assert judgement(tmp_path, [], [], "h100 hbm3").sentence.startswith("Cannot say")


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_others_say_nothing(tmp_path, count):
    found = judgement(tmp_path, session("mine", "aaaa", 0.5), others(count))
    assert found.verdict == CANNOT_SAY
    assert "it takes 5" in found.sentence


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
    (tmp_path / "fast").mkdir()
    assert judgement(tmp_path / "fast", session("mine", "aaaa", marks="shared"), others(8)).verdict == KEEP


def test_its_own_past_counts_only_where_too_few_others_are_known(tmp_path):
    past = [line for at in range(6) for line in session(f"p{at}", "aaaa", 0.8 + at * 1e-4)]
    found = judgement(tmp_path, session("mine", "aaaa", 0.8), [*past, *others(4)])
    assert found.verdict == KEEP
    assert "6 earlier runs of its own" in found.sentence
    (tmp_path / "both").mkdir()
    assert judgement(tmp_path / "both", session("mine", "aaaa", 0.8), [*past, *others(8)]).verdict == RETURN


def test_a_peak_taken_over_from_an_earlier_session_is_one_figure(tmp_path):
    past = [line for at in range(6) for line in session(f"p{at}", "aaaa")]
    found = judgement(tmp_path, session("mine", "aaaa"), past)
    assert [len(each.references) for each in found.figures] == [1, 1, 1, 1]


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


def test_found_by_any_of_several_figures():
    limits = [limit_of([99, 100, 101, 100, 100.0], 4)] * 2
    assert found_by(limits) == pytest.approx(1 - (1 - limits[0].found) ** 2)


def test_published_hosts_are_not_returned_and_slow_ones_are(benchmark_script):
    """What docs/accept.md promises, on a tenth of its trials."""
    script = benchmark_script("accept_simulation")
    own, dice = script.hosts(), random.Random(1)
    assert len(own) == 39
    shares = script.simulated(5, own, dice, 300)
    assert shares["good"] <= 0.01
    assert shares["all four"] >= 0.9
    alone = script.left_out(own, dice)
    assert alone["good"] == 0
    assert alone["all four"] == 39


def test_the_verdict_is_the_exit_code_and_the_page_carries_the_rows(tmp_path, capsys):
    mine, theirs = tmp_path / "mine.csv", tmp_path / "theirs.csv"
    write.append(mine, session("mine", "aaaa"))
    write.append(theirs, others(8))
    wishes = Wishes(against=(theirs, tmp_path / "none"))
    assert judged(mine, ["mine"], wishes, failed=False) == 0
    said = capsys.readouterr().out
    assert said.startswith("Keep it")
    assert max(map(len, said.splitlines()[:-1])) <= 79
    assert len(load([tmp_path / "mine.html"]).frame) == 6
    assert judged(mine, ["mine"], wishes, failed=True) == 4
    assert judged(mine, ["mine"], Wishes(against=()), failed=False) == 3
    assert judged(mine, ["mine"], Wishes(against=(theirs,), kind="RTX 4090"), failed=True) == 1
    with pytest.raises(UserError, match="nothing can be judged"):
        judged(mine, ["another"], wishes, failed=False)


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
    assert cli("accept", "--card-kind", "H100", "--device", "cpu", "--out", "other.csv").returncode == 1
    assert asked[-1].repeats == 3


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
