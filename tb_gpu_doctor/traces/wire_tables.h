/* The decoder's tables: interned strings and the metadata maps.
 *
 * Their hash is keyed by a secret seed, so that no file can be prepared to make them slow. Everything
 * that can fail does so for lack of memory only.
 */
#ifndef TB_GPU_DOCTOR_WIRE_TABLES_H
#define TB_GPU_DOCTOR_WIRE_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire_core.h"

/* The array with room for one more element, NULL without memory; doubles, so that n appends cost O(n). */
void *wire_reserve(void *items, size_t count, size_t *capacity, size_t item_size);

typedef struct {
    uint32_t hash;
    int32_t id; /* -1: free */
} bucket;

/* Strings stay where they are in the plane; only at the end are they copied out. */
typedef struct {
    wire_span *items;
    size_t count;
    size_t capacity;
    bucket *buckets; /* a power of two, at most half full */
    size_t bucket_count;
} string_table;

/* Id of a string, -1 without memory. */
int32_t wire_intern(string_table *table, const uint64_t seed[2], wire_span span);

typedef struct {
    int64_t key;
    wire_span name;
    int32_t string; /* the name interned, -1 not yet */
    int32_t slot;   /* of stat metadata: the column it names, -1 none */
} metadata;

typedef struct {
    metadata *items;
    size_t count;
    size_t capacity;
    uint32_t *buckets; /* index + 1, 0 free; a power of two, at most half full */
    size_t bucket_count;
    uint32_t *direct; /* index + 1 of keys 0 .. direct_count - 1: how profilers number them */
    size_t direct_count;
} metadata_map;

/* The last entry of a key wins. */
bool wire_put_metadata(metadata_map *map, const uint64_t seed[2], int64_t key, wire_span name);

/* Makes the plain array for the small keys, where it costs no more memory than the map itself. */
bool wire_index_small_keys(metadata_map *map);

/* Where a key is, or would be. The map must hold something. */
size_t wire_metadata_bucket(const metadata_map *map, const uint64_t seed[2], int64_t key);

static inline metadata *wire_find_metadata(const metadata_map *map, const uint64_t seed[2], int64_t key)
{
    uint32_t index;
    if ((uint64_t)key < map->direct_count)
        index = map->direct[key];
    else
        index = map->bucket_count ? map->buckets[wire_metadata_bucket(map, seed, key)] : 0;
    return index ? &map->items[index - 1] : NULL;
}

#endif
