/* One XPlane message from protobuf wire format to columns: plain C11, without Python.
 *
 * wire.py states what is decoded and what is refused; wire_numpy.py is the same decoder in numpy.
 * The core never writes outside what it was given, never recurses, and takes time and memory linear
 * in the size of its input, whatever that input holds.
 */
#ifndef TB_GPU_DOCTOR_WIRE_CORE_H
#define TB_GPU_DOCTOR_WIRE_CORE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX_SLOTS 64
/* Of max_bytes, what a line or a stat of the plane counts; wire.py's PART_BYTES. */
#define WIRE_PART_BYTES 128

typedef enum {
    WIRE_OK = 0,
    WIRE_MALFORMED,
    WIRE_TOO_MANY_EVENTS,
    WIRE_NO_MEMORY,
} wire_status;

typedef enum { WIRE_INT = 0, WIRE_FLOAT = 1, WIRE_STR = 2 } wire_slot_kind;

/* Bytes inside the plane (or inside a slot's name); never owned. */
typedef struct {
    const uint8_t *data;
    size_t size;
} wire_span;

/* A stat that becomes a column. */
typedef struct {
    wire_span name;
    wire_slot_kind kind;
} wire_slot;

/* Buffers that the caller provides, asked for when their size is known. Slot i is WIRE_FIRST_SLOT + i. */
typedef enum {
    WIRE_LINE_ID = 0,          /* int64 per line */
    WIRE_LINE_TIMESTAMP_NS,    /* int64 per line */
    WIRE_LINE_DURATION_PS,     /* int64 per line */
    WIRE_LINE_EVENTS,          /* int64 per line */
    WIRE_EVENT_LINE,           /* int32 per event */
    WIRE_EVENT_NAME,           /* int32 per event */
    WIRE_EVENT_OFFSET,         /* int64 per event */
    WIRE_EVENT_DURATION,       /* int64 per event */
    WIRE_EVENT_HAS_START,      /* uint8 per event */
    WIRE_STRING_OFFSETS,       /* int64 per string, and one more */
    WIRE_STRING_BLOB,          /* uint8 */
    WIRE_FIRST_SLOT,           /* int64, double or int32 per event */
    WIRE_COLUMNS = WIRE_FIRST_SLOT + WIRE_MAX_SLOTS,
} wire_column;

/* Returns a buffer of `size` bytes, aligned as malloc does and not yet filled; NULL when there is no memory.
 * Called once per column at most; for a slot when the first event sets it. */
typedef void *(*wire_allocate)(void *context, int column, size_t size);

typedef enum { WIRE_NONE = 0, WIRE_DOUBLE, WIRE_UINT64, WIRE_INT64, WIRE_BYTES, WIRE_REF } wire_value_kind;

/* The value of one stat; a ref is replaced by the bytes that it refers to before the caller sees it. */
typedef struct {
    wire_value_kind kind;
    union {
        double real;
        uint64_t bits;
        wire_span bytes;
    } as;
} wire_value;

typedef struct {
    int64_t metadata;
    wire_span name;
    wire_value value;
} wire_stat;

typedef struct {
    wire_span name;
    wire_span display_name;
} wire_line_names;

/* What a decoded plane holds beside its columns. `stats` and `line_names` are owned: see wire_release. */
typedef struct {
    wire_span name;
    int64_t id;
    wire_stat *stats; /* wire order, only those with a known name and a value */
    size_t stat_count;
    wire_line_names *line_names;
    size_t line_count;
    size_t event_count;
    size_t string_count;
    size_t excess;       /* how many events, or lines and stats, were too many */
    size_t error_offset; /* where malformed data was noticed */
} wire_plane;

typedef struct {
    const wire_slot *slots;
    size_t slot_count; /* at most WIRE_MAX_SLOTS */
    size_t max_bytes;  /* that the event columns may take, and so may lines and stats */
    uint64_t seed[2];  /* secret and random: keys the hash tables */
    wire_allocate allocate;
    void *context;
} wire_options;

/* Decode `size` bytes at `data`. `plane` is filled as far as known and must be released in every case. */
wire_status wire_decode_plane(const uint8_t *data, size_t size, const wire_options *options, wire_plane *plane);

void wire_release(wire_plane *plane);

#endif
