"""An XSpace full of planted names, made with protobuf's own classes."""

from __future__ import annotations

from typing import Any

import pytest

SECRETS = ("zebra", "alice", "acme", "giraffe", "/srv/", "s3cr3t")
HOST = "zebra-node-7"


def schema() -> Any:
    """The classes of an XSpace; skips where TensorFlow is not installed."""
    return pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2", reason="TensorFlow is not installed")


def planted() -> Any:
    """Names in every place that can hold one."""
    space = schema().XSpace()
    space.errors.append("alice cannot open /srv/alice/zebra: insufficient privilege")
    space.warnings.append("12 events dropped on zebra-node-7")
    space.hostnames.append(HOST)
    stats = {
        1: "correlation_id", 2: "tf_op", 3: "hlo_op", 4: "kernel_details", 5: "zebra_stat", 6: "step_num", 7: "_r",
        8: "acme/encoder/giraffe/MatMul:MatMul", 9: "gpu_device_name", 10: "source_info", 11: "memalloc_details",
    }  # fmt: skip
    gpu = space.planes.add(id=1, name="/device:GPU:0")
    host = space.planes.add(id=2, name="/host:CPU")
    for plane in (gpu, host):
        for key, name in stats.items():
            plane.stat_metadata[key].id = key
            plane.stat_metadata[key].name = name
            plane.stat_metadata[key].description = "by alice"
    gpu.stats.add(metadata_id=9, str_value="NVIDIA H100 80GB HBM3")
    gpu.stats.add(metadata_id=5, str_value="alice@acme")
    for key, name in {1: "zebra_flash_attention_kernel", 2: "ncclDevKernel_AllReduce_Sum_f32", 3: "acme_layer"}.items():
        gpu.event_metadata[key].id = key
        gpu.event_metadata[key].name = name
        gpu.event_metadata[key].display_name = f"alice {name}"
        gpu.event_metadata[key].metadata = b"s3cr3t program of zebra"
        gpu.event_metadata[key].stats.add(metadata_id=10, str_value="/srv/alice/zebra.py:12")
        gpu.event_metadata[key].stats.add(metadata_id=10, bytes_value=b"s3cr3t bytes")
        gpu.event_metadata[key].child_id.extend([1, 2])
    stream = gpu.lines.add(id=7, name="Stream #7(Compute)", timestamp_ns=100)
    for step in range(6):
        for index, key in enumerate((1, 2)):
            event = stream.events.add(metadata_id=key, offset_ps=step * 10**9 + index * 10**8, duration_ps=9 * 10**7)
            event.stats.add(metadata_id=1, uint64_value=step * 2 + index + 1)
            event.stats.add(metadata_id=2, ref_value=8)
            event.stats.add(metadata_id=4, str_value="regs:32 shm:0 grid:8,1,1 block:128,1,1")
            event.stats.add(metadata_id=5, str_value="zebra")
            event.stats.add(metadata_id=10, bytes_value=b"s3cr3t")
    stream.events.add(metadata_id=3, offset_ps=5, duration_ps=5).stats.add(metadata_id=11, str_value="num_bytes:1")
    derived = gpu.lines.add(id=90, name="TensorFlow Name Scope")
    derived.events.add(metadata_id=3, offset_ps=1, duration_ps=2)
    for key, name in {1: "$zebra_data_loader.py:12 next_batch", 2: "train", 3: "cuLaunchKernel", 4: "giraffe"}.items():
        host.event_metadata[key].id = key
        host.event_metadata[key].name = name
    thread = host.lines.add(id=55, name="zebra_thread", display_name="alice main", timestamp_ns=100)
    for step in range(6):
        marker = thread.events.add(metadata_id=2, offset_ps=step * 10**9, duration_ps=9 * 10**8)
        marker.stats.add(metadata_id=6, int64_value=step)
        marker.stats.add(metadata_id=7, int64_value=1)
        thread.events.add(metadata_id=1, offset_ps=step * 10**9 + 10**6, duration_ps=10**7)
        for index in range(2):
            call = thread.events.add(
                metadata_id=3, offset_ps=step * 10**9 + 2 * 10**7 + index * 10**6, duration_ps=10**5
            )
            call.stats.add(metadata_id=1, uint64_value=step * 2 + index + 1)
    programs = space.planes.add(id=3, name="/host:metadata")
    programs.event_metadata[1].id = 1
    programs.event_metadata[1].name = "zebra_program"
    programs.event_metadata[1].stats.add(metadata_id=1, bytes_value=b"s3cr3t HLO of alice")
    task = space.planes.add(id=4, name="Task Environment")
    task.stat_metadata[1].id = 1
    task.stat_metadata[1].name = "profile_start_time"
    task.stats.add(metadata_id=1, uint64_value=1_700_000_000_000_000_000)
    return space


def with_unknown_fields(data: bytes) -> bytes:
    """The same with a field that no schema has, of a writer that is newer or has something to hide."""
    hidden = b"s3cr3t"
    return data + bytes([99 << 3 & 0x7F | 2 | 0x80, 99 >> 4, len(hidden)]) + hidden
