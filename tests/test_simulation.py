"""The claims of docs/research/tested.md about verdicts, at reduced size: benchmarks/simulation.py has them in full."""

import math

import pytest
from conftest import imported_script

from gpubench.runner.options import SAMPLED_REPEATS

simulation = imported_script("simulation")
Noise = simulation.Noise


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("sd", simulation.SDS)
def test_equal_cases_get_no_verdict_and_their_interval_holds(sd, rough):
    six, twenty = (simulation.one_session(count, n, Noise(sd, rough)) for count, n in ((1000, 6), (200, 20)))
    assert six.found <= 0.01
    assert twenty.found <= 0.01
    assert six.covered >= 0.93
    assert twenty.covered >= 0.93


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95])
def test_pooled_models_that_share_the_noise_of_a_round(shared):
    pooled = simulation.pooled(500, shared)
    assert pooled.covered >= 0.93
    assert pooled.found <= 0.01


@pytest.mark.parametrize("late", [1, 3, 6])
def test_sides_of_one_session_of_which_one_starts_later(late):
    later = simulation.one_name(300, late, 0.06)
    assert later.found <= 0.01
    assert later.covered >= 0.93


@pytest.mark.parametrize("trials", [(6, 6), (10, 10), (20, 20), (20, 6)])
def test_sides_that_scatter_differently(trials):
    unequal = simulation.unequal(1000, trials)
    assert unequal.covered >= 0.93
    assert unequal.found <= 0.01


def test_the_tool_decides_what_it_can_and_its_advice_is_about_right():
    for rough in (False, True):
        assert simulation.one_session(200, 20, Noise(0.003, rough)).share("same") >= 0.8
    # The default number of rounds finds a true 5% on a usual machine, and 20 do on a busy one.
    assert simulation.one_session(200, SAMPLED_REPEATS, Noise(0.003), math.log(1.05)).found >= 0.95
    assert simulation.one_session(200, SAMPLED_REPEATS, Noise(0.01), math.log(1.05)).found >= 0.8
    assert simulation.one_session(200, 20, Noise(0.02), math.log(1.05)).found >= 0.8
    _, decided = simulation.advice(100, Noise(0.02), math.log(1.05))
    assert decided >= 0.7


@pytest.mark.parametrize("sd", [0.01, 0.02, 0.04, 0.06])
def test_equal_cards_known_by_one_specimen_each_or_two_sessions(sd):
    equal = simulation.between_specimens(1000, sd)
    assert equal.found <= 0.01
    assert equal.covered >= 0.93


@pytest.mark.parametrize("days", [None, 0.02, 0.04, 0.06])
def test_a_slowdown_just_at_the_limit_seldom_passes_the_gate(days):
    assert simulation.gate_passes(500, Noise(0.01), 6, days=days, slow=math.log(1.05)) <= 0.05


@pytest.mark.parametrize("gap", [0.04, 0.08, 0.15])
def test_hosts_of_two_kinds(gap):
    alone, five = (simulation.between_specimens(500, 0.003, k, modes=math.log(1 + gap)) for k in (1, 5))
    assert alone.found <= 0.002
    assert alone.share("one specimen", "undecided") >= 0.998
    assert five.found <= 0.01


@pytest.mark.parametrize("noise", [Noise(0.01), Noise(0.044), Noise(0.003, modes=0.1), Noise(0.044, shape="t3")])
def test_a_run_that_ends_early_if_it_has_decided(noise):
    equal, far = (simulation.early(300, noise, effect) for effect in (0.0, math.log(2)))
    assert equal.outcome.found <= 0.01
    assert min(equal.outcome.covered, far.outcome.covered) >= 0.93
    assert equal.rounds >= 5.9
    assert far.rounds <= 3.3
    assert far.outcome.found >= 0.99


def test_looking_until_there_is_a_verdict_costs_more_than_until_does():
    for sd in (0.003, 0.01, 0.02):
        adaptive = simulation.until(300, Noise(sd))
        assert adaptive.covered >= 0.93
        assert adaptive.median_covered >= 0.93
        assert adaptive.false <= 0.01
    once, ever = simulation.peeking(100, Noise(0.1), most=20)
    assert once <= 0.02
    assert ever >= 0.03


def test_families_of_twenty_and_a_t_test_over_laps():
    spoiled, _ = simulation.family(60, Noise(0.02))
    assert spoiled <= 0.05
    _, found = simulation.family(30, Noise(0.01), effect=math.log(1.3))
    assert found >= 0.95
    for processes in (1, 6):
        naive = simulation.naive(200, processes, Noise(0.02))
        assert naive.covered < 0.7
        assert naive.false_verdict > 0.05


@pytest.mark.parametrize("cold", [0.02, 0.1])
def test_a_sample_of_files_that_are_cold_once_projects_the_whole_run(cold):
    now, before = (simulation.projections(20, simulation.Disturbance(cold, reread), 0.01) for reread in (True, False))
    assert now.ratio == pytest.approx(1, abs=0.01)
    assert (now.wrong, now.marked) == (0, 0)
    assert before.ratio > 1.1
    assert before.wrong == 1


@pytest.mark.parametrize(("seconds", "sd"), [(300, 0.0), (30, 0.001)])
def test_heat_that_the_laps_show_is_marked_and_in_the_interval(seconds, sd):
    heat = simulation.projections(20, simulation.Disturbance(heat=0.1, heating_seconds=seconds), sd)
    assert heat.ratio < 0.94
    assert (heat.wrong, heat.marked, heat.covered) == (0, 1, 1)


def test_what_a_sample_cannot_see_is_as_large_as_the_docs_have_it():
    heat, pause = (
        simulation.projections(20, disturbance, 0.01)
        for disturbance in (simulation.Disturbance(heat=0.1), simulation.Disturbance(pause=3.0))
    )
    assert heat.ratio == pytest.approx(0.93, abs=0.01)
    assert pause.ratio == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("sd", [0.0, 0.001, 0.01])
def test_a_steady_run_is_not_marked(sd):
    even = simulation.projections(50, simulation.Disturbance(), sd)
    assert (even.wrong, even.covered) == (0, 1)
    assert even.marked <= 0.02
