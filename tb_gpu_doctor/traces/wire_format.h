/* Reading protobuf's wire format with every length checked: a false means malformed, the cursor stands at it. */
#ifndef TB_GPU_DOCTOR_WIRE_FORMAT_H
#define TB_GPU_DOCTOR_WIRE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire_core.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

#define FIELD(number, type) ((uint32_t)(number) << 3 | (uint32_t)(type))

/* Where a span without bytes points: never NULL, on which no arithmetic is defined. */
static const uint8_t nothing = 0;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} cursor;

static inline cursor cursor_of(wire_span span)
{
    cursor c = {span.data, span.data + span.size};
    return c;
}

static inline size_t left(const cursor *c)
{
    return (size_t)(c->end - c->at);
}

/* At most 10 bytes; bits above 64 are dropped. */
static inline bool read_long_varint(cursor *c, uint64_t *value)
{
    const uint8_t *at = c->at;
    size_t limit = left(c) < 10 ? left(c) : 10;
    uint64_t result = 0;
    for (size_t i = 0; i < limit; i++) {
        uint64_t byte = at[i];
        result |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            c->at = at + i + 1;
            *value = result;
            return true;
        }
    }
    return false;
}

static inline bool read_varint(cursor *c, uint64_t *value)
{
    if (c->at < c->end && *c->at < 0x80) {
        *value = *c->at++;
        return true;
    }
    return read_long_varint(c, value);
}

static inline bool read_tag(cursor *c, uint32_t *tag)
{
    uint64_t value = 0;
    if (!read_varint(c, &value) || value < 8 || value > UINT32_MAX)
        return false;
    *tag = (uint32_t)value;
    return true;
}

static inline bool read_span(cursor *c, wire_span *span)
{
    uint64_t size = 0;
    if (!read_varint(c, &size) || size > left(c))
        return false;
    span->data = c->at;
    span->size = (size_t)size;
    c->at += size;
    return true;
}

static inline bool skip_bytes(cursor *c, size_t count)
{
    if (left(c) < count)
        return false;
    c->at += count;
    return true;
}

static inline uint64_t load_u64(const uint8_t *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 |
           (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
}

static inline bool read_double(cursor *c, double *value)
{
    if (left(c) < 8)
        return false;
    uint64_t bits = load_u64(c->at);
    memcpy(value, &bits, sizeof bits);
    c->at += 8;
    return true;
}

static inline bool skip_field(cursor *c, uint32_t tag)
{
    uint64_t ignored = 0;
    wire_span span;
    switch (tag & 7) {
    case VARINT:
        return read_varint(c, &ignored);
    case FIXED64:
        return skip_bytes(c, 8);
    case BYTES:
        return read_span(c, &span);
    case FIXED32:
        return skip_bytes(c, 4);
    default: /* groups (3, 4), and 6 and 7, which do not exist */
        return false;
    }
}

#endif
