/* See wire_core.h. Metadata are indexed first, then events counted, then columns of the right size filled. */
#include "wire_core.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "wire_format.h"
#include "wire_tables.h"

typedef struct {
    const uint8_t *base;
    const wire_options *options;
    wire_plane *plane;
    wire_status status;
    metadata_map event_metadata;
    metadata_map stat_metadata;
    string_table strings;
    size_t stat_capacity;
    int64_t *line_id, *line_timestamp, *line_duration, *line_events;
    int32_t *event_line, *event_name;
    int64_t *event_offset, *event_duration;
    uint8_t *event_has_start;
    void *slots[WIRE_MAX_SLOTS];
    size_t row; /* the next event */
} decoder;

/* All of these return false once the decoder's status says why. */
static bool malformed(decoder *d, const cursor *c)
{
    if (d->status == WIRE_OK) {
        d->status = WIRE_MALFORMED;
        d->plane->error_offset = (size_t)(c->at - d->base);
    }
    return false;
}

static bool no_memory(decoder *d)
{
    if (d->status == WIRE_OK)
        d->status = WIRE_NO_MEMORY;
    return false;
}

static bool too_many(decoder *d, size_t count)
{
    if (d->status == WIRE_OK) {
        d->status = WIRE_TOO_MANY_EVENTS;
        d->plane->excess = count;
    }
    return false;
}

/* Both kinds of metadata have their name in field 2. Repeated values of one entry merge: the last name wins. */
static bool read_metadata_name(decoder *d, wire_span value, wire_span *name)
{
    cursor c = cursor_of(value);
    while (c.at < c.end) {
        uint32_t tag = 0;
        bool good = read_tag(&c, &tag);
        if (good)
            good = tag == FIELD(2, BYTES) ? read_span(&c, name) : skip_field(&c, tag);
        if (!good)
            return malformed(d, &c);
    }
    return true;
}

static bool read_map_entry(decoder *d, wire_span entry, metadata_map *map)
{
    cursor c = cursor_of(entry);
    uint64_t key = 0;
    wire_span name = {&nothing, 0};
    while (c.at < c.end) {
        uint32_t tag = 0;
        wire_span value;
        if (!read_tag(&c, &tag))
            return malformed(d, &c);
        if (tag == FIELD(1, VARINT)) {
            if (!read_varint(&c, &key))
                return malformed(d, &c);
        } else if (tag == FIELD(2, BYTES)) {
            if (!read_span(&c, &value))
                return malformed(d, &c);
            if (!read_metadata_name(d, value, &name))
                return false;
        } else if (!skip_field(&c, tag)) {
            return malformed(d, &c);
        }
    }
    return wire_put_metadata(map, d->options->seed, (int64_t)key, name) || no_memory(d);
}

/* The values of a stat are one oneof: the last in wire order counts. */
static inline bool read_stat(decoder *d, wire_span body, int64_t *metadata_id, wire_value *value)
{
    cursor c = cursor_of(body);
    uint64_t id = 0;
    value->kind = WIRE_NONE;
    while (c.at < c.end) {
        uint32_t tag = 0;
        bool good = read_tag(&c, &tag);
        if (!good)
            return malformed(d, &c);
        switch (tag) {
        case FIELD(1, VARINT):
            good = read_varint(&c, &id);
            break;
        case FIELD(2, FIXED64):
            value->kind = WIRE_DOUBLE;
            good = read_double(&c, &value->as.real);
            break;
        case FIELD(3, VARINT):
            value->kind = WIRE_UINT64;
            good = read_varint(&c, &value->as.bits);
            break;
        case FIELD(4, VARINT):
            value->kind = WIRE_INT64;
            good = read_varint(&c, &value->as.bits);
            break;
        case FIELD(5, BYTES):
        case FIELD(6, BYTES):
            value->kind = WIRE_BYTES;
            good = read_span(&c, &value->as.bytes);
            break;
        case FIELD(7, VARINT):
            value->kind = WIRE_REF;
            good = read_varint(&c, &value->as.bits);
            break;
        default:
            good = skip_field(&c, tag);
        }
        if (!good)
            return malformed(d, &c);
    }
    *metadata_id = (int64_t)id;
    return true;
}

/* Counts the events of a line without looking into them. */
static bool count_events(decoder *d, wire_span line)
{
    cursor c = cursor_of(line);
    while (c.at < c.end) {
        uint32_t tag = 0;
        if (!read_tag(&c, &tag) || !skip_field(&c, tag))
            return malformed(d, &c);
        d->plane->event_count += tag == FIELD(4, BYTES);
    }
    return true;
}

static bool index_plane_stat(decoder *d, wire_span body)
{
    wire_plane *plane = d->plane;
    wire_stat stat = {0, {NULL, 0}, {WIRE_NONE, {0}}};
    if (!read_stat(d, body, &stat.metadata, &stat.value))
        return false;
    if (stat.value.kind == WIRE_NONE)
        return true;
    wire_stat *stats = wire_reserve(plane->stats, plane->stat_count, &d->stat_capacity, sizeof *stats);
    if (stats == NULL)
        return no_memory(d);
    plane->stats = stats;
    stats[plane->stat_count++] = stat;
    return true;
}

/* First pass: the metadata, and how many lines and stats there are; metadata stand behind the lines. */
static bool index_plane(decoder *d, wire_span body)
{
    cursor c = cursor_of(body);
    const size_t most_parts = d->options->max_bytes / WIRE_PART_BYTES;
    size_t parts = 0;
    while (c.at < c.end) {
        uint32_t tag = 0;
        uint64_t number = 0;
        wire_span span = {NULL, 0};
        if (!read_tag(&c, &tag))
            return malformed(d, &c);
        switch (tag) {
        case FIELD(1, VARINT):
            if (!read_varint(&c, &number))
                return malformed(d, &c);
            d->plane->id = (int64_t)number;
            break;
        case FIELD(2, BYTES):
            if (!read_span(&c, &d->plane->name))
                return malformed(d, &c);
            break;
        case FIELD(3, BYTES):
        case FIELD(6, BYTES):
            if (!read_span(&c, &span))
                return malformed(d, &c);
            if (++parts > most_parts)
                return too_many(d, parts);
            d->plane->line_count += tag == FIELD(3, BYTES);
            break;
        case FIELD(4, BYTES):
        case FIELD(5, BYTES):
            if (!read_span(&c, &span))
                return malformed(d, &c);
            if (!read_map_entry(d, span, tag == FIELD(4, BYTES) ? &d->event_metadata : &d->stat_metadata))
                return false;
            break;
        default:
            if (!skip_field(&c, tag))
                return malformed(d, &c);
        }
    }
    return true;
}

/* Second pass, over what the first found sound: reads the plane's stats and counts the events. */
static bool index_parts(decoder *d, wire_span body)
{
    cursor c = cursor_of(body);
    while (c.at < c.end) {
        uint32_t tag = 0;
        wire_span span;
        if (!read_tag(&c, &tag))
            return malformed(d, &c);
        if (tag != FIELD(3, BYTES) && tag != FIELD(6, BYTES)) {
            if (!skip_field(&c, tag))
                return malformed(d, &c);
            continue;
        }
        if (!read_span(&c, &span))
            return malformed(d, &c);
        if (!(tag == FIELD(3, BYTES) ? count_events(d, span) : index_plane_stat(d, span)))
            return false;
    }
    return true;
}

static size_t slot_width(wire_slot_kind kind)
{
    return kind == WIRE_STR ? sizeof(int32_t) : sizeof(int64_t);
}

/* Finds which stat metadata name a slot; returns the bytes that one event's row may take. */
static size_t match_slots(decoder *d)
{
    const wire_options *options = d->options;
    bool named[WIRE_MAX_SLOTS] = {false};
    size_t row_bytes = sizeof(int32_t) * 2 + sizeof(int64_t) * 2 + 1;
    for (size_t i = 0; i < d->stat_metadata.count; i++) {
        metadata *entry = &d->stat_metadata.items[i];
        for (size_t s = 0; s < options->slot_count; s++) {
            wire_span name = options->slots[s].name;
            if (name.size != entry->name.size || memcmp(name.data, entry->name.data, name.size) != 0)
                continue;
            entry->slot = (int32_t)s;
            if (!named[s])
                row_bytes += slot_width(options->slots[s].kind);
            named[s] = true;
            break;
        }
    }
    return row_bytes;
}

/* Keeps the plane's stats that have a name, and replaces refs by what they refer to. */
static void resolve_plane_stats(decoder *d)
{
    wire_plane *plane = d->plane;
    size_t kept = 0;
    for (size_t i = 0; i < plane->stat_count; i++) {
        wire_stat stat = plane->stats[i];
        const metadata *known = wire_find_metadata(&d->stat_metadata, d->options->seed, stat.metadata);
        if (known == NULL)
            continue;
        stat.name = known->name;
        if (stat.value.kind == WIRE_REF) {
            const metadata *target =
                wire_find_metadata(&d->stat_metadata, d->options->seed, (int64_t)stat.value.as.bits);
            if (target == NULL)
                continue;
            stat.value.kind = WIRE_BYTES;
            stat.value.as.bytes = target->name;
        }
        plane->stats[kept++] = stat;
    }
    plane->stat_count = kept;
}

static void *column(decoder *d, int which, size_t count, size_t width)
{
    if (count > SIZE_MAX / width)
        return NULL;
    return d->options->allocate(d->options->context, which, count * width);
}

static bool allocate_columns(decoder *d)
{
    wire_plane *plane = d->plane;
    size_t lines = plane->line_count, rows = plane->event_count;
    /* calloc(0) may be NULL */
    plane->line_names = calloc(lines ? lines : 1, sizeof *plane->line_names);
    if (plane->line_names == NULL || (d->line_id = column(d, WIRE_LINE_ID, lines, 8)) == NULL ||
        (d->line_timestamp = column(d, WIRE_LINE_TIMESTAMP_NS, lines, 8)) == NULL ||
        (d->line_duration = column(d, WIRE_LINE_DURATION_PS, lines, 8)) == NULL ||
        (d->line_events = column(d, WIRE_LINE_EVENTS, lines, 8)) == NULL ||
        (d->event_line = column(d, WIRE_EVENT_LINE, rows, 4)) == NULL ||
        (d->event_name = column(d, WIRE_EVENT_NAME, rows, 4)) == NULL ||
        (d->event_offset = column(d, WIRE_EVENT_OFFSET, rows, 8)) == NULL ||
        (d->event_duration = column(d, WIRE_EVENT_DURATION, rows, 8)) == NULL ||
        (d->event_has_start = column(d, WIRE_EVENT_HAS_START, rows, 1)) == NULL)
        return no_memory(d);
    return true;
}

/* The column of a slot, allocated when an event first sets it: 0xff.. is -1 in integers and NaN in doubles. */
static inline void *slot_column(decoder *d, int32_t slot)
{
    if (d->slots[slot] == NULL) {
        size_t width = slot_width(d->options->slots[slot].kind), rows = d->plane->event_count;
        d->slots[slot] = column(d, WIRE_FIRST_SLOT + slot, rows, width);
        if (d->slots[slot] != NULL)
            memset(d->slots[slot], 0xff, rows * width);
    }
    return d->slots[slot];
}

/* The id of a metadata's name. */
static inline bool name_string(decoder *d, metadata *entry, int32_t *id)
{
    if (entry->string < 0)
        entry->string = wire_intern(&d->strings, d->options->seed, entry->name);
    *id = entry->string;
    return entry->string >= 0 || no_memory(d);
}

static bool set_int(decoder *d, int32_t slot, const wire_value *value)
{
    int64_t number;
    if (value->kind == WIRE_UINT64 || value->kind == WIRE_INT64)
        number = (int64_t)value->as.bits;
    else if (value->kind == WIRE_DOUBLE && value->as.real >= -0x1p63 && value->as.real < 0x1p63)
        number = (int64_t)value->as.real;
    else
        return true;
    int64_t *cells = slot_column(d, slot);
    if (cells == NULL)
        return no_memory(d);
    cells[d->row] = number;
    return true;
}

static bool set_float(decoder *d, int32_t slot, const wire_value *value)
{
    double number;
    if (value->kind == WIRE_DOUBLE)
        number = value->as.real;
    else if (value->kind == WIRE_UINT64)
        number = (double)value->as.bits;
    else if (value->kind == WIRE_INT64)
        number = (double)(int64_t)value->as.bits;
    else
        return true;
    double *cells = slot_column(d, slot);
    if (cells == NULL)
        return no_memory(d);
    cells[d->row] = number;
    return true;
}

static bool set_string(decoder *d, int32_t slot, const wire_value *value)
{
    int32_t id = -1;
    if (value->kind == WIRE_BYTES) {
        id = wire_intern(&d->strings, d->options->seed, value->as.bytes);
        if (id < 0)
            return no_memory(d);
    } else if (value->kind == WIRE_REF) {
        metadata *target = wire_find_metadata(&d->stat_metadata, d->options->seed, (int64_t)value->as.bits);
        if (target == NULL)
            return true;
        if (!name_string(d, target, &id))
            return false;
    } else {
        return true;
    }
    int32_t *cells = slot_column(d, slot);
    if (cells == NULL)
        return no_memory(d);
    cells[d->row] = id;
    return true;
}

static inline bool decode_event_stat(decoder *d, wire_span body)
{
    int64_t id = 0;
    wire_value value;
    if (!read_stat(d, body, &id, &value))
        return false;
    const metadata *known = wire_find_metadata(&d->stat_metadata, d->options->seed, id);
    if (known == NULL || known->slot < 0)
        return true;
    switch (d->options->slots[known->slot].kind) {
    case WIRE_INT:
        return set_int(d, known->slot, &value);
    case WIRE_FLOAT:
        return set_float(d, known->slot, &value);
    default:
        return set_string(d, known->slot, &value);
    }
}

static bool decode_event(decoder *d, wire_span body, int32_t line)
{
    cursor c = cursor_of(body);
    uint64_t id = 0, offset = 0, duration = 0, ignored = 0;
    uint8_t has_start = 1;
    int32_t name = -1;
    while (c.at < c.end) {
        uint32_t tag = 0;
        wire_span stat;
        bool good = read_tag(&c, &tag);
        if (!good)
            return malformed(d, &c);
        switch (tag) {
        case FIELD(1, VARINT):
            good = read_varint(&c, &id);
            break;
        case FIELD(2, VARINT): /* one oneof with field 5: the last of the two counts */
            good = read_varint(&c, &offset);
            has_start = 1;
            break;
        case FIELD(3, VARINT):
            good = read_varint(&c, &duration);
            break;
        case FIELD(4, BYTES):
            good = read_span(&c, &stat);
            if (good && !decode_event_stat(d, stat))
                return false;
            break;
        case FIELD(5, VARINT):
            good = read_varint(&c, &ignored);
            has_start = 0;
            break;
        default:
            good = skip_field(&c, tag);
        }
        if (!good)
            return malformed(d, &c);
    }
    metadata *known = wire_find_metadata(&d->event_metadata, d->options->seed, (int64_t)id);
    if (known != NULL && !name_string(d, known, &name))
        return false;
    d->event_line[d->row] = line;
    d->event_name[d->row] = name;
    d->event_offset[d->row] = has_start ? (int64_t)offset : 0;
    d->event_duration[d->row] = (int64_t)duration;
    d->event_has_start[d->row] = has_start;
    d->row++;
    return true;
}

static bool decode_line(decoder *d, wire_span body, size_t line)
{
    cursor c = cursor_of(body);
    uint64_t id = 0, timestamp = 0, duration = 0;
    size_t first = d->row;
    wire_line_names *names = &d->plane->line_names[line];
    while (c.at < c.end) {
        uint32_t tag = 0;
        wire_span event;
        bool good = read_tag(&c, &tag);
        if (!good)
            return malformed(d, &c);
        switch (tag) {
        case FIELD(1, VARINT):
            good = read_varint(&c, &id);
            break;
        case FIELD(2, BYTES):
            good = read_span(&c, &names->name);
            break;
        case FIELD(3, VARINT):
            good = read_varint(&c, &timestamp);
            break;
        case FIELD(4, BYTES):
            good = read_span(&c, &event);
            if (good && !decode_event(d, event, (int32_t)line))
                return false;
            break;
        case FIELD(9, VARINT):
            good = read_varint(&c, &duration);
            break;
        case FIELD(11, BYTES):
            good = read_span(&c, &names->display_name);
            break;
        default:
            good = skip_field(&c, tag);
        }
        if (!good)
            return malformed(d, &c);
    }
    d->line_id[line] = (int64_t)id;
    d->line_timestamp[line] = (int64_t)timestamp;
    d->line_duration[line] = (int64_t)duration;
    d->line_events[line] = (int64_t)(d->row - first);
    return true;
}

/* Third pass: the lines and their events. */
static bool decode_lines(decoder *d, wire_span body)
{
    cursor c = cursor_of(body);
    size_t line = 0;
    while (c.at < c.end) {
        uint32_t tag = 0;
        wire_span span;
        if (!read_tag(&c, &tag))
            return malformed(d, &c);
        if (tag != FIELD(3, BYTES)) {
            if (!skip_field(&c, tag))
                return malformed(d, &c);
            continue;
        }
        if (!read_span(&c, &span))
            return malformed(d, &c);
        if (!decode_line(d, span, line++))
            return false;
    }
    return true;
}

static bool copy_strings(decoder *d)
{
    size_t count = d->strings.count, total = 0;
    int64_t *offsets = column(d, WIRE_STRING_OFFSETS, count + 1, 8);
    if (offsets == NULL)
        return no_memory(d);
    for (size_t i = 0; i < count; i++) {
        offsets[i] = (int64_t)total;
        total += d->strings.items[i].size; /* distinct parts of the plane: no overflow */
    }
    offsets[count] = (int64_t)total;
    uint8_t *blob = column(d, WIRE_STRING_BLOB, total, 1);
    if (blob == NULL)
        return no_memory(d);
    for (size_t i = 0; i < count; i++)
        memcpy(blob + offsets[i], d->strings.items[i].data, d->strings.items[i].size);
    d->plane->string_count = count;
    return true;
}

static bool decode(decoder *d, wire_span body)
{
    if (!index_plane(d, body) || !index_parts(d, body))
        return false;
    if (d->plane->event_count > d->options->max_bytes / match_slots(d))
        return too_many(d, d->plane->event_count);
    if (d->plane->line_count > INT32_MAX) /* lines are numbered by 32 bits */
        return too_many(d, d->plane->line_count);
    if (!wire_index_small_keys(&d->event_metadata) || !wire_index_small_keys(&d->stat_metadata))
        return no_memory(d);
    resolve_plane_stats(d);
    return allocate_columns(d) && decode_lines(d, body) && copy_strings(d);
}

wire_status wire_decode_plane(const uint8_t *data, size_t size, const wire_options *options, wire_plane *plane)
{
    decoder d = {.base = size ? data : &nothing, .options = options, .plane = plane, .status = WIRE_OK};
    wire_span body = {d.base, size};
    memset(plane, 0, sizeof *plane);
    plane->name.data = &nothing;
    decode(&d, body);
    free(d.event_metadata.items);
    free(d.event_metadata.buckets);
    free(d.event_metadata.direct);
    free(d.stat_metadata.items);
    free(d.stat_metadata.buckets);
    free(d.stat_metadata.direct);
    free(d.strings.items);
    free(d.strings.buckets);
    return d.status;
}

void wire_release(wire_plane *plane)
{
    free(plane->stats);
    free(plane->line_names);
    plane->stats = NULL;
    plane->line_names = NULL;
}
