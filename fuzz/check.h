/* What every run of the decoder must hold, whatever the input: shared by the libFuzzer target and the driver. */
#ifndef TB_GPU_DOCTOR_FUZZ_CHECK_H
#define TB_GPU_DOCTOR_FUZZ_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Decodes once with ample memory, once with each of a few allocations failing; aborts when something is wrong. */
void check_plane(const uint8_t *data, size_t size);

#endif
