"""A recorder in memory, and a monitor of nothing but hooks: what callback and capture write, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.monitor.capture import Capture, CaptureOptions
from tb_gpu_doctor.monitor.step_hooks import StepHooks


@dataclass
class Step:
    number: int
    end_ns: int
    duration_ns: int
    samples: int | None
    profiled: bool


@dataclass
class MemoryRecorder:
    """Keeps all that is recorded."""

    steps: list[Step] = field(default_factory=list)
    spans: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    allocators: list[tuple[int, int, int, int | None]] = field(default_factory=list)
    written: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def step(
        self, number: int, end_ns: int, duration_ns: int, samples: int | None = None, profiled: bool = False
    ) -> None:
        self.steps.append(Step(number, end_ns, duration_ns, samples, profiled))

    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str = "") -> None:
        self.spans.append((kind, start_ns, end_ns, step, note))

    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        self.allocators.append((gpu, used_bytes, peak_bytes, limit_bytes))

    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        self.written[name] = values

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    @property
    def numbers(self) -> list[int]:
        return [step.number for step in self.steps]

    def kinds(self) -> list[str]:
        return [kind for kind, *_ in self.spans]


class MemoryMonitor:
    """Stands where a `GpuMonitor` stands: hooks and their recorder."""

    def __init__(self, logdir: Any = "", framework: str | None = None, recorder: Any = None, **options: Any) -> None:
        self.recorder = recorder or MemoryRecorder()
        chosen = CaptureOptions(**options)
        self.hooks = StepHooks(self.recorder, framework=framework)
        self.capture = Capture(self.recorder, str(logdir), chosen, self.hooks.frameworks)
        if not chosen.idle:
            self.hooks.capture = self.capture
        self.running = False

    def start(self) -> None:
        self.running = True
        self.hooks.start()

    def stop(self) -> None:
        self.hooks.close()
        self.running = False
