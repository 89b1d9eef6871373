/* A fuzzer of its own, for machines with gcc but without libFuzzer.
 *
 *   driver SECONDS SEED FILE...
 *
 * Replays the files, then feeds mutations of them until the time is over. The input that ends the process
 * is left as `crash-input` in the working directory.
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SIZE = 1 << 16 };

typedef struct {
    uint8_t *data;
    size_t size;
} input;

static uint64_t state;

/* xorshift64*: the same mutations for the same seed. */
static uint64_t draw(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(draw() >> 16) % limit : 0;
}

static bool load(const char *path, input *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    out->data = malloc(MAX_SIZE);
    out->size = out->data ? fread(out->data, 1, MAX_SIZE, file) : 0;
    fclose(file);
    return out->data != NULL;
}

static const uint8_t *tried;
static size_t tried_size;

static void keep_input(void)
{
    FILE *file = fopen("crash-input", "wb");
    if (file != NULL) {
        fwrite(tried, 1, tried_size, file);
        fclose(file);
        fprintf(stderr, "the input was kept as crash-input\n");
    }
}

static void on_abort(int number)
{
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

/* Of the sanitizers' runtime; a finding of theirs does not abort. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* The decoder sees a block of exactly this size: reading past it is caught. */
static void try_input(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (exact == NULL)
        return;
    memcpy(exact, data, size);
    tried = data;
    tried_size = size;
    check_plane(exact, size);
    free(exact);
}

static size_t mutate(uint8_t *out, size_t size, const input *inputs, size_t count)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x08, 0x12, 0x1a, 0x22, 0x2a, 0x32, 0x7f, 0x80, 0xff};
    for (size_t rounds = 1 + below(6); rounds > 0; rounds--) {
        size_t at = below(size + 1), length = 1 + below(16);
        const input *other = &inputs[below(count)];
        switch (below(7)) {
        case 0:
            if (at < size)
                out[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            if (at < size)
                out[at] = edges[below(sizeof edges)];
            break;
        case 2:
            if (at < size)
                out[at] = (uint8_t)draw();
            break;
        case 3: /* cut the end off */
            size = at;
            break;
        case 4: /* cut a piece out */
            if (length > size - at)
                length = size - at;
            memmove(out + at, out + at + length, size - at - length);
            size -= length;
            break;
        case 5: /* insert anything */
            if (size + length > MAX_SIZE)
                break;
            memmove(out + at + length, out + at, size - at);
            for (size_t i = 0; i < length; i++)
                out[at + i] = (uint8_t)draw();
            size += length;
            break;
        default: /* write a piece of another input over it */
            if (other->size == 0)
                break;
            length = 1 + below(other->size < 64 ? other->size : 64);
            if (at + length > size)
                length = size - at;
            memcpy(out + at, other->data + below(other->size - length + 1), length);
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s SECONDS SEED FILE...\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(keep_input);
    double seconds = atof(argv[1]);
    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    size_t count = 0;
    input *inputs = calloc((size_t)(argc - 3), sizeof *inputs);
    uint8_t *scratch = malloc(MAX_SIZE);
    if (inputs == NULL || scratch == NULL)
        return 2;
    for (int i = 3; i < argc; i++) {
        if (!load(argv[i], &inputs[count])) {
            fprintf(stderr, "cannot read %s\n", argv[i]);
            return 2;
        }
        try_input(inputs[count].data, inputs[count].size);
        count++;
    }
    unsigned long long runs = 0;
    time_t start = time(NULL);
    while (difftime(time(NULL), start) < seconds) {
        for (int i = 0; i < 256; i++, runs++) {
            const input *source = &inputs[below(count)];
            memcpy(scratch, source->data, source->size);
            try_input(scratch, mutate(scratch, source->size, inputs, count));
        }
    }
    printf("%zu files replayed, %llu mutations tried\n", count, runs);
    for (size_t i = 0; i < count; i++)
        free(inputs[i].data);
    free(inputs);
    free(scratch);
    return 0;
}
