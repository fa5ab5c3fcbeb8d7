"""Charts: a size that previews show whole, text that can be read there, nothing cut, nothing that shows one figure."""

import io
import itertools
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import matplotlib
import pytest
from facts import lacking
from made_answers import LONG, NEW, OLD, TABLE, answer, pairs, ratios, result, section, singles
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from gpubench.cli.quick import bars_of
from gpubench.errors import UserError
from gpubench.rows.embed import table_in
from gpubench.show.charts import dated, draw, figure_of, worth_drawing
from gpubench.show.style import COLOURS, INK, contrast, themed
from gpubench.studies.answer import answer as gpubench_answer
from gpubench.studies.section import Bar, BarGroup

PUBLISHED = Path(__file__).parents[1] / "results"
GREY = INK["light"][4]
KINDS = {
    "pairs": pairs(),
    "long": pairs(
        title=f"{LONG} trains twice as fast as {LONG} on {LONG}",
        subtitle=LONG * 4,
        winner=LONG,
        groups=tuple(BarGroup(LONG + n, (Bar(OLD + LONG, 60.0, note=LONG), Bar(LONG, 30.0)), "2.00x") for n in "ab"),
        foot=LONG * 9,
    ),
    "twelve": pairs(groups=(BarGroup("m", tuple(Bar(f"RTX {n}", 9.0 + n, note="batch 8") for n in range(12))),)),
    "precisions": pairs(groups=tuple(BarGroup(m, tuple(Bar(p, 60.0) for p in "abcd")) for m in "xy"), winner=""),
    "list": pairs(
        groups=tuple(BarGroup(m, tuple(Bar(n + LONG, 60.0, (50.0, 70.0), note=LONG) for n in "abcde")) for m in "xy")
    ),
    "huge": pairs(groups=tuple(BarGroup(f"{10**n}", (Bar(OLD, 10.0**n), Bar(NEW, 9.0**n))) for n in range(5))),
    "ratios": ratios((1.4, 1.2, 1.5), (0.9, 0.1, 90.0), (1.1, 1.0, 1.2)),
    "negative": singles(groups=(BarGroup("a", (Bar("x", -0.5, (-0.9, 0.1)),)), BarGroup("b", (Bar("x", 0.7),)))),
    "ladder": singles(18, marks={"compute limit": {f"card {n}": 90.0 for n in range(18)}}),
}


@pytest.fixture
def light():
    with matplotlib.rc_context(themed("light")):
        yield


def texts(figure):
    """All that is drawn; numbers beyond the ends of an axis are not."""
    hidden = set()
    for axes in figure.axes:
        for at, axis in enumerate((axes.xaxis, axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            labels = axis.get_ticklabels(which="both")
            hidden |= {each for each in labels if not low <= each.get_position()[at] <= high}
    return [each for each in figure.findobj(Text) if each.get_text() and each not in hidden]


def words(figure):
    return [each.get_text() for each in texts(figure)]


def coloured(figure):
    return [to_hex(each.get_facecolor()).upper() for each in figure.axes[0].patches if each.get_linewidth() == 0]


def drawn(tmp_path, given, **options):
    return draw(given, tmp_path / "charts", **{"every": False, "kinds": ("png",), "theme": "light", **options})


@pytest.mark.parametrize("width", [8.0, 5.4], ids=["post", "page"])
@pytest.mark.parametrize("chart", KINDS.values(), ids=KINDS)
def test_every_text_can_be_read_and_is_inside(chart, width, light):
    figure = figure_of(chart, width=width, framed=width == 8.0)
    assert figure.get_figwidth() == width
    assert figure.get_figheight() == 4.5 or width < 8.0
    assert min(each.get_fontsize() for each in texts(figure)) * 150 / 72 >= 20
    edge = figure.bbox
    outside = [t.get_text() for t in texts(figure) if not within(t.get_window_extent(), edge)]
    assert outside == []


def within(box, edge):
    return box.x0 >= edge.x0 - 1 and box.y0 >= edge.y0 - 1 and box.x1 <= edge.x1 + 1 and box.y1 <= edge.y1 + 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_post_is_1200_by_675_in_its_theme(tmp_path, theme):
    (path,) = drawn(tmp_path, answer(result(charts=(pairs(),))), theme=theme)
    with Image.open(path) as picture:
        assert picture.size == (1200, 675)
        assert "#{:02x}{:02x}{:02x}".format(*picture.convert("RGB").getpixel((2, 2))) == INK[theme][0]


@pytest.mark.parametrize("chart", [pairs(), KINDS["twelve"], KINDS["ladder"], KINDS["ratios"]])
def test_no_texts_lie_on_each_other(chart, light):
    boxes = [text.get_window_extent() for text in texts(figure_of(chart))]
    assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))


@pytest.mark.parametrize(
    ("chart", "drawn"),
    [
        (ratios((1.606, 1.600, 1.610), (1.59, 1.5, 1.7)), {"1.61", "1.59"}),  # digits of the widest interval
        (ratios((2.0, 1.9, 2.1), (14.0, 13.0, 14.5)), {"1", "5", "10"}),
        (pairs(groups=(BarGroup("a", (Bar(OLD, 1.0, note="batch 408"), Bar(NEW, 2.0))),)), {"batch 408"}),
        (KINDS["ladder"], {"compute limit"}),
    ],
)
def test_what_is_written(chart, drawn, light):
    assert drawn <= set(words(figure_of(chart)))


def test_published_times_stay_in_seconds_as_their_authors_drew_them(light):
    whole = gpubench_answer([PUBLISHED / "2019-rtx-2080-ti-gtx-1080-ti.csv"])
    (chart,) = [c for c in whole.results[0].charts if c.name.endswith("-seconds")]
    assert lacking(" ".join(words(figure_of(chart))), "Seconds for 30 epochs", "2,048", "1,708") == []


def test_which_charts_are_drawn(tmp_path):
    results = [result(), *(result(charts=(singles(name=f"f{n}"),)) for n in range(8))]
    given = answer(*results, sections=[section(charts=(singles(name="s"), singles(name="f0")))])
    *paths, last = drawn(tmp_path, given)
    assert [path.rpartition("/")[2] for path in paths] == [f"f{n}.png" for n in range(6)]
    assert lacking(last, 3, "more charts", "--all --charts DIR") == []
    names = [path.rpartition("/")[2] for path in drawn(tmp_path, given, every=True)]
    assert names == [*(f"f{n}.png" for n in range(8)), "s.png"]
    # The chart of both sides has them as text.
    bare = ratios(name="bare", groups=tuple(BarGroup(m, (Bar(NEW, 1.4),)) for m in "ab"))
    given = answer(result(charts=(pairs(), bare)))
    assert [Path(path).name for path in drawn(tmp_path, given)[:-1]] == ["pairs.png"]
    assert [Path(path).name for path in drawn(tmp_path, given, every=True)] == ["pairs.png", "bare.png"]


def test_charts_carry_the_rows_of_their_cases_and_their_dates(tmp_path):
    given = answer(result(charts=(pairs(cases=frozenset({3, 1})),)))
    for path in drawn(tmp_path, given, kinds=("png", "svg")):
        assert table_in(Path(path).read_bytes()) == TABLE + b"1,3"
    rows = b"suite,started\nresnet,2026-11-22T10:00:00+00:00\nresnet,2026-11-21T10:00:00+00:00\nresnet,\n"
    given = answer(table=lambda cases: rows)
    assert dated(pairs(), given).foot == "One run each; 2026-11-21 to 2026-11-22"
    assert dated(pairs(), answer()).foot == "One run each"


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "charts").write_text("")
    with pytest.raises(UserError, match=r"charts: cannot be written"):
        drawn(tmp_path, answer(result(charts=(pairs(),))))


def test_values_are_in_units_in_which_they_can_be_read(light):
    said = words(figure_of(pairs()))
    assert "Minutes for 30 epochs of CIFAR-100; lower is better" in said
    assert {"34.1", "28.5", "128", "1.42x"} <= set(said)
    assert {"10.0", "10,000"} <= set(words(figure_of(KINDS["huge"])))


def test_the_winner_or_each_name_has_a_colour(light):
    figure = figure_of(pairs())
    assert coloured(figure) == [GREY.upper(), COLOURS[0]] * 4
    assert [words(figure).count(name) for name in (OLD, NEW, "mean", "gpubench")] == [1, 1, 1, 1]
    groups = tuple(BarGroup(model, tuple(Bar(p, 10.0) for p in ("fp32", "fp16"))) for model in "ab")
    assert coloured(figure_of(pairs(groups=groups, winner=""))) == [*COLOURS[:2]] * 2
    many = pairs(groups=(*groups, *(BarGroup(f"{n}", (Bar(f"card {n}", 10.0),)) for n in range(7))), winner="")
    assert {*coloured(figure_of(singles())), *coloured(figure_of(many, framed=False))} == {COLOURS[0]}


def test_never_one_figure_alone_and_a_missing_one_says_why(light, tmp_path):
    bars = (Bar(OLD, 10.0), Bar(NEW, None, text="out of memory"), Bar("RTX 2060", None))
    figure = figure_of(pairs(groups=(BarGroup("resnet50", bars), BarGroup("resnet18", bars[:1]))))
    assert {"out of memory", "no data"} <= set(words(figure))
    dashed = [each for each in figure.findobj(Rectangle) if each.get_linestyle() != "solid" and not each.get_fill()]
    assert len(dashed) == 2
    alone = singles(1)
    missing = singles(groups=(BarGroup("a", (Bar("x", 1.0), Bar("y", None, text="out of memory"))),))
    (line,) = drawn(tmp_path, answer(result(charts=(alone, missing))))
    assert line.startswith("No chart: ")


def test_bars_that_do_not_fit_are_counted(light):
    said = words(figure_of(singles(70, foot="One run each.")))
    count = sum(text.startswith("card ") for text in said)
    assert count > 12
    assert "card 69" in said, "the last one, which a ladder leads to"
    assert f"One run each. {70 - count} bars not drawn" in said
    assert "card 36" in words(figure_of(singles(70), width=4.6, framed=False))
    whole = BarGroup("resnet50", tuple(Bar(f"card {n}", 9.0 + n) for n in range(70)))
    said = words(figure_of(pairs(groups=(whole, BarGroup("mean", (), "1.42x", strong=True)))))
    assert {"resnet50", "card 12", "mean"} <= set(said)
    assert any(text.endswith("bars not drawn") for text in said)
    assert "card 69" in words(figure_of(pairs(groups=(replace(whole, strong=True),)))), "means are never left out"
    several = pairs(groups=tuple(replace(whole, name=name) for name in "abcde"))
    assert sum(text.startswith("card ") for text in words(figure_of(several, width=4.6, framed=False))) < 40


def boxes(svg):
    """Each filled box in the order of drawing: left, right, top and bottom, and its colour; not the ground."""
    drawn = []
    for path, colour in re.findall(r'<path d="([^"]*)"(?: clip-path="[^"]*")? style="fill: (#[0-9a-f]{6})"', svg):
        xs, ys = zip(*re.findall(r"([\d.]+) ([\d.]+)", path), strict=True)
        drawn.append((min(map(float, xs)), max(map(float, xs)), min(map(float, ys)), max(map(float, ys)), colour))
    return [box for box in drawn if box[-1] != drawn[0][-1]]


def slim(*names, value=0.01, **given):
    """Groups of bars of which some are too short for a name inside: a key has the names."""
    groups = tuple(
        BarGroup(model, tuple(Bar(name, value if name == short else 0.2) for name in names), worse=names[-1] != short)
        for model, short in (("a", names[0]), ("b", names[-1]))
    )
    return pairs(groups=groups, **given)


def neighbours():
    return bars_of({"H200": 7000.0, NEW: 2900.0, "RTX 5090": 2500.0}, [NEW], NEW, "A rate", "quick", "torch 2.15.0")


KEYED = {
    "winner": slim(OLD, NEW),
    "three names": slim("fp32", "fp16", "bf16", winner=""),
    "four names": slim("A fp32", "A mixed", "B fp32", "B mixed", winner=""),
    "no data": slim(OLD, NEW, value=None),
    "neighbours": neighbours(),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("chart", KEYED.values(), ids=KEYED)
def test_bars_have_the_colours_of_the_key(tmp_path, chart, theme):
    """Also where the winner is slower."""
    (path,) = drawn(tmp_path, answer(result(charts=(chart,))), kinds=("svg",), theme=theme)
    colours = [box[-1] for box in boxes(Path(path).read_text(encoding="utf-8"))]
    bars = [bar for group in chart.groups for bar in group.bars]
    names = list(dict.fromkeys(bar.name for bar in bars))
    key = dict(zip(names, colours, strict=False))
    assert len(set(key.values())) == len(names)
    assert colours[len(names) :] == [key[bar.name] for bar in bars if bar.value is not None]


def named_boxes(svg, names):
    """The box with each of these names inside, or directly before it."""
    titles = {}
    for x, y, text in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        beside = [box for box in boxes(svg) if box[0] < float(x) < box[1] + 10]
        nearest = min(beside, key=lambda box: abs((box[2] + box[3]) / 2 - float(y) + 3), default=None)
        if nearest and unescape(text) in names and nearest[2] < float(y) < nearest[3] + 5:
            titles[unescape(text)] = nearest
    return titles


def test_every_chart_of_our_rows_has_the_size_of_a_post_and_the_colours_of_its_names(light):
    """A key or the names in one group explain every colour."""
    our = gpubench_answer(sorted(PUBLISHED.glob("*.csv")))
    charts = worth_drawing([chart for part in (*our.results, *our.sections) for chart in part.charts])
    explained = 0
    for chart in charts:
        picture = io.StringIO()
        figure_of(chart).savefig(picture, format="svg")
        svg = picture.getvalue()
        assert 'width="576pt" height="324pt"' in svg, "1200 x 675 pixels at 150 to the inch"
        names = {bar.name for group in chart.groups for bar in group.bars}
        key = {name: box[-1] for name, box in named_boxes(svg, names).items()}
        colours = {box[-1] for box in boxes(svg)}
        explained += len(key) > 1
        assert len(set(key.values())) == len(key), chart.name
        assert colours == set(key.values()) if key else len(colours) <= 1 + bool(chart.winner), chart.name
    assert len(charts) > 30
    assert explained > 10


@pytest.mark.parametrize("theme", ["light", "dark", "page"])
@pytest.mark.parametrize("chart", [*KINDS.values(), pairs(groups=(BarGroup("a", (Bar(OLD, 1.0), Bar(NEW, 2.0)), "0.50x",
    worse=True),))])  # fmt: skip
def test_texts_stand_out_from_what_is_behind_them(chart, theme):
    with matplotlib.rc_context(themed(theme)):
        figure = figure_of(chart)
    for text in texts(figure):
        middle = text.get_window_extent()
        at = (middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2
        behind = [INK[theme][0]]
        behind += [to_hex(box.get_facecolor()) for box in figure.axes[0].patches
                   if box.get_fill() and box.get_window_extent().contains(*at)]  # fmt: skip
        assert contrast(to_hex(text.get_color()), behind[-1]) >= 4.5, text.get_text()


def test_ratios_are_told_from_the_line_and_long_whiskers_end_in_arrows(light):
    figure = figure_of(KINDS["ratios"])
    lines = [line for line in figure.axes[0].lines if line.get_marker() in set("oD<>")]
    assert [(line.get_marker(), line.get_color()) for line in lines] == [
        ("o", COLOURS[0]), ("<", COLOURS[5]), (">", COLOURS[5]), ("o", COLOURS[5]), ("o", COLOURS[0])
    ]  # fmt: skip
    assert {"1", "1.40", "0.90"} <= set(words(figure))


def test_an_svg_has_no_markup_of_a_name(tmp_path):
    attack = "</text><script>alert(1)</script>"
    groups = (BarGroup(attack, (Bar(attack, 1.0), Bar("b", 2.0))),)
    (path,) = drawn(tmp_path, answer(result(charts=(pairs(title=attack, groups=groups),))), kinds=("svg",))
    assert "<script" not in Path(path).read_text(encoding="utf-8")
