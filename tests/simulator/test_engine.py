"""The clock, signals and bounded queues."""

from __future__ import annotations

from simulator.engine import Process, Queue, Signal, Simulation, ms, us
from simulator.host import UNSEEN, HostThread


def test_units_are_whole_nanoseconds() -> None:
    assert us(1.2345) == 1_234_000
    assert ms(2) == 2_000_000_000
    simulation = Simulation(1)
    assert all(simulation.jitter(us(3), 0.3) % 1_000 == 0 for _ in range(200))


def test_processes_interleave_in_the_order_of_time() -> None:
    simulation = Simulation(1)
    seen: list[tuple[int, str]] = []

    def process(name: str, period: int) -> Process:
        for _ in range(3):
            yield period
            seen.append((simulation.now, name))

    simulation.spawn(process("a", 2))
    simulation.spawn(process("b", 3))
    simulation.run()
    assert seen == [(2, "a"), (3, "b"), (4, "a"), (6, "b"), (6, "a"), (9, "b")]


def test_a_signal_wakes_all_who_wait_and_none_waits_for_a_fired_one() -> None:
    simulation, signal, seen = Simulation(1), Signal(), []

    def waiter(delay: int) -> Process:
        yield delay
        yield signal
        seen.append(simulation.now)

    def firer() -> Process:
        yield 5
        simulation.fire(signal)

    for delay in (0, 1, 9):
        simulation.spawn(waiter(delay))
    simulation.spawn(firer())
    simulation.run()
    assert seen == [5, 5, 9]


def test_a_bounded_queue_blocks_producer_and_consumer() -> None:
    simulation = Simulation(1)
    producer, consumer = HostThread(simulation, "p", 1), HostThread(simulation, "c", 2)
    queue: Queue[int] = Queue(simulation, 2)
    taken: list[tuple[int, int]] = []

    def produce() -> Process:
        for item in range(5):
            yield from producer.spend(10, "input")
            yield from producer.put(queue, item)

    def consume() -> Process:
        for _ in range(5):
            item = yield from consumer.take(queue, "input")
            taken.append((simulation.now, item))
            yield from consumer.spend(25, "launch")

    simulation.spawn(produce())
    simulation.spawn(consume())
    simulation.run()
    assert taken == [(10, 0), (35, 1), (60, 2), (85, 3), (110, 4)]


def test_a_wait_is_charged_to_what_the_other_thread_did() -> None:
    simulation = Simulation(1)
    first, second = HostThread(simulation, "a", 1), HostThread(simulation, "b", 2)
    signal = Signal()

    def work() -> Process:
        yield from first.spend(10, "input")
        yield from first.spend(20, "checkpoint")
        simulation.fire(signal, first)

    def wait() -> Process:
        yield from second.wait(signal)
        yield from second.spend(5, "launch")

    simulation.spawn(work())
    simulation.spawn(wait())
    simulation.run()
    assert list(second.causes(4, 40)) == [
        (4, 10, "input"),
        (10, 30, "checkpoint"),
        (30, 35, "launch"),
        (35, 40, UNSEEN),
    ]
