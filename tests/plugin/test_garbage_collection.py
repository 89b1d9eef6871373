"""The garbage collector is kept short, in processes of their own: pytest's own collector stays as it is."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from tb_gpu_doctor.plugin import garbage_collection

gc.disable()
lists = [[] for _ in range(50_000)]
garbage_collection.keep_collections_short()
garbage_collection.keep_collections_short()
assert len(gc.callbacks) == 1 and gc.get_freeze_count() > 50_000
assert len(gc.get_objects()) < 1_000, "nothing of it is looked at again"
gc.callbacks.clear()

guard = garbage_collection._Guard(slow_s=0.0, most_times=2)
gc.callbacks.append(guard)
frozen = [gc.get_freeze_count()]
for generation in (1, 2, 2, 2):
    lists.append([[] for _ in range(1_000)])
    gc.collect(generation)
    frozen.append(gc.get_freeze_count())
grown = [after - before for before, after in zip(frozen, frozen[1:])]
assert abs(grown[0]) < 100 and grown[1] > 1_900 and grown[2] > 900 and abs(grown[3]) < 100, grown
gc.callbacks[:] = [garbage_collection._Guard(slow_s=60.0)]
gc.collect()
assert abs(gc.get_freeze_count() - frozen[-1]) < 100, "a quick one sets nothing aside"

class Ring:
    alive = 0
    def __init__(self): self.me = self; Ring.alive += 1
    def __del__(self): Ring.alive -= 1
Ring()
gc.collect()
assert Ring.alive == 0, "new rings are found as before"
print("fine")
"""


def test_what_outlives_slow_collections_is_set_aside() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr


REQUEST = """
import gc
from werkzeug.test import Client
from tb_gpu_doctor.plugin.routes import Routes
from tb_gpu_doctor.plugin.logdir import Scanner
from tb_gpu_doctor.plugin.analyses import Analyses

apps = Routes(Scanner([]), Analyses(), "").apps()
assert gc.get_freeze_count() == 0
assert Client(apps["/sessions"]).get("/sessions").status_code == 200
assert gc.get_freeze_count() > 10_000
print("fine")
"""


def test_the_first_request_does_it() -> None:
    done = subprocess.run([sys.executable, "-c", REQUEST], capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr
