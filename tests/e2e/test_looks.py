"""Whether the comparison of pictures tells views, runs and missing charts apart, and lets other fonts pass."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from tests.e2e import looks

FILES = sorted(looks.LOOKS.glob("*.png"))


def load(path: Path) -> Image.Image:
    with Image.open(path) as opened:
        return opened.convert("RGB")


PICTURES = {tuple(path.stem.rsplit("_", 1)): load(path) for path in FILES}


def test_the_pictures_are_small():
    assert len(FILES) >= 48
    assert sum(path.stat().st_size for path in FILES) < 250_000
    assert all(picture.width == looks.WIDTH for picture in PICTURES.values())


def test_a_picture_is_like_itself():
    for picture in PICTURES.values():
        assert looks.difference(picture, picture) == 0


@pytest.mark.slow
def test_views_differ_from_each_other():
    for (one, first), (other, second) in itertools.combinations(PICTURES.items(), 2):
        if one[0] == other[0]:
            assert looks.difference(first, second) > looks.TOLERANCE, (one, other)


def test_runs_differ_where_they_are_shown():
    # The other views say little, and nearly the same, of runs without such data.
    for (one, first), (other, second) in itertools.combinations(PICTURES.items(), 2):
        if one[1] == other[1] and one[1] in ("verdict", "timeline", "steps", "kernels"):
            assert looks.difference(first, second) > looks.TOLERANCE, (one, other)


@pytest.mark.parametrize(
    ("view", "box"), [("timeline", (12, 30, 124, 50)), ("steps", (12, 38, 124, 56)), ("kernels", (4, 26, 124, 37))]
)
def test_a_missing_chart_is_noticed(view: str, box: tuple[int, int, int, int]):
    for run in ("slow_gpu", "input_bound"):
        blank = PICTURES[run, view].copy()
        ImageDraw.Draw(blank).rectangle(box, fill="white")
        assert looks.difference(blank, PICTURES[run, view]) > looks.TOLERANCE


def test_a_shift_by_a_line_and_softer_letters_pass():
    for (run, view), picture in PICTURES.items():
        soft = picture.filter(ImageFilter.GaussianBlur(0.4))
        assert looks.difference(soft, picture) <= looks.TOLERANCE, (run, view)
        moved = ImageChops.offset(picture, 0, 2)  # 20 pixels of the screen, a line of text
        moved.paste(picture.crop((0, 0, looks.WIDTH, 2)))
        assert looks.difference(moved, picture) <= looks.TOLERANCE, (run, view)


def test_the_order_of_the_pictures_does_not_matter():
    one, other = PICTURES["slow_gpu", "timeline"], PICTURES["slow_gpu", "steps"]
    assert looks.difference(one, other) == looks.difference(other, one) > looks.TOLERANCE


def test_a_higher_picture_is_compared_where_both_are():
    picture = PICTURES["slow_gpu", "timeline"]
    assert looks.difference(picture.crop((0, 0, looks.WIDTH, picture.height - 6)), picture) < looks.TOLERANCE
