"""Which group is compared with which: what must agree, the baseline, and the closest of several partners."""

import pytest
from facts import lacking
from rows import group

from gpubench.analysis.matching import axis_value, bucket_of, named_baseline, other_stack, pairs_along
from gpubench.errors import UserError

A, B, C = (group(card=f"NVIDIA {name}", device_hash=name, label=name) for name in ("A100", "B200", "C300"))


def on(who, seconds=(100.0,), **changes):
    """A case on the card of that name."""
    return group(seconds, **{"card": f"NVIDIA {who}", "device_hash": who, "label": who, **changes})


def test_a_card_goes_by_its_label_and_a_twin_is_of_the_kind_of_its_row():
    assert axis_value(on("A100", label="A100 @ 200 W"), "card") == "A100 @ 200 W"
    assert axis_value(on("A100", batch_size=64.0), "batch_size") == "64"
    assert axis_value(on("A100"), "precision") == "fp32"
    twin, policy = on("A100", batch_policy="max-fp32", precision="fp16"), on("A100", batch_policy="max")
    assert bucket_of(twin, "precision") == bucket_of(policy, "precision")
    assert bucket_of(twin, "card") != bucket_of(on("A100", batch_policy="max", precision="fp16"), "card")


def test_a_parameter_of_the_suite_can_be_what_is_compared():
    eager, compiled, other = (
        on("A100", seconds, params=f"compile={compiled} size={size}")
        for seconds, compiled, size in (((10.0,), "false", 3), ((8.0,), "true", 3), ((5.0,), "true", 2))
    )
    assert [axis_value(case, "compile") for case in (eager, compiled)] == ["false", "true"]
    assert pairs("compile", eager, compiled, other)[0] == [("A100 resnet18 8", "A100 resnet18 10")]
    assert pairs("size", eager, compiled, other)[0] == [("A100 resnet18 5", "A100 resnet18 8")]


@pytest.mark.parametrize(("wish", "found"), [
    ("A100", ("card", "A100")), ("a1", ("card", "A100")), ("B200", ("card", "B200")), ("2.1", ("torch", "2.1.0")),
    ("FP32", ("precision", "fp32")), ("fp16", ("precision", "fp16")),
])  # fmt: skip
def test_a_baseline_is_named_by_all_or_an_unmistakable_part(wish, found):
    groups = [A, B, on("B200 mini"), on("A100", precision="fp16"), on("B200", precision="fp16-pure")]
    groups += [on("A100", torch=version) for version in ("2.1.0", "2.11.0")]
    assert named_baseline(wish, ["card", "precision", "torch"], groups) == found


@pytest.mark.parametrize(
    ("wish", "axes", "words"),
    [
        ("00", ["card", "precision"], "--baseline 00: it could be A100, B200"),
        ("H100", ["card", "precision"], "--baseline H100: there are A100, B200, fp32$"),
        ("H100", ["precision"], "--baseline H100: there is fp32$"),
    ],
)
def test_a_baseline_that_is_none_says_which_there_are(wish, axes, words):
    with pytest.raises(UserError, match=words):
        named_baseline(wish, axes, [A, B])


def pairs(axis, *groups, wish=None, explicit=True, **options):
    """(labels and figures of the pairs, what was left out)."""
    left_out = []
    matched = pairs_along(axis, groups, wish, left_out, explicit=explicit, **options)
    return [(f"{a.label} {a.model} {a.median:g}", f"{b.label} {b.model} {b.median:g}") for a, b in matched], left_out


def test_the_baseline_is_the_one_that_was_named_or_the_slowest_or_the_best():
    matched, left_out = pairs("card", A, B, C, wish=("card", "B200"))
    assert matched == [("A100 resnet18 100", "B200 resnet18 100"), ("C300 resnet18 100", "B200 resnet18 100")]
    assert left_out == []
    slow, quick = on("A100", (200.0,)), on("B200", (100.0,))
    assert pairs("card", slow, quick, wish=("precision", "fp32"))[0] == [("B200 resnet18 100", "A100 resnet18 200")]
    slow, middle, quick = (on(who, (seconds,)) for who, seconds in (("A100", 200.0), ("B200", 150.0), ("C300", 100.0)))
    assert {other for _, other in pairs("card", quick, slow, middle)[0]} == {"A100 resnet18 200"}
    assert {other for _, other in pairs("card", slow, quick, middle, best_is_base=True)[0]} == {"C300 resnet18 100"}


def test_slowest_is_meant_over_the_models_that_all_have_or_over_its_own():
    """1 x 100 x 8 against 20 x 30: a mean of 28.3 against 24.5; the third model is one side's own."""
    ours = [on("A100", (seconds,), model=model) for model, seconds in (("a", 100.0), ("b", 8.0))]
    theirs = [on("B200", (seconds,), model=model) for model, seconds in (("a", 20.0), ("b", 30.0), ("c", 900.0))]
    matched, left_out = pairs("card", *ours, *theirs)
    assert matched == [("B200 a 20", "A100 a 100"), ("B200 b 30", "A100 b 8")]
    (line,) = left_out
    assert lacking(line, "resnet c fp32", "B200", "A100") == []
    groups = on("A100", (10.0,), model="a"), on("B200", (20.0,), model="b"), on("C300", (15.0,), model="c")
    matched, left_out = pairs("card", *groups, explicit=False)
    assert matched == []
    assert ["B200" in line.rpartition(": ")[2] for line in left_out] == [True, False, True]


def test_fp32_is_the_baseline_of_precisions_and_bf16_of_those_in_8_bits():
    groups = on("A100", (100.0,)), on("A100", (300.0,), precision="bf16"), on("A100", (50.0,), precision="fp16")
    matched, _ = pairs("precision", *groups)
    assert matched == [("A100 resnet18 300", "A100 resnet18 100"), ("A100 resnet18 50", "A100 resnet18 100")]
    assert pairs("precision", *groups[1:])[0] == [("A100 resnet18 50", "A100 resnet18 300")]
    groups = [
        on("A100", (seconds,), precision=name) for name, seconds in (("float8", 9), ("bf16", 5), ("int8-mixed", 7))
    ]
    matched, _ = pairs("precision", *groups)
    assert {other for _, other in matched} == {"A100 resnet18 5"}
    assert len(matched) == 2
    matched, _ = pairs("precision", *groups, on("A100", (20,), precision="fp16"))
    assert {other for _, other in matched} == {"A100 resnet18 20"}


def test_a_case_without_a_partner_is_named_where_that_was_asked_for():
    groups = A, B, on("A100", model="lone"), on("B200", model="own")
    matched, left_out = pairs("card", *groups, wish=("card", "B200"))
    assert matched == [("A100 resnet18 100", "B200 resnet18 100")]
    (lone, own) = left_out
    assert lacking(lone, "resnet lone fp32, batch 64", "A100", "B200") == []
    assert lacking(own, "resnet own fp32, batch 64", "B200", "card") == []
    *_, line = pairs("card", A, B, on("B200", batch_policy="max"), wish=("card", "A100"))[1]
    assert lacking(line, "resnet18 fp32, batch 64 (max)", "B200", "A100") == []
    groups = on("A100"), on("A100", precision="fp16"), on("B200", precision="fp16"), on("C300")
    matched, left_out = pairs("precision", *groups, explicit=False)
    assert (matched, left_out) == ([("A100 resnet18 100", "A100 resnet18 100")], [])
    _, left_out = pairs("precision", *groups)
    (partner, alone) = left_out
    assert lacking(partner, "resnet18 fp16", "B200", "fp32") == []
    assert lacking(alone, "resnet18 fp32", "C300", "precision") == []


def test_batches_are_compared_with_the_slowest_of_their_own_model():
    """Or with the best; one whose own model has but one batch is not left out, for nothing is missing."""
    groups = [
        on("A100", (seconds,), model=model, batch_size=batch)
        for model, batch, seconds in (
            ("a", 32, 90.0),
            ("a", 64, 80.0),
            ("b", 32, 40.0),
            ("b", 64, 70.0),
            ("c", 64, 5.0),
        )
    ]
    assert pairs("batch_size", *groups) == ([("A100 a 80", "A100 a 90"), ("A100 b 40", "A100 b 70")], [])
    assert pairs("batch_size", *groups, best_is_base=True)[0] == [
        ("A100 a 90", "A100 a 80"),
        ("A100 b 70", "A100 b 40"),
    ]
    matched, left_out = pairs("batch_size", *groups, wish=("batch_size", "32"))
    assert matched == [("A100 a 80", "A100 a 90"), ("A100 b 70", "A100 b 40")]
    (line,) = left_out
    assert lacking(line, "resnet c fp32", "A100", 32) == []


def test_of_several_partners_the_one_that_shares_most_is_taken():
    """The same policy before the stack, the stack before the session, the session before the device, then trials."""
    subject = on("A100", precision="fp16", batch_policy="max", batch_size=64)
    fp32 = {"batch_policy": "max", "batch_size": 64}
    far = on("A100", (1.0,), **{**fp32, "torch": "2.1.0", "session": "s2"})
    near = on("A100", (2.0,), **{**fp32, "session": "s2"})
    same = on("A100", (3.0,), **fp32)
    more = on("A100", (4.0, 4.0), **fp32)
    for others, best in (([far, near], 2), ([near, same], 3), ([same, more], 4), ([more, far, near], 4), ([far], 1)):
        for order in (others, others[::-1]):
            assert pairs("precision", subject, *order)[0] == [("A100 resnet18 100", f"A100 resnet18 {best}")]
    twin = on("A100", precision="fp16", batch_policy="max-fp32", batch_size=64)
    assert pairs("precision", twin, more)[0] == [("A100 resnet18 100", "A100 resnet18 4")]
    here, there = on("B200", (1.0,), device_hash="one"), on("B200", (2.0, 2.0), device_hash="two")
    assert (
        pairs("card", on("A100", device_hash="one"), here, there, wish=("card", "B200"))[0][0][1] == "B200 resnet18 1"
    )


@pytest.mark.parametrize(("axis", "changes", "together"), [
    ("card", {"device_hash": "other", "card": "NVIDIA B200"}, True), ("precision", {"precision": "fp16"}, True),
    ("precision", {"card": "NVIDIA B200"}, False), ("precision", {"device_hash": "other"}, False),
    ("precision", {"device_hash": ""}, False), ("batch_size", {"batch_size": 32}, True),
    ("batch_size", {"device_hash": "other"}, False), ("torch", {"device_hash": "other", "torch": "2.1.0"}, True),
    ("torch", {"card": "NVIDIA B200"}, False), ("precision", {"batch_policy": "fastest"}, False),
    ("batch_size", {"batch_policy": "max"}, True), ("batch_policy", {"batch_policy": "max", "batch_size": 64}, False),
    ("mode", {"mode": "quick", "measured": "projected"}, True), ("card", {"mode": "quick"}, False),
])  # fmt: skip
def test_what_is_of_one_kind(axis, changes, together):
    assert (bucket_of(on("A100"), axis) == bucket_of(on("A100", **changes), axis)) == together


@pytest.mark.parametrize(("axis", "changes", "expected"), [
    ("card", {}, []), ("card", {"torch": "2.15.9+cpu"}, []),
    ("card", {"torch": "2.14.0+cu132"}, ["torch"]), ("card", {"torch": "3.15.0"}, ["torch"]),
    ("torch", {"torch": "2.14.0"}, []), ("card", {"cudnn": "92699"}, []),
    ("card", {"cudnn": "92700"}, ["cudnn"]), ("card", {"cudnn": "9.27"}, ["cudnn"]),
    ("card", {"cuda": "13.3"}, ["cuda"]), ("card", {"threads": 7}, ["threads"]),
    ("card", {"threads": 7, "power_cap": "200 W"}, ["threads", "power_cap"]),
    ("card", {"memory_limit_bytes": 2.0**30}, ["memory_limit_bytes"]),
    ("card", {"cudnn_benchmark": "false"}, ["cudnn_benchmark"]),
])  # fmt: skip
def test_another_stack(axis, changes, expected):
    assert other_stack(axis, on("A100"), on("B200", **changes)) == expected


@pytest.mark.parametrize(("axis", "ours", "theirs", "expected"), [
    ("card", {}, {}, []), ("precision", {}, {}, ["threads"]),
    ("card", {"device": "cuda:0"}, {}, ["threads"]), ("card", {}, {"device": "cuda:0"}, ["threads"]),
    ("card", {}, {"card": "NVIDIA A100", "device_hash": "A100"}, ["threads"]),
    ("card", {}, {"card": "NVIDIA A100"}, []), ("card", {}, {"device_hash": "A100"}, []),
    ("card", {"threads_asked": "7"}, {}, ["threads"]), ("card", {}, {"threads_asked": "8"}, ["threads"]),
])  # fmt: skip
def test_the_threads_of_another_cpu_are_its_own_unless_somebody_asked_for_them(axis, ours, theirs, expected):
    one = on("A100", **{"device": "cpu", "threads": 7, **ours})
    two = on("B200", **{"device": "cpu", "threads": 8, **theirs})
    assert other_stack(axis, one, two) == expected
