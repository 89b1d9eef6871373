"""The logdir of the soak: sessions come, change, break and go."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from simulator.large_xplane import Shape, generate


class Logdir:
    """A logdir of 20 runs.

    Args:
        root: its folder, made here.
        sessions: how many there are at first.
        chance: decides what happens.
    """

    def __init__(self, root: Path, sessions: int, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._wholes = _templates(root.parent / f"{root.name}-templates")
        self._names: list[Path] = []
        self._number = 0
        for _ in range(sessions):
            self.add()

    def add(self) -> None:
        """A new session; its file appears whole, as profilers write it."""
        number = self._number
        self._number += 1
        run = f"run{number % 20:02d}"
        second = (
            f"2026_01_{1 + number // 400 % 28:02d}_{number // 20 % 24:02d}_{number % 60:02d}_{number // 60 % 60:02d}"
        )
        folder = self.root / run / "plugins" / "profile" / second
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"worker{number % 3}.xplane.pb"
        path.write_bytes(self._chance.choice(self._wholes))
        self._names.append(path)

    def add_hard_ones(self, files: int) -> None:
        """What no server should trip over: a pipe called a profile that nobody writes to, a session of many files."""
        pipe = self.root / "hard" / "plugins" / "profile" / "pipe"
        pipe.mkdir(parents=True)
        os.mkfifo(pipe / "worker0.xplane.pb")
        many = self.root / "hard" / "plugins" / "profile" / "many"
        many.mkdir()
        first = many / "worker0.xplane.pb"
        generate(first, Shape(40, 40, gpus=1), 0)
        for number in range(1, files):
            os.link(first, many / f"worker{number}.xplane.pb")

    def change(self) -> str:
        """Do one thing to one session; what was done."""
        path = self._chance.choice(self._names)
        what = self._chance.choice(("add", "rewrite", "rewrite", "cut", "cut", "grow", "delete"))
        if what == "add" or len(self._names) < 10:
            self.add()
        elif what == "delete":
            self._names.remove(path)
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        elif what == "rewrite":
            path.write_bytes(self._chance.choice(self._wholes))  # in place: a reader may see part of it
        elif what == "cut":
            size = path.stat().st_size
            os.truncate(path, self._chance.randrange(size + 1))
        else:
            whole = self._chance.choice(self._wholes)  # still being copied
            with path.open("wb") as file:
                for at in range(0, len(whole), max(1, len(whole) // 5)):
                    file.write(whole[at : at + max(1, len(whole) // 5)])
                    file.flush()
                    time.sleep(0.05)
        return what


def _templates(folder: Path) -> list[bytes]:
    """Different profiles: one GPU and eight, few events and more."""
    folder.mkdir(parents=True)
    found = []
    for seed, shape in enumerate((Shape(1_500, 1_500, gpus=1), Shape(6_000, 6_000), Shape(20_000, 20_000))):
        path = folder / f"{seed}.xplane.pb"
        generate(path, shape, seed)
        found.append(path.read_bytes())
    return found
