/* See wire_tables.h. */
#include "wire_tables.h"

#include <stdlib.h>
#include <string.h>

#include "wire_format.h"

/* ---- keyed hash: SipHash-1-3 ---------------------------------------------------------------------- */

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

#define SIP_ROUND                                                                                                      \
    do {                                                                                                               \
        v0 += v1, v1 = rotate(v1, 13), v1 ^= v0, v0 = rotate(v0, 32);                                                  \
        v2 += v3, v3 = rotate(v3, 16), v3 ^= v2;                                                                       \
        v0 += v3, v3 = rotate(v3, 21), v3 ^= v0;                                                                       \
        v2 += v1, v1 = rotate(v1, 17), v1 ^= v2, v2 = rotate(v2, 32);                                                  \
    } while (0)

static uint64_t hash_bytes(const uint64_t seed[2], const uint8_t *at, size_t size)
{
    uint64_t v0 = seed[0] ^ 0x736f6d6570736575u, v1 = seed[1] ^ 0x646f72616e646f6du;
    uint64_t v2 = seed[0] ^ 0x6c7967656e657261u, v3 = seed[1] ^ 0x7465646279746573u;
    uint64_t last = (uint64_t)size << 56;
    size_t tail = size & 7;
    for (const uint8_t *end = at + (size - tail); at != end; at += 8) {
        uint64_t word = load_u64(at);
        v3 ^= word;
        SIP_ROUND;
        v0 ^= word;
    }
    for (size_t i = 0; i < tail; i++)
        last |= (uint64_t)at[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

static uint64_t hash_key(const uint64_t seed[2], int64_t key)
{
    uint8_t bytes[8];
    memcpy(bytes, &key, sizeof bytes);
    return hash_bytes(seed, bytes, sizeof bytes);
}

void *wire_reserve(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return items;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted > SIZE_MAX / 2 / item_size)
        return NULL;
    void *grown = realloc(items, wanted * item_size);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

/* ---- interned strings ----------------------------------------------------------------------------- */

static bool grow_buckets(string_table *table)
{
    size_t wanted = table->bucket_count ? table->bucket_count * 2 : 256;
    if (wanted > SIZE_MAX / 2 / sizeof(bucket))
        return false;
    bucket *fresh = malloc(wanted * sizeof *fresh);
    if (fresh == NULL)
        return false;
    memset(fresh, 0xff, wanted * sizeof *fresh);
    /* 32 bits of hash place the strings: beyond 2**32 buckets there are none. */
    for (size_t i = 0; i < table->bucket_count; i++) {
        if (table->buckets[i].id < 0)
            continue;
        size_t slot = table->buckets[i].hash & (wanted - 1);
        while (fresh[slot].id >= 0)
            slot = (slot + 1) & (wanted - 1);
        fresh[slot] = table->buckets[i];
    }
    free(table->buckets);
    table->buckets = fresh;
    table->bucket_count = wanted;
    return true;
}

int32_t wire_intern(string_table *table, const uint64_t seed[2], wire_span span)
{
    if (table->count * 2 >= table->bucket_count && !grow_buckets(table))
        return -1;
    uint32_t hash = (uint32_t)hash_bytes(seed, span.data, span.size);
    size_t slot = hash & (table->bucket_count - 1);
    for (; table->buckets[slot].id >= 0; slot = (slot + 1) & (table->bucket_count - 1)) {
        if (table->buckets[slot].hash != hash)
            continue;
        wire_span known = table->items[table->buckets[slot].id];
        if (known.size == span.size && memcmp(known.data, span.data, span.size) == 0)
            return table->buckets[slot].id;
    }
    if (table->count >= INT32_MAX)
        return -1;
    wire_span *items = wire_reserve(table->items, table->count, &table->capacity, sizeof *items);
    if (items == NULL)
        return -1;
    table->items = items;
    items[table->count] = span;
    table->buckets[slot].hash = hash;
    table->buckets[slot].id = (int32_t)table->count;
    return (int32_t)table->count++;
}

/* ---- metadata maps -------------------------------------------------------------------------------- */

size_t wire_metadata_bucket(const metadata_map *map, const uint64_t seed[2], int64_t key)
{
    size_t slot = (size_t)hash_key(seed, key) & (map->bucket_count - 1);
    while (map->buckets[slot] != 0 && map->items[map->buckets[slot] - 1].key != key)
        slot = (slot + 1) & (map->bucket_count - 1);
    return slot;
}

static bool grow_map(metadata_map *map, const uint64_t seed[2])
{
    size_t wanted = map->bucket_count ? map->bucket_count * 2 : 64;
    if (wanted > SIZE_MAX / 2 / sizeof *map->buckets)
        return false;
    uint32_t *fresh = calloc(wanted, sizeof *fresh);
    if (fresh == NULL)
        return false;
    free(map->buckets);
    map->buckets = fresh;
    map->bucket_count = wanted;
    for (size_t i = 0; i < map->count; i++)
        map->buckets[wire_metadata_bucket(map, seed, map->items[i].key)] = (uint32_t)(i + 1);
    return true;
}

bool wire_put_metadata(metadata_map *map, const uint64_t seed[2], int64_t key, wire_span name)
{
    if (map->count * 2 >= map->bucket_count && !grow_map(map, seed))
        return false;
    size_t slot = wire_metadata_bucket(map, seed, key);
    if (map->buckets[slot] != 0) {
        map->items[map->buckets[slot] - 1].name = name;
        return true;
    }
    if (map->count >= UINT32_MAX - 1)
        return false;
    metadata *items = wire_reserve(map->items, map->count, &map->capacity, sizeof *items);
    if (items == NULL)
        return false;
    map->items = items;
    metadata entry = {key, name, -1, -1};
    items[map->count++] = entry;
    map->buckets[slot] = (uint32_t)map->count;
    return true;
}

bool wire_index_small_keys(metadata_map *map)
{
    uint64_t limit = 4 * (uint64_t)map->count + 64, size = 0;
    for (size_t i = 0; i < map->count; i++) {
        uint64_t key = (uint64_t)map->items[i].key;
        if (key < limit && key >= size)
            size = key + 1;
    }
    if (size == 0)
        return true;
    map->direct = calloc((size_t)size, sizeof *map->direct);
    if (map->direct == NULL)
        return false;
    map->direct_count = (size_t)size;
    for (size_t i = 0; i < map->count; i++)
        if ((uint64_t)map->items[i].key < size)
            map->direct[map->items[i].key] = (uint32_t)(i + 1);
    return true;
}
