/* A stand-in for NVIDIA's libnvidia-ml.so.1 that plays a scenario: what each GPU answers at which time.
 *
 * The scenario is a text file named by NVML_STUB_SCENARIO, read at every nvmlInit; __init__.py describes its
 * lines. Without one there is no driver. Time is seconds since the first nvmlInit, or what nvmlStubSetTime
 * was told. With -DNVML_STUB_OLD the library lacks the functions that drivers before 510 lacked.
 *
 * Only what the monitor asks for is here. Return codes, structures and names are NVML's public interface.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
};

#define MOST_GPUS 64
#define MOST_POINTS 4096
#define MOST_MIG 8
#define MOST_PROCESSES 16
#define MOST_XIDS 16

/* Values over time, one row a key. */
enum {
    UTILIZATION, MEMORY_UTILIZATION, MEMORY_TOTAL, MEMORY_RESERVED, MEMORY_USED, POWER, POWER_LIMIT, TEMPERATURE,
    MEMORY_TEMPERATURE, SM_CLOCK, MEMORY_CLOCK, REASONS, ENERGY, FAN, REPLAYS, PCIE_RX, PCIE_TX, PCIE_GENERATION,
    PCIE_WIDTH, NVLINK_RX, NVLINK_TX, ECC_CORRECTED, ECC_UNCORRECTED, SM_CLOCK_MAX, MEMORY_CLOCK_MAX,
    SHUTDOWN_TEMPERATURE, SLOWDOWN_TEMPERATURE, MEMORY_MAX_TEMPERATURE, GPU_MAX_TEMPERATURE, POWER_DEFAULT,
    POWER_MIN, POWER_MAX, PCIE_GENERATION_MAX, PCIE_WIDTH_MAX, CORES, PERSISTENCE, LINKS, PROCESSES, KEYS,
};

static const char *const KEY_NAMES[KEYS] = {
    "utilization", "memory_utilization", "memory_total", "memory_reserved", "memory_used", "power", "power_limit",
    "temperature", "memory_temperature", "sm_clock", "memory_clock", "reasons", "energy", "fan", "replays", "pcie_rx",
    "pcie_tx", "pcie_generation", "pcie_width", "nvlink_rx", "nvlink_tx", "ecc_corrected", "ecc_uncorrected",
    "sm_clock_max", "memory_clock_max", "shutdown_temperature", "slowdown_temperature", "memory_max_temperature",
    "gpu_max_temperature", "power_default", "power_min", "power_max", "pcie_generation_max", "pcie_width_max", "cores",
    "persistence", "links", "processes",
};

/* Bits and states hold their value until the next point; everything else runs straight to it. */
static int holds(int key) {
    return key == REASONS || key == PCIE_GENERATION || key == PCIE_WIDTH || key == POWER_LIMIT;
}

typedef struct {
    int count;
    double *time, *value;
} Series;

typedef struct {
    unsigned pid; /* 0 is the process that asks */
    double memory, from, until;
} Process;

struct Gpu;
typedef struct {
    struct Gpu *board;
    int number;
    char uuid[96];
} Mig;

typedef struct Gpu {
    Series series[KEYS];
    int failure[KEYS];
    double failure_from[KEYS], failure_until[KEYS];
    int index;
    char name[96], uuid[96];
    double lost_at;
    int migs;
    Mig mig[MOST_MIG];
    Process process[MOST_PROCESSES];
    int processes;
    struct { unsigned number; double at; } xid[MOST_XIDS];
    int xids, xids_told, watched; /* events are told once, and only of GPUs that somebody registered */
} Gpu;

static struct {
    Gpu gpu[MOST_GPUS];
    int gpus;
    char driver[80];
    int cuda;
    int init_failure;
    double gone_from, gone_until, hang_from, hang_until;
    int gone_failure;
    double delay_ms;
    int initialised, generation_lost;
} S;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double set_time = -1, start_time = -1;
static unsigned long long calls;

static double now(void) {
    if (set_time >= 0) return set_time;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double seconds = t.tv_sec + t.tv_nsec * 1e-9;
    if (start_time < 0) start_time = seconds;
    return seconds - start_time;
}

void nvmlStubSetTime(double seconds) { set_time = seconds; }
unsigned long long nvmlStubCalls(void) { return calls; }

static double at(const Series *s, int key, double t) {
    if (!s->count) return NAN;
    if (t <= s->time[0]) return s->value[0];
    int low = 0, high = s->count - 1;
    if (t >= s->time[high]) return s->value[high];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s->time[middle] <= t) low = middle;
        else high = middle;
    }
    if (holds(key)) return s->value[low];
    double part = (t - s->time[low]) / (s->time[high] - s->time[low]);
    return s->value[low] + part * (s->value[high] - s->value[low]);
}

/* Joules drawn by t: the area below the power. */
static double energy(const Series *power, double t) {
    double sum = 0, last_time = 0, last = at(power, POWER, 0);
    for (int i = 0; i < power->count && power->time[i] < t; i++) {
        if (power->time[i] <= 0) continue;
        sum += (power->time[i] - last_time) * (last + power->value[i]) / 2;
        last_time = power->time[i], last = power->value[i];
    }
    return sum + (t - last_time) * (last + at(power, POWER, t)) / 2;
}

static int code_of(const char *name) {
    static const struct { const char *name; int code; } CODES[] = {
        {"SUCCESS", 0}, {"UNINITIALIZED", 1}, {"INVALID_ARGUMENT", 2}, {"NOT_SUPPORTED", 3}, {"NO_PERMISSION", 4}, {"NOT_FOUND", 6},
        {"DRIVER_NOT_LOADED", 9}, {"TIMEOUT", 10}, {"FUNCTION_NOT_FOUND", 13}, {"GPU_IS_LOST", 15},
        {"RESET_REQUIRED", 16}, {"OPERATING_SYSTEM", 17}, {"LIB_RM_VERSION_MISMATCH", 18}, {"UNKNOWN", 999},
    };
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++)
        if (!strcmp(CODES[i].name, name)) return CODES[i].code;
    return 999;
}

static int key_of(const char *name) {
    for (int key = 0; key < KEYS; key++)
        if (!strcmp(KEY_NAMES[key], name)) return key;
    return -1;
}

static void put(Gpu *gpu, int key, const char *points) {
    Series *s = &gpu->series[key];
    s->count = 0;
    if (!s->time) s->time = malloc(MOST_POINTS * sizeof(double)), s->value = malloc(MOST_POINTS * sizeof(double));
    while (*points && s->count < MOST_POINTS) {
        char *end;
        double first = strtod(points, &end);
        if (end == points) break;
        if (*end == ':') s->time[s->count] = first, s->value[s->count] = strtod(end + 1, &end);
        else s->time[s->count] = 0, s->value[s->count] = first;
        s->count++;
        for (points = end; *points == ' ' || *points == '\t'; points++);
    }
}

static void gpu_line(Gpu *gpu, const char *key, const char *rest) {
    char code[64] = "", other[64] = "";
    double from = 0, until = 1e300;
    int known = key_of(key);
    if (known >= 0) put(gpu, known, rest);
    else if (!strcmp(key, "name")) snprintf(gpu->name, sizeof gpu->name, "%s", rest);
    else if (!strcmp(key, "uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", rest);
    else if (!strcmp(key, "lost")) gpu->lost_at = atof(rest);
    else if (!strcmp(key, "xid") && gpu->xids < MOST_XIDS) {
        if (sscanf(rest, "%u %lf", &gpu->xid[gpu->xids].number, &gpu->xid[gpu->xids].at) == 2) gpu->xids++;
    }
    else if (!strcmp(key, "fail") && sscanf(rest, "%63s %63s %lf %lf", other, code, &from, &until) >= 2) {
        known = key_of(other);
        if (known >= 0)
            gpu->failure[known] = code_of(code), gpu->failure_from[known] = from, gpu->failure_until[known] = until;
    } else if (!strcmp(key, "mig")) {
        gpu->migs = atoi(rest) > MOST_MIG ? MOST_MIG : atoi(rest);
        for (int i = 0; i < gpu->migs; i++) {
            gpu->mig[i].board = gpu, gpu->mig[i].number = i;
            snprintf(gpu->mig[i].uuid, sizeof gpu->mig[i].uuid, "MIG-%08x-0000-0000-0000-%012x", gpu->index, i + 1);
        }
    } else if (!strcmp(key, "process") && gpu->processes < MOST_PROCESSES) {
        Process *p = &gpu->process[gpu->processes];
        p->from = 0, p->until = 1e300, p->memory = 0;
        if (sscanf(rest, "%63s %lf %lf %lf", other, &p->memory, &p->from, &p->until) >= 1) {
            p->pid = strcmp(other, "self") ? (unsigned)atoi(other) : 0;
            gpu->processes++;
        }
    }
}

static void defaults(Gpu *gpu, int index) {
    static const struct { int key; double value; } VALUES[] = {
        {UTILIZATION, 0}, {MEMORY_UTILIZATION, 0}, {MEMORY_TOTAL, 80e9}, {MEMORY_RESERVED, 600e6}, {MEMORY_USED, 500e6},
        {POWER, 70}, {POWER_LIMIT, 700}, {TEMPERATURE, 35}, {MEMORY_TEMPERATURE, 40}, {SM_CLOCK, 1980},
        {MEMORY_CLOCK, 2619}, {REASONS, 1}, {REPLAYS, 0}, {PCIE_RX, 0}, {PCIE_TX, 0}, {PCIE_GENERATION, 5},
        {PCIE_WIDTH, 16}, {NVLINK_RX, 0}, {NVLINK_TX, 0}, {ECC_CORRECTED, 0}, {ECC_UNCORRECTED, 0},
        {SM_CLOCK_MAX, 1980}, {MEMORY_CLOCK_MAX, 2619}, {SHUTDOWN_TEMPERATURE, 92}, {SLOWDOWN_TEMPERATURE, 89},
        {MEMORY_MAX_TEMPERATURE, 95}, {GPU_MAX_TEMPERATURE, 87}, {POWER_DEFAULT, 700}, {POWER_MIN, 200},
        {POWER_MAX, 700}, {PCIE_GENERATION_MAX, 5}, {PCIE_WIDTH_MAX, 16}, {CORES, 16896}, {PERSISTENCE, 1},
        {LINKS, 0},
    };
    for (int key = 0; key < KEYS; key++) gpu->series[key].count = 0, gpu->failure[key] = 0;
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.17g", VALUES[i].value);
        put(gpu, VALUES[i].key, text);
    }
    gpu->failure[FAN] = NOT_SUPPORTED, gpu->failure_from[FAN] = 0, gpu->failure_until[FAN] = 1e300;
    gpu->index = index, gpu->lost_at = 1e300, gpu->migs = 0, gpu->processes = 0;
    gpu->xids = gpu->xids_told = gpu->watched = 0;
    snprintf(gpu->name, sizeof gpu->name, "NVIDIA H100 80GB HBM3");
    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%08x-0000-0000-0000-%012x", index, index + 1);
}

static void read_scenario(void) {
    const char *path = getenv("NVML_STUB_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    snprintf(S.driver, sizeof S.driver, "550.54.15 (simulated)");
    S.cuda = 12040, S.gpus = 0, S.init_failure = file ? 0 : 9, S.delay_ms = 0;
    S.gone_from = S.gone_until = S.hang_from = S.hang_until = 1e300, S.gone_failure = 0;
    for (int i = 0; i < MOST_GPUS; i++) defaults(&S.gpu[i], i);
    if (!file) return;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "#\r\n")] = 0;
        for (size_t end = strlen(line); end && line[end - 1] == ' ';) line[--end] = 0;
        char word[32], which[16], key[64], code[64];
        int used = 0;
        if (sscanf(line, "%31s %n", word, &used) != 1) continue;
        char *rest = line + used;
        if (!strcmp(word, "gpus")) S.gpus = atoi(rest) > MOST_GPUS ? MOST_GPUS : atoi(rest);
        else if (!strcmp(word, "driver")) snprintf(S.driver, sizeof S.driver, "%.79s", rest);
        else if (!strcmp(word, "cuda")) S.cuda = atoi(rest);
        else if (!strcmp(word, "delay_ms")) S.delay_ms = atof(rest);
        else if (!strcmp(word, "init")) S.init_failure = code_of(rest);
        else if (!strcmp(word, "hang") && sscanf(rest, "%lf %lf", &S.hang_from, &S.hang_until) == 2) continue;
        else if (!strcmp(word, "gone") && sscanf(rest, "%lf %lf %63s", &S.gone_from, &S.gone_until, code) == 3)
            S.gone_failure = code_of(code);
        else if (!strcmp(word, "gpu") && sscanf(rest, "%15s %63s %n", which, key, &used) == 2)
            for (int i = 0; i < S.gpus; i++)
                if (!strcmp(which, "*") || atoi(which) == i) gpu_line(&S.gpu[i], key, rest + used);
    }
    free(line);
    fclose(file);
}

static int gone(void) {
    double t = now();
    if (t >= S.gone_from && t < S.gone_until) {
        S.generation_lost = 1;
        return S.gone_failure;
    }
    return 0;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    now();
    if (!S.initialised || S.generation_lost) read_scenario();
    int code = S.init_failure ? S.init_failure : gone();
    if (!code) S.initialised++, S.generation_lost = 0;
    pthread_mutex_unlock(&lock);
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!S.initialised) return UNINITIALIZED;
    S.initialised--;
    return SUCCESS;
}
const char *nvmlErrorString(int code) {
    (void)code;
    return "Unknown Error";
}

static int alive(void) {
    calls++;
    while (set_time < 0 && now() >= S.hang_from && now() < S.hang_until) usleep(10000);
    int code = gone();
    if (code) return code;
    return S.initialised && !S.generation_lost ? SUCCESS : UNINITIALIZED;
}

/* The GPU behind a handle; of an instance its board, and *mig is the instance. */
static int board_of(void *handle, Gpu **gpu, Mig **mig) {
    int code = alive();
    if (code) return code;
    *mig = NULL;
    for (int i = 0; i < S.gpus; i++) {
        if (handle == &S.gpu[i]) *gpu = &S.gpu[i];
        else if (handle >= (void *)S.gpu[i].mig && handle < (void *)(S.gpu[i].mig + MOST_MIG))
            *gpu = &S.gpu[i], *mig = handle;
        else continue;
        return now() >= (*gpu)->lost_at ? GPU_IS_LOST : SUCCESS;
    }
    return INVALID_ARGUMENT;
}

static int value_of(void *handle, int key, double *value) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (code) return code;
    double t = now();
    if (gpu->failure[key] && t >= gpu->failure_from[key] && t < gpu->failure_until[key]) return gpu->failure[key];
    if (mig && key != MEMORY_TOTAL && key != MEMORY_USED && key != MEMORY_RESERVED) return NOT_SUPPORTED;
    if (key == ENERGY && !gpu->series[ENERGY].count) *value = energy(&gpu->series[POWER], t);
    else *value = at(&gpu->series[key], key, t);
    if (mig) *value /= gpu->migs;
    return isnan(*value) ? NOT_SUPPORTED : SUCCESS;
}

static int unsigned_of(void *handle, int key, double scale, unsigned *out) {
    double value;
    int code = value_of(handle, key, &value);
    if (!code) *out = (unsigned)llround(value * scale);
    return code;
}

static void wait_ms(double ms) {
    if (ms > 0 && set_time < 0) usleep((useconds_t)(ms * 1000));
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int code = alive();
    if (!code) snprintf(out, size, "%s", S.driver);
    return code;
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    int code = alive();
    if (!code) snprintf(out, size, "12.%s", S.driver);
    return code;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    int code = alive();
    if (!code) *out = S.cuda;
    return code;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    int code = alive();
    if (!code) *out = (unsigned)S.gpus;
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    int code = alive();
    if (code) return code;
    if (index >= (unsigned)S.gpus) return INVALID_ARGUMENT;
    *out = &S.gpu[index];
    return now() >= S.gpu[index].lost_at ? GPU_IS_LOST : SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code) snprintf(out, size, "%s", mig ? mig->uuid : gpu->uuid);
    return code;
}
int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code) snprintf(out, size, "%s%s", gpu->name, mig ? " MIG 1g.10gb" : "");
    return code;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} PciInfo;

static void pci_of(int index, PciInfo *out) {
    memset(out, 0, sizeof *out);
    out->bus = 0x10 + index;
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
}
int nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *out) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code) pci_of(gpu->index, out);
    return code;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *out) {
    int code = unsigned_of(handle, UTILIZATION, 1, out);
    return code ? code : unsigned_of(handle, MEMORY_UTILIZATION, 1, out + 1);
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *out) {
    double total, used, reserved;
    int code = value_of(handle, MEMORY_TOTAL, &total);
    if (!code) code = value_of(handle, MEMORY_USED, &used);
    if (!code) code = value_of(handle, MEMORY_RESERVED, &reserved);
    if (code) return code;
    out[0] = total, out[1] = total - used - reserved, out[2] = used + reserved;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) { return unsigned_of(handle, POWER, 1000, out); }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *out) { return unsigned_of(handle, POWER_LIMIT, 1000, out); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *out) {
    return unsigned_of(handle, POWER_DEFAULT, 1000, out);
}
int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *low, unsigned *high) {
    int code = unsigned_of(handle, POWER_MIN, 1000, low);
    return code ? code : unsigned_of(handle, POWER_MAX, 1000, high);
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) {
    return sensor ? INVALID_ARGUMENT : unsigned_of(handle, TEMPERATURE, 1, out);
}
int nvmlDeviceGetTemperatureThreshold(void *handle, int kind, unsigned *out) {
    static const int ORDER[] = {SHUTDOWN_TEMPERATURE, SLOWDOWN_TEMPERATURE, MEMORY_MAX_TEMPERATURE, GPU_MAX_TEMPERATURE};
    return kind < 0 || kind > 3 ? INVALID_ARGUMENT : unsigned_of(handle, ORDER[kind], 1, out);
}
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *out) {
    return unsigned_of(handle, kind == 2 ? MEMORY_CLOCK : SM_CLOCK, 1, out);
}
int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *out) {
    return unsigned_of(handle, kind == 2 ? MEMORY_CLOCK_MAX : SM_CLOCK_MAX, 1, out);
}
static int reasons(void *handle, unsigned long long *out) {
    double value;
    int code = value_of(handle, REASONS, &value);
    if (!code) *out = (unsigned long long)value;
    return code;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *out) { return reasons(handle, out); }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *out) {
    double value;
    int code = value_of(handle, ENERGY, &value);
    if (!code) *out = (unsigned long long)(value * 1000);
    return code;
}
int nvmlDeviceGetFanSpeed(void *handle, unsigned *out) { return unsigned_of(handle, FAN, 1, out); }
int nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *out) { return unsigned_of(handle, REPLAYS, 1, out); }
int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *out) {
    wait_ms(S.delay_ms);
    return unsigned_of(handle, counter ? PCIE_RX : PCIE_TX, 1, out);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *out) {
    return unsigned_of(handle, PCIE_GENERATION, 1, out);
}
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *out) { return unsigned_of(handle, PCIE_WIDTH, 1, out); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *out) {
    return unsigned_of(handle, PCIE_GENERATION_MAX, 1, out);
}
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *out) { return unsigned_of(handle, PCIE_WIDTH_MAX, 1, out); }
int nvmlDeviceGetNumGpuCores(void *handle, unsigned *out) { return unsigned_of(handle, CORES, 1, out); }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *out) { return unsigned_of(handle, PERSISTENCE, 1, out); }
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *out) {
    double value;
    (void)counter;
    int code = value_of(handle, kind ? ECC_UNCORRECTED : ECC_CORRECTED, &value);
    if (!code) *out = (unsigned long long)value;
    return code;
}

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type;
    int32_t code;
    union {
        double number;
        uint32_t small;
        uint64_t large;
    } value;
} FieldValue;

int nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *values) {
    int code = alive();
    if (code) return code;
    for (int i = 0; i < count; i++) {
        double value = 0;
        int key = values[i].field == 82 ? MEMORY_TEMPERATURE : values[i].field == 138 ? NVLINK_TX : NVLINK_RX;
        values[i].code = values[i].field == 82 || values[i].field == 138 || values[i].field == 139
                             ? value_of(handle, key, &value)
                             : NOT_SUPPORTED;
        if (values[i].code == GPU_IS_LOST) return GPU_IS_LOST;
        values[i].type = key == MEMORY_TEMPERATURE ? 1 : 3; /* unsigned int, unsigned long long */
        values[i].value.large = (uint64_t)value;
        if (key != MEMORY_TEMPERATURE && !values[i].code) {
            Gpu *gpu;
            Mig *mig;
            if (!board_of(handle, &gpu, &mig) && at(&gpu->series[LINKS], LINKS, 0) < 1) values[i].code = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out) {
    double links;
    int code = value_of(handle, LINKS, &links);
    if (code) return code;
    if (links < 1) return NOT_SUPPORTED;
    if (link >= 18) return INVALID_ARGUMENT;
    *out = link < links;
    return SUCCESS;
}
/* With links, every GPU reaches every other one, as through switches. */
int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *out) {
    double here, there;
    int code = value_of(one, LINKS, &here);
    if (!code) code = value_of(other, LINKS, &there);
    if (!code) *out = index == 2 && here >= 1 && there >= 1 ? 0 : 5; /* OK, not supported */
    return code;
}
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *out) {
    Gpu *a, *b;
    Mig *mig;
    int code = board_of(one, &a, &mig);
    if (!code) code = board_of(other, &b, &mig);
    if (!code) *out = a->index / 4 == b->index / 4 ? 30 : 50;
    return code;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code) *current = *pending = gpu->migs > 0;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code) *out = MOST_MIG - 1;
    return code;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned number, void **out) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (code) return code;
    if (number >= (unsigned)gpu->migs) return NOT_FOUND;
    *out = &gpu->mig[number];
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
} ProcessInfo;

static int running(void *handle, unsigned *count, ProcessInfo *out) {
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (code) return code;
    double t = now();
    if (gpu->failure[PROCESSES] && t >= gpu->failure_from[PROCESSES] && t < gpu->failure_until[PROCESSES])
        return gpu->failure[PROCESSES];
    unsigned found = 0;
    for (int i = 0; i < gpu->processes; i++) {
        const Process *p = &gpu->process[i];
        if (t < p->from || t >= p->until) continue;
        if (out && found < *count)
            out[found] = (ProcessInfo){p->pid ? p->pid : (unsigned)getpid(), (unsigned long long)p->memory, ~0u, ~0u};
        found++;
    }
    code = found && (!out || found > *count) ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return code;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, ProcessInfo *out) {
    return running(handle, count, out);
}

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

int nvmlEventSetCreate(void **out) {
    int code = alive();
    if (!code) *out = &S;
    return code;
}
int nvmlEventSetFree(void *set) {
    (void)set;
    for (int i = 0; i < S.gpus; i++) S.gpu[i].watched = 0;
    return SUCCESS;
}
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    (void)set;
    Gpu *gpu;
    Mig *mig;
    int code = board_of(handle, &gpu, &mig);
    if (!code && (mig || !(types & 8))) code = NOT_SUPPORTED; /* nvmlEventTypeXidCriticalError */
    if (!code) gpu->watched = 1;
    return code;
}
int nvmlEventSetWait_v2(void *set, EventData *out, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    int code = alive();
    if (code) return code;
    for (int i = 0; i < S.gpus; i++) {
        Gpu *gpu = &S.gpu[i];
        if (!gpu->watched || gpu->xids_told >= gpu->xids || now() < gpu->xid[gpu->xids_told].at) continue;
        *out = (EventData){gpu, 8, gpu->xid[gpu->xids_told++].number, ~0u, ~0u};
        return SUCCESS;
    }
    return 10; /* TIMEOUT */
}

#ifndef NVML_STUB_OLD
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *out) {
    double total, used, reserved;
    int code = value_of(handle, MEMORY_TOTAL, &total);
    if (!code) code = value_of(handle, MEMORY_USED, &used);
    if (!code) code = value_of(handle, MEMORY_RESERVED, &reserved);
    if (code) return code;
    out->total = total, out->used = used, out->reserved = reserved, out->free = total - used - reserved;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *out) { return reasons(handle, out); }

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *out) {
    return running(handle, count, out);
}
#endif
