#include "check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tb_gpu_doctor/traces/wire_core.h"

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define NAMED(text, kind) {{(const uint8_t *)(text), sizeof(text) - 1}, kind}

/* A short name for each kind, which a fuzzer finds soon, and some real ones. */
static const wire_slot SLOTS[] = {
    NAMED("i", WIRE_INT),
    NAMED("f", WIRE_FLOAT),
    NAMED("s", WIRE_STR),
    NAMED("correlation_id", WIRE_INT),
    NAMED("group_id", WIRE_INT),
    NAMED("theoretical_occupancy_pct", WIRE_FLOAT),
    NAMED("kernel_details", WIRE_STR),
    NAMED("tf_op", WIRE_STR),
};

enum { SLOT_COUNT = sizeof SLOTS / sizeof *SLOTS };

/* The core is built with these in the place of malloc, calloc and realloc (see run.sh). */
static size_t core_allocations = SIZE_MAX;

static bool may_allocate(void)
{
    if (core_allocations == 0)
        return false;
    core_allocations--;
    return true;
}

void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t count, size_t size);
void *fuzz_realloc(void *block, size_t size);

void *fuzz_malloc(size_t size)
{
    return may_allocate() ? malloc(size) : NULL;
}

void *fuzz_calloc(size_t count, size_t size)
{
    return may_allocate() ? calloc(count, size) : NULL;
}

void *fuzz_realloc(void *block, size_t size)
{
    return may_allocate() ? realloc(block, size) : NULL;
}

typedef struct {
    void *buffers[WIRE_COLUMNS];
    size_t sizes[WIRE_COLUMNS];
    int allowed; /* allocations before they fail */
} memory;

static void *allocate(void *context, int column, size_t size)
{
    memory *all = context;
    REQUIRE(column >= 0 && column < WIRE_FIRST_SLOT + SLOT_COUNT);
    REQUIRE(all->buffers[column] == NULL);
    if (all->allowed-- <= 0)
        return NULL;
    /* Exactly `size` bytes, so that the sanitizer sees a write one past them. */
    all->buffers[column] = malloc(size ? size : 1);
    REQUIRE(all->buffers[column] != NULL);
    memset(all->buffers[column], 0x5a, size);
    all->sizes[column] = size;
    return all->buffers[column];
}

static void check_inside(wire_span span, const uint8_t *data, size_t size)
{
    REQUIRE(span.size == 0 || (span.data >= data && span.size <= size && span.data <= data + (size - span.size)));
}

static void check_ids(const int32_t *ids, size_t count, size_t strings)
{
    for (size_t i = 0; i < count; i++)
        REQUIRE(ids[i] >= -1 && (ids[i] < 0 || (size_t)ids[i] < strings));
}

/* Every cell of every column was written, and what they say fits together. */
static void check_columns(const wire_plane *plane, const memory *all, const uint8_t *data, size_t size)
{
    size_t rows = plane->event_count, lines = plane->line_count, strings = plane->string_count, row = 0;
    const int64_t *line_events = all->buffers[WIRE_LINE_EVENTS];
    const int32_t *event_line = all->buffers[WIRE_EVENT_LINE];
    const uint8_t *has_start = all->buffers[WIRE_EVENT_HAS_START];
    const int64_t *offset = all->buffers[WIRE_EVENT_OFFSET];
    const int64_t *ends = all->buffers[WIRE_STRING_OFFSETS];
    REQUIRE(all->sizes[WIRE_LINE_EVENTS] == lines * 8 && all->sizes[WIRE_EVENT_LINE] == rows * 4);
    for (size_t line = 0; line < lines; line++) {
        REQUIRE(line_events[line] >= 0 && (size_t)line_events[line] <= rows - row);
        for (size_t end = row + (size_t)line_events[line]; row < end; row++)
            REQUIRE(event_line[row] == (int32_t)line);
        check_inside(plane->line_names[line].name, data, size);
        check_inside(plane->line_names[line].display_name, data, size);
    }
    REQUIRE(row == rows);
    for (row = 0; row < rows; row++)
        REQUIRE(has_start[row] == 1 || (has_start[row] == 0 && offset[row] == 0));
    check_ids(all->buffers[WIRE_EVENT_NAME], rows, strings);
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        size_t width = SLOTS[slot].kind == WIRE_STR ? 4 : 8;
        if (all->buffers[WIRE_FIRST_SLOT + slot] == NULL)
            continue;
        REQUIRE(all->sizes[WIRE_FIRST_SLOT + slot] == rows * width);
        if (SLOTS[slot].kind == WIRE_STR)
            check_ids(all->buffers[WIRE_FIRST_SLOT + slot], rows, strings);
    }
    REQUIRE(all->sizes[WIRE_STRING_OFFSETS] == (strings + 1) * 8 && ends[0] == 0);
    for (size_t i = 0; i < strings; i++)
        REQUIRE(ends[i] <= ends[i + 1]);
    REQUIRE((size_t)ends[strings] == all->sizes[WIRE_STRING_BLOB] && (size_t)ends[strings] <= size);
    for (size_t i = 0; i < plane->stat_count; i++) {
        check_inside(plane->stats[i].name, data, size);
        REQUIRE(plane->stats[i].value.kind != WIRE_NONE && plane->stats[i].value.kind != WIRE_REF);
        if (plane->stats[i].value.kind == WIRE_BYTES)
            check_inside(plane->stats[i].value.as.bytes, data, size);
    }
}

static wire_status decode(const uint8_t *data, size_t size, size_t max_bytes, int allowed, uint64_t seed)
{
    memory all = {.allowed = allowed};
    wire_plane plane;
    wire_options options = {
        .slots = SLOTS,
        .slot_count = SLOT_COUNT,
        .max_bytes = max_bytes,
        .seed = {seed, ~seed},
        .allocate = allocate,
        .context = &all,
    };
    wire_status status = wire_decode_plane(data, size, &options, &plane);
    if (status == WIRE_OK)
        check_columns(&plane, &all, data, size);
    if (status == WIRE_MALFORMED)
        REQUIRE(plane.error_offset <= size);
    wire_release(&plane);
    for (int i = 0; i < WIRE_COLUMNS; i++)
        free(all.buffers[i]);
    return status;
}

void check_plane(const uint8_t *data, size_t size)
{
    const size_t ample = (size_t)64 << 20;
    wire_status status = decode(data, size, ample, WIRE_COLUMNS, 1);
    REQUIRE(status == WIRE_OK || status == WIRE_MALFORMED || size > ample / 32);
    if (status != WIRE_OK)
        return;
    /* What is sound stays sound with another seed; without memory it says so, and leaks nothing. */
    REQUIRE(decode(data, size, ample, WIRE_COLUMNS, 0x9e3779b97f4a7c15u) == WIRE_OK);
    REQUIRE(decode(data, size, ample, (int)(size % 11), 1) == WIRE_NO_MEMORY);
    core_allocations = size % 23;
    status = decode(data, size, ample, WIRE_COLUMNS, 1);
    core_allocations = SIZE_MAX;
    REQUIRE(status == WIRE_OK || status == WIRE_NO_MEMORY);
    status = decode(data, size, 8 * size, WIRE_COLUMNS, 1);
    REQUIRE(status == WIRE_OK || status == WIRE_TOO_MANY_EVENTS);
}
