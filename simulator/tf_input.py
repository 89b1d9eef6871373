"""A tf.data pipeline: read, parallel map, batch, prefetch, and one shard per replica.

The stages run on the threads, and record the events, that TensorFlow's do:
``dataset.map(...).batch(...).prefetch(...)`` under ``MirroredStrategy``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from simulator.engine import Process, Queue, Signal, Simulation, us
from simulator.host import HostThread
from simulator.xplane_writer import Ref, Stats, StatValue, Unsigned

TF_EXECUTOR = 2  # the profiler's context type of TensorFlow's executor
_REBATCH = "Iterator::Root::Prefetch::Rebatch"
_BATCH = f"{_REBATCH}::Prefetch::BatchV2"
NewThread = Callable[[str], HostThread]


@dataclass(frozen=True)
class InputSpec:
    """How input is made.

    Attributes:
        elements: elements of one global batch.
        map_us, spread: time of one call of the map function, and how much it varies.
        parallelism: ``num_parallel_calls`` of the map.
        buffer: prefetched global batches.
        ready: batches already buffered when the recording starts.
        prefetch: whether the batches are made ahead on threads; without, who asks for one makes it.
        workers: threads of the pool; by default as many as ``parallelism``.
    """

    elements: int
    map_us: float
    spread: float = 0.08
    parallelism: int = 1
    buffer: int = 2
    read_us: float = 45.0
    ready: int = 0
    prefetch: bool = True
    workers: int = 0


def random_id(simulation: Simulation) -> int:
    """An id as TensorFlow makes them: 63 random bits."""
    return simulation.random.getrandbits(62) | 1 << 62


def identity(simulation: Simulation) -> dict[str, StatValue]:
    """The ``id`` of one function call or iterator."""
    return {"id": Unsigned(random_id(simulation))}


@dataclass(frozen=True)
class _MapCall:
    """One call of the map function; ``producer`` ties it to the thread that asked for it."""

    element: int
    stats: dict[str, StatValue]
    producer: int


class InputPipeline:
    """Starts the pipeline's threads; replicas take their shard from ``shards``."""

    def __init__(self, simulation: Simulation, spec: InputSpec, replicas: int, new_thread: NewThread) -> None:
        self._simulation = simulation
        self._spec = spec
        self.shards: list[Queue[int]] = [Queue(simulation, 1) for _ in range(replicas)]
        self._calls: Queue[_MapCall] = Queue(simulation, 1)
        self._mapped: Queue[int] = Queue(simulation, 2 * spec.parallelism)
        self._batches: Queue[int] = Queue(simulation, spec.buffer)
        self._element = 1_795_974_834_000_000_000
        if not spec.prefetch:
            return
        for _ in range(spec.ready):
            self._batches.put(self._next_element())
        for i in range(spec.workers or spec.parallelism):
            simulation.spawn(self._worker(new_thread("tf_data_private_threadpool"), i))
        simulation.spawn(self._runner(new_thread("tf_data_iterator_resource")))
        simulation.spawn(self._batcher(new_thread("tf_data_iterator_resource")))
        simulation.spawn(self._splitter(new_thread("tf_data_multi_device_iterator_resource")))

    def next_element(self, thread: HostThread, shard: Queue[int]) -> Generator[int | Signal, None, int]:
        """Takes a replica's next shard; without prefetching it is made here, one element after the other."""
        if self._spec.prefetch:
            return (yield from thread.take(shard, "input"))
        spec, simulation = self._spec, self._simulation
        root = "Iterator::Root::Prefetch::BatchV2"
        with thread.span(root, self._iterator("BatchDatasetV2:2")):
            for _ in range(spec.elements):
                with thread.span(f"{root}::Map", self._iterator("MapDataset:1")):
                    with thread.span(f"{root}::Map::TFRecord", self._iterator("TFRecordDataset:0")):
                        yield from thread.spend(simulation.jitter(us(spec.read_us), 0.2), "input")
                    with thread.span("InstantiatedCapturedFunction::Run", identity(simulation)):
                        yield from thread.spend(simulation.jitter(us(spec.map_us), spec.spread), "input")
            yield from thread.spend(us(120), "input")
        return self._next_element()

    def _next_element(self) -> int:
        self._element += 1_009
        return self._element

    def _iterator(self, dataset: str) -> dict[str, StatValue]:
        return {"name": Ref(dataset), "shapes": Ref("[?,224,224,3] [?]"), "types": Ref("float int64")}

    def _runner(self, thread: HostThread) -> Process:
        """ParallelMap's own thread: reads elements and hands them to the thread pool."""
        spec, simulation = self._spec, self._simulation
        while True:
            while self._calls.full:
                yield from thread.wait(self._calls.changed, "input")
            element = self._next_element()
            with thread.span("ParallelMapProduce", {"element_id": element}):
                with thread.span(f"{_BATCH}::ParallelMapV2::TFRecord", self._iterator("TFRecordDataset:0")):
                    yield from thread.spend(simulation.jitter(us(spec.read_us), 0.2), "input")
                call = identity(simulation)
                producer = random_id(simulation)
                with thread.span("InstantiatedCapturedFunction::RunAsync", call):
                    known: Stats = {**call, "_r": 1, "_pt": TF_EXECUTOR, "_p": Unsigned(producer)}
                    with thread.span("FunctionRun", known):
                        yield from thread.spend(us(7), "input")
                    yield from thread.put(self._calls, _MapCall(element, call, producer), "input")

    def _worker(self, thread: HostThread, index: int) -> Process:
        """A thread of the private pool: runs the map function."""
        spec, simulation = self._spec, self._simulation
        while True:
            while not len(self._calls):
                yield from thread.wait(self._calls.changed, "input")
            call = self._calls.get(thread)
            known = {**call.stats, "iter_num": 0, "_ct": TF_EXECUTOR, "_c": Unsigned(call.producer)}
            with thread.span("ExecutorState::Process", known):
                total = simulation.jitter(us(spec.map_us), spec.spread)
                for op, share in (("DecodeJpeg", 0.62), ("resize/ResizeBilinear", 0.24), ("truediv/RealDiv", 0.14)):
                    with thread.span(f"{op}:{op.split('/')[-1]}"):
                        yield from thread.spend(us(total * share / 1e6), "input")
            yield from thread.put(self._mapped, call.element, "input")

    def _batcher(self, thread: HostThread) -> Process:
        """The user's prefetch: batches mapped elements into the buffer."""
        while True:
            while self._batches.full:
                yield from thread.wait(self._batches.changed, "input")
            with thread.span("PrefetchProduce", {"element_id": self._next_element()}):
                with thread.span(_BATCH, self._iterator("BatchDatasetV2:2")):
                    for _ in range(self._spec.elements):
                        with thread.span(f"{_BATCH}::ParallelMapV2", self._iterator("ParallelMapDatasetV2:1")):
                            element = yield from thread.take(self._mapped, "input")
                            with thread.span("ParallelMapConsume", {"element_id": element}):
                                yield from thread.spend(us(2), "input")
                    yield from thread.spend(us(340), "input")
                self._batches.put(self._next_element(), thread)

    def _splitter(self, thread: HostThread) -> Process:
        """MultiDeviceIterator: takes global batches and hands every replica its shard."""
        while True:
            while any(shard.full for shard in self.shards):
                full = next(shard for shard in self.shards if shard.full)
                yield from thread.wait(full.changed, "input")
            with (
                thread.span("PrefetchProduce", {"element_id": self._next_element()}),
                thread.span(_REBATCH, self._iterator("RebatchDataset:12")),
            ):
                with thread.span(f"{_REBATCH}::Prefetch", self._iterator("PrefetchDataset:3")):
                    element = yield from thread.take(self._batches, "input")
                    with thread.span("PrefetchConsume", {"element_id": element}):
                        yield from thread.spend(us(2), "input")
                yield from thread.spend(us(110), "input")
            for shard in self.shards:
                shard.put(element, thread)
                yield from thread.spend(us(4), "input")
