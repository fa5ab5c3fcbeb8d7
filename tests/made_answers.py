"""Answers and charts made by hand, as short as they are read."""

from gpubench.studies.section import Answer, Bar, BarGroup, Bars, Column, Estimate, Result, Section, Table

NEW, OLD = "RTX 2080 Ti", "GTX 1080 Ti"
TIMES = {"resnet18": (34.1, 28.5), "resnet34": (44.2, 32.2), "resnet50": (84.9, 53.6), "resnet101": (128.0, 82.5)}
LONG = "A name of sixty letters, of which no picture can hold them all"
TABLE = b"suite,model\nresnet,resnet18\n"


def pairs(name="pairs", **given):
    """Minutes of two cards on four models."""
    groups = [
        BarGroup(model, (Bar(OLD, 60 * old), Bar(NEW, 60 * new)), f"{old / new:.2f}x")
        for model, (old, new) in TIMES.items()
    ]
    default = {
        "title": f"{NEW} trains 1.4 times as fast as {OLD} in mixed precision",
        "subtitle": "Seconds for 30 epochs of CIFAR-100; lower is better",
        "groups": (*groups, BarGroup("mean", (), "1.42x", strong=True)),
        "unit": "s",
        "winner": NEW,
        "foot": "One run each.",
    }
    return Bars(name, **{**default, **given})


def singles(count=3, name="singles", **given):
    """One bar to a group."""
    groups = tuple(BarGroup(f"card {n}", (Bar("fp16", 100.0 * (n + 1)),)) for n in range(count))
    default = {"title": "Cards", "subtitle": "Images a second; higher is better", "unit": "samples/s"}
    return Bars(name, **{**default, "groups": groups, **given})


def ratios(*values, name="ratios", **given):
    """Dots with whiskers: (value, low, high)."""
    groups = tuple(BarGroup(f"model {n}", (Bar(NEW, v, (low, high)),)) for n, (v, low, high) in enumerate(values))
    default = {"title": "Speedups", "subtitle": "Speedup, above 1 is faster", "unit": "ratio", "reference": 1.0}
    return Bars(name, **{**default, "groups": groups, **given})


def result(said="A trains 2 times as fast as B", charts=(), **given):
    """One without a verdict."""
    default = {"value": 2.0, "interval": None, "verdict": "one run", "models": ("resnet18",), "trials": (1, 1)}
    return Result(
        "card", "resnet", "A", baseline="B", **{**default, "said": said, "basis": "one run", "charts": charts, **given}
    )


def section(title="A study", **given):
    """One with two lines of a table."""
    columns = (
        Column("model"),
        Column("batch", "count"),
        Column("seconds", "s"),
        Column("verdict"),
        Column("why", note=True),
    )
    lines = (("resnet18", 64, Estimate(10.0, 9.0, 11.0), "faster", ""), (LONG, 128, "out of memory", "one run", "why"))
    return Section(
        **{"study": "pairs", "suite": "resnet", "title": title, "tables": (Table("cases", columns, lines),)} | given
    )


def answer(*results, sections=(), **given):
    """Its rows are TABLE and the numbers of the cases."""

    def table(cases):
        return TABLE if cases is None else TABLE + ",".join(map(str, sorted(cases))).encode()

    default = {"headline": "A trains 2 times as fast as B (one run).", "rule": "What a verdict takes.", "rows": 2}
    default["about"] = given.get("rows", 2)
    return Answer(results=results, sections=tuple(sections), **{"table": table, **default, **given})
