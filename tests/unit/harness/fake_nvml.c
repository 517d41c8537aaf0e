/* NVML as a test scripts it: answers from the file that FAKE_NVML names, read at every call.

   A line is a key and a number. The name of a function gives its status, or -1: it never returns,
   -2: it crashes. "drop NAME" makes the answer NAME smaller by so much with every call. Compiled
   with -DOLD the library lacks what later drivers brought, with -DBARE it has next to nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;

static int has(const char *key, u64 *value) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[128];
    long long number;
    int found = 0;
    if (!file) return 0;
    while (fscanf(file, "%127s %lld", name, &number) == 2)
        if (!strcmp(name, key)) *value = (u64)number, found = 1;
    fclose(file);
    return found;
}

static u64 answer(const char *name, u64 otherwise) {
    char key[160];
    u64 value = otherwise, drop = 0;
    has(name, &value);
    snprintf(key, sizeof key, "drop:%s", name);
    if (has(key, &drop)) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%s", getenv("FAKE_NVML"), name);
        FILE *calls = fopen(path, "a+");
        fputc('.', calls);
        fseek(calls, 0, SEEK_END);
        value -= drop * (u64)(ftell(calls) - 1);
        fclose(calls);
    }
    return value;
}

static int status(const char *function) {
    u64 value = 0;
    has(function, &value);
    if ((long long)value == -1) for (;;) pause();
    if ((long long)value == -2) abort();
    return (int)value;
}

#define ANSWER(key, otherwise) \
    int code = status(__func__); \
    if (code == 0) *out = answer(key, otherwise); \
    return code

int nvmlInit_v2(void) { return status(__func__); }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    static int board;
    if (strcmp(uuid, "GPU-fake")) return 6;
    *out = &board;
    return status(__func__);
}

#ifndef BARE
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    snprintf(out, size, "580.1.2");
    return status(__func__);
}
int nvmlDeviceGetClockInfo(void *d, unsigned type, unsigned *out) {
    ANSWER(type == 1 ? "sm" : "memory_clock", type == 1 ? 1980 : 3201);
}
int nvmlDeviceGetTemperature(void *d, unsigned sensor, unsigned *out) {
    ANSWER("temperature", 41);
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { ANSWER("power", 130304); }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out) { ANSWER("limit", 700000); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *out) {
    ANSWER("default_limit", 700000);
}
#ifdef RENAMED
int nvmlDeviceGetCurrentClocksEventReasons(void *d, u64 *out) { ANSWER("reasons", 0); }
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, u64 *out) { ANSWER("reasons", 0); }
#endif

int nvmlDeviceGetMemoryInfo(void *d, u64 *out) {
    out[0] = 1ull << 37;
    out[2] = answer("used", 0) + (600ull << 20);
    out[1] = out[0] - out[2];
    return status(__func__);
}

struct process1 { unsigned pid; u64 memory; };
struct process2 { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };

static int processes(const char *function, unsigned *count, void *table, int newer) {
    unsigned have = (unsigned)answer("processes", 0), room = *count;
    u64 memory = answer("process_memory", 1 << 30), pid = answer("pid", 4000000);
    int code = status(function);
    if (code) return code;
    if (answer("grows", 0)) have = room + 1;
    *count = have;
    if (have > room) return 7;
    for (unsigned i = 0; i < have; i++) {
        if (newer) {
            struct process2 one = {(unsigned)pid + i, memory, 7, 7};
            ((struct process2 *)table)[i] = one;
        } else {
            struct process1 one = {(unsigned)pid + i, memory};
            ((struct process1 *)table)[i] = one;
        }
    }
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *count, void *table) {
    return processes(__func__, count, table, 0);
}

#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, void *table) {
    return processes(__func__, count, table, 1);
}
struct violation { u64 reference, time; };
int nvmlDeviceGetViolationStatus(void *d, unsigned policy, struct violation *out) {
    out->reference = 1;
    out->time = answer(policy == 0 ? "power_ns" : "thermal_ns", 0);
    return status(__func__);
}
struct memory2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory2 *out) {
    if (out->version != (2u << 24 | sizeof *out)) return 25;
    out->total = 1ull << 37;
    out->reserved = 600ull << 20;
    out->used = answer("used", 0);
    out->free = out->total - out->used - out->reserved;
    return status(__func__);
}
#endif
#endif
