#!/usr/bin/env bash
# Feeds damaged input to the readers for SECONDS (default 30): a third of the time to those of trace JSON and a third
# to whole XPlane files, both through the whole diagnosis, the rest to the compiled plane decoder, under ASAN and UBSAN.
#
#   fuzz/run.sh [SECONDS]
#
# FUZZ_PYTHON is an interpreter that has the package; without one the readers of JSON are left out.
# With clang: libFuzzer, which looks for new paths. Without it, or without its runtime: the driver, built
# by gcc, which replays the corpus and tries seeded mutations of it. FUZZ_ENGINE=libfuzzer or =driver chooses.
# An input that fails stays in fuzz/ (crash-*); replay it with FUZZ_INPUT=fuzz/crash-... fuzz/run.sh, and one
# of JSON (crash-*.json) with python -m fuzz.fuzz_json --input fuzz/crash-...
set -euo pipefail

seconds=${1:-30}
here=$(cd "$(dirname "$0")" && pwd)
traces=$here/../tb_gpu_doctor/traces
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The core's own allocations go through fuzz/check.c, which lets some of them fail.
renamed=(-Dmalloc=fuzz_malloc -Dcalloc=fuzz_calloc -Drealloc=fuzz_realloc)
flags=(-std=c11 -g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all -Wall -Wextra)
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
# LeakSanitizer cannot run under a tracer (strace, gdb, some containers); ASAN_OPTIONS=detect_leaks=0 helps there.

# build COMPILER SANITIZERS MAIN OUTPUT
build() {
    local part
    for part in wire_core wire_tables; do
        "$1" "${flags[@]}" "-fsanitize=$2" "${renamed[@]}" -c "$traces/$part.c" -o "$work/$part.o" 2>"$work/log" ||
            return 1
    done
    "$1" "${flags[@]}" "-fsanitize=$2" "$3" "$here/check.c" "$work"/wire_*.o -o "$4" 2>"$work/log"
}

build_libfuzzer() {
    command -v clang >/dev/null || { echo "fuzz: no clang, hence no libFuzzer" >&2; return 1; }
    build clang fuzzer,address,undefined "$here/fuzz_wire.c" "$work/fuzz_wire" && return 0
    echo "fuzz: clang cannot build the libFuzzer target (its runtime, Debian's libclang-rt-dev, may be missing):" >&2
    head -n 5 "$work/log" >&2
    return 1
}

build_driver() {
    local compiler
    for compiler in ${CC:-} gcc clang cc; do
        command -v "$compiler" >/dev/null || continue
        build "$compiler" address,undefined "$here/driver.c" "$work/driver" && return 0
        head -n 5 "$work/log" >&2
    done
    echo "fuzz: no compiler with sanitizers found: install gcc (Debian: build-essential)" >&2
    return 1
}

cd "$here"
if [ -n "${FUZZ_INPUT:-}" ]; then
    cd - >/dev/null
    build_driver
    "$work/driver" 0 1 "$FUZZ_INPUT"
    exit
fi

python=${FUZZ_PYTHON:-$here/../.venv/bin/python}
if [ -x "$python" ]; then
    (cd "$here/.." && "$python" -m fuzz.fuzz_json "$((seconds / 3))" --seed "${FUZZ_SEED:-1}")
    (cd "$here/.." && "$python" -m fuzz.fuzz_xplane "$((seconds / 3))" --seed "${FUZZ_SEED:-1}")
    seconds=$((seconds - 2 * (seconds / 3)))
else
    echo "fuzz: no $python: the readers of trace JSON are left out" >&2
fi

engine=${FUZZ_ENGINE:-any}
if [ "$engine" != driver ] && build_libfuzzer; then
    mkdir "$work/found"
    if ! "$work/fuzz_wire" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -seed=1 \
        -dict=wire.dict -print_final_stats=1 "$work/found" corpus >"$work/log" 2>&1; then
        tail -n 60 "$work/log" >&2
        exit 1
    fi
    grep 'stat::' "$work/log"
    echo "fuzz: libFuzzer ran ${seconds} s without a finding"
elif [ "$engine" != libfuzzer ] && build_driver; then
    "$work/driver" "$seconds" "${FUZZ_SEED:-1}" corpus/*
    echo "fuzz: the driver ran ${seconds} s without a finding"
else
    echo "fuzz: nothing ran" >&2
    exit 1
fi
