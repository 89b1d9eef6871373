"""Run every analysis of one trace, in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tb_gpu_doctor.analysis.accounting import account, all_busy_sets, summarise
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.collectives import find_candidates, find_lateness
from tb_gpu_doctor.analysis.device_clock import early_work
from tb_gpu_doctor.analysis.host_activity import HostActivity
from tb_gpu_doctor.analysis.idle import find_gaps, no_gaps
from tb_gpu_doctor.analysis.input_pipeline import find_pipelines
from tb_gpu_doctor.analysis.kernel_tree import layer_scopes
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.launches import find_contention, find_serialized, launch_of, launch_queues, launch_stats
from tb_gpu_doctor.analysis.lost_events import find_launches, find_lost, uncertain_gaps, without_cause
from tb_gpu_doctor.analysis.replay.graph import replay_graph
from tb_gpu_doctor.analysis.results import Steps
from tb_gpu_doctor.analysis.standstill import charge_standstills
from tb_gpu_doctor.analysis.start_up import start_up, steady_steps
from tb_gpu_doctor.analysis.step_costs import step_costs
from tb_gpu_doctor.analysis.steps import find_steps, find_window
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis, outline
from tb_gpu_doctor.analysis.transfers import charge_bounces, find_bounces, find_transfers
from tb_gpu_doctor.analysis.unmarked_steps import unmarked_steps
from tb_gpu_doctor.traces.columns import Trace


def analyse(trace: Trace, progress: Callable[[float], None] | None = None) -> TraceAnalysis:
    """All numbers of one trace.

    Args:
        trace: the decoded file.
        progress: called with the share done, 0..1.
    """

    def report(done: float) -> None:
        if progress is not None:
            progress(done)

    # What does not need each other runs side by side: numpy leaves Python to others while it works.
    with ThreadPoolExecutor(1) as side:
        return _analyse(trace, report, side)


def _analyse(trace: Trace, report: Callable[[float], None], side: ThreadPoolExecutor) -> TraceAnalysis:
    launching = side.submit(launch_of, trace)
    calling = side.submit(find_launches, trace)
    causes = causality(trace)
    launch, calls = launching.result(), calling.result()
    report(0.2)
    acting = side.submit(HostActivity, trace, causes.parent, causes.caller)
    merging = side.submit(all_busy_sets, trace)
    steps = find_steps(trace, launch, causes, calls)
    if steps.source == "none":
        steps = unmarked_steps(trace, launch, causes, calls) or steps
    steps, first_steps = steady_steps(steps)
    window = find_window(trace, steps)
    report(0.4)
    if window is None:
        return replace(
            _without_window(trace, steps),
            pipelines=find_pipelines(trace, recorded_span(trace), causes),
            lost=find_lost(trace, calls, steps),
        )
    tabulating = side.submit(lambda: kernel_table(trace, window, steps, layer_scopes(trace, launch, causes)))
    gaps = find_gaps(trace, window, launch, causes, acting.result())
    gaps = without_cause(gaps, uncertain_gaps(trace, calls, launch, gaps))
    gaps, standstills = charge_standstills(trace, gaps, acting.result())
    report(0.7)
    busy_of = merging.result()
    transfers = find_transfers(trace, window, steps, gaps, launch, causes, busy_of)
    bounces = find_bounces(trace, steps, gaps, transfers, launch, causes)
    gaps = charge_bounces(trace, gaps, bounces, launch)
    queueing = side.submit(launch_queues, trace, window, steps, gaps, launch)
    accounting = account(trace, window, gaps, busy_of)
    summaries = summarise(trace, window, steps, busy_of)
    lateness = find_lateness(trace, window, steps)
    report(0.85)
    launches = launch_stats(trace, launch, window)
    report(0.95)
    pipelines = find_pipelines(trace, (window.start, window.end), causes, gaps)
    report(1.0)
    return TraceAnalysis(
        steps=steps,
        window=window,
        recorded=recorded_span(trace),
        accounting=accounting,
        gaps=gaps,
        summaries=summaries,
        lateness=lateness,
        kernels=tabulating.result(),
        launches=launches,
        step_costs=step_costs(steps, gaps, lateness) if steps.count else None,
        transfers=transfers,
        bounces=bounces,
        queues=queueing.result(),
        contention=find_contention(trace, window, steps, gaps, launch, causes),
        serialized=find_serialized(trace, window, launch),
        pipelines=pipelines,
        candidates=find_candidates(trace, window, steps),
        outline=outline(trace, busy_of),
        lost=find_lost(trace, calls, steps),
        early=early_work(trace),
        start_up=start_up(trace, steps, first_steps, launch, causes),
        standstills=standstills,
        replay=replay_graph(trace, steps, launch, causes, acting.result(), lateness),
    )


def recorded_span(trace: Trace) -> tuple[int, int] | None:
    """The recorded time: as the file says, else from the first to the last host event; None without either."""
    if trace.recorded is not None:
        return trace.recorded
    host = trace.host_events
    if not len(host):
        return None
    low, high = int(host.start.min()), int(host.end.max())
    return (low, high) if high > low else None


def _without_window(trace: Trace, steps: Steps) -> TraceAnalysis:
    """What can be said of a trace in which no GPU did anything."""
    return TraceAnalysis(
        steps=steps,
        window=None,
        recorded=recorded_span(trace),
        accounting=(),
        gaps=no_gaps(),
        summaries=(),
        lateness=None,
        kernels=kernel_table(trace, None, steps),
        launches=(),
        outline=outline(trace),
    )
