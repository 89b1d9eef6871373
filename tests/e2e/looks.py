"""How the views look: small pictures of them, and whether two pictures show the same.

Fonts and browsers differ between machines: letters have other widths, lines break elsewhere, what is below moves a
little. So pictures are made small, and a pixel counts as different only if its colour lies clearly outside of all that
the other picture has nearby. What is left is the layout, the charts and their colours.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from playwright.sync_api import Frame

LOOKS = Path(__file__).with_name("looks")
RENEW = "RENEW_LOOKS"
WIDTH = 128
COLOURS = 64
# How far (in small pixels, each 10 of the screen) something may move.
REACH = 2
# From which distance of a colour channel (of 255) a pixel is different.
STRONG = 16
# Which share of the pixels may be different. On one machine 0.4 % are, without hinting of letters as well, and 2.7 % at
# most in another font (Liberation Sans for DejaVu Sans); two views of a run differ by 5.2 % at least.
TOLERANCE = 0.035


def screenshot(frame: Frame) -> Image.Image:
    """The tab's own frame as the user sees it, one pixel per CSS pixel."""
    frame.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    content = frame.frame_element().screenshot(scale="css", caret="hide", animations="disabled")
    return Image.open(io.BytesIO(content)).convert("RGB")


def small(picture: Image.Image) -> Image.Image:
    """The picture in ``WIDTH`` pixels; its height follows."""
    height = round(picture.height * WIDTH / picture.width)
    return picture.convert("RGB").resize((WIDTH, height), Image.Resampling.BOX)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Which share of the pixels of two small pictures is different (0 to 1), whichever of them comes first.

    Where one is higher (another TensorBoard, another header) only what both have is compared.
    """
    size = (WIDTH, min(one.height, other.height))
    first, second = (each.convert("RGB").crop((0, 0, *size)) for each in (one, other))
    outside = np.maximum(_outside(first, second), _outside(second, first))
    return float((outside > STRONG).mean())


def _outside(picture: Image.Image, around: Image.Image) -> np.ndarray:
    """How far each pixel's worst channel lies outside of what the other picture has nearby, [rows, columns]."""
    values = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.5)), dtype=np.int16)
    near = np.asarray(around, dtype=np.int16)
    beyond: np.ndarray = np.maximum(_nearby(near, np.minimum) - values, values - _nearby(near, np.maximum)).max(axis=2)
    return beyond


def _nearby(values: np.ndarray, extreme: np.ufunc) -> np.ndarray:
    """The least or the greatest value within ``REACH`` rows and columns, per channel."""
    for axis in (0, 1):
        padding = [(REACH, REACH) if each == axis else (0, 0) for each in range(3)]
        padded = np.pad(values, padding, mode="edge")
        length = values.shape[axis]
        values = extreme.reduce([np.take(padded, range(i, i + length), axis) for i in range(2 * REACH + 1)])
    return values


def reference(run: str, view: str) -> Path:
    """Where the committed picture of a view lies."""
    return LOOKS / f"{run}_{view}.png"


def renewing() -> bool:
    """Whether the pictures are to be written anew instead of compared."""
    return bool(os.environ.get(RENEW))


def keep(picture: Image.Image, run: str, view: str) -> None:
    """Write a reference: a palette of few colours keeps it to a few kilobytes."""
    LOOKS.mkdir(exist_ok=True)
    small(picture).quantize(COLOURS, dither=Image.Dither.NONE).save(reference(run, view), optimize=True)


def complaint(frame: Frame, run: str, view: str, folder: Path) -> str | None:
    """What is wrong with how a view looks now, or None; saves the picture then, beside the reference, in ``folder``."""
    if renewing():
        frame.wait_for_timeout(700)  # the last details
        keep(screenshot(frame), run, view)
        return None
    path = reference(run, view)
    if not path.is_file():
        return f"{path} does not exist: run the test with {RENEW}=1, look at the picture and commit it"
    with Image.open(path) as opened:
        expected = opened.convert("RGB")
    for wait_ms in (0, 300, 700, 1500):  # a busy machine draws the last details late
        frame.wait_for_timeout(wait_ms)
        actual = screenshot(frame)
        found = difference(small(actual), expected)
        if found <= TOLERANCE:
            return None
    saved = folder / path.name
    actual.save(saved)
    small(actual).save(saved.with_suffix(".small.png"))
    expected.save(saved.with_suffix(".expected.png"))
    return (
        f"the {view} view of {run} looks different: {found:.1%} of the pixels, up to {TOLERANCE:.1%} may; "
        f"see {saved} and, beside it, .small.png and .expected.png; if it is meant to, run the test with {RENEW}=1"
    )
