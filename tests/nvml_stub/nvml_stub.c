/* A libnvidia-ml.so.1 for tests: every answer comes from a text file that the test rewrites while the program runs.
 *
 * The file is named by the environment variable NVML_STUB_STATE and read again whenever it changes. Each line is
 *
 *     <scope> <key> <value ...>
 *
 * with scope "sys", "gpu<i>", "gpu<i>/mig<slot>" (a MIG device) or "gpu<i>/gi<id>" (GPM of a GPU instance). A function
 * whose key is missing answers NOT_SUPPORTED, so a card is described by what it has. Keys:
 *
 *     sys count 2                         GPUs that are enumerated
 *     sys driver 580.95.05
 *     sys generation 1                    another number: the driver was reloaded, all calls fail until nvmlInit
 *     sys event:<serial> gpu0 79          an XID, delivered once; serials count up from 1
 *     <scope> fail:<function> 15          the function returns this code; fail:* is every function of the scope
 *     gpu0 <key> <value>                  see the functions below
 *     gpu0 field:<id>[:<scopeId>] <valueType> <value>
 *     gpu0 process:<n> <pid> <bytes or -> [<gpu instance> <compute instance>]
 *     gpu0 gpm:<metric> 62.5              percent; "nan" is allowed
 *
 * Layouts follow the public nvml.h on x86-64 and aarch64 Linux. The library checks its caller: calls outside
 * init/shutdown, GPM samples that are not live or not in order, event sets that are freed twice. stub_* functions
 * report what a test asserts on: live samples, live event sets, init balance, misuse, and calls by function.
 */
#define _GNU_SOURCE
#include "stub_state.h"

/* ---- library and inventory ------------------------------------------------------------------------------------- */

EXPORT int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    SYSTEM_FUNCTION({
        init_balance++;
        init_generation = number("sys", "generation", 0);
    });
}

EXPORT int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int result = enter(__func__, "sys");
    if (init_balance > 0) {
        init_balance--;
        /* what the library gave out must have been given back before */
        if (init_balance == 0 && (live_samples || live_event_sets)) misuse++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT const char *nvmlErrorString(int code) { (void)code; return "stub"; }

EXPORT int nvmlSystemGetDriverVersion(char *buffer, u32 length) {
    SYSTEM_FUNCTION({
        const char *value = find("sys", "driver");
        if (value) snprintf(buffer, length, "%s", value);
        else result = NOT_SUPPORTED;
    });
}

EXPORT int nvmlDeviceGetCount_v2(u32 *count) { SYSTEM_FUNCTION({ *count = number("sys", "count", 0); }); }

EXPORT int nvmlDeviceGetHandleByIndex_v2(u32 index, struct device **out) {
    pthread_mutex_lock(&lock);
    char scope[16];
    snprintf(scope, sizeof scope, "gpu%u", index);
    int result = enter(__func__, scope);
    if (result == SUCCESS) {
        if (index >= GPUS || index >= number("sys", "count", 0)) result = INVALID_ARGUMENT;
        else {
            struct device *device = &gpus[index];
            snprintf(device->scope, sizeof device->scope, "%s", scope);
            device->gpu = (int)index;
            device->slot = -1;
            *out = device;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT int nvmlDeviceGetName(struct device *d, char *b, u32 n) { DEVICE_FUNCTION(d, GIVE_TEXT(d, "name", b, n)); }
EXPORT int nvmlDeviceGetUUID(struct device *d, char *b, u32 n) { DEVICE_FUNCTION(d, GIVE_TEXT(d, "uuid", b, n)); }
EXPORT int nvmlDeviceGetMinorNumber(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "minor", out)); }
EXPORT int nvmlDeviceGetVirtualizationMode(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "virtualization_mode", out)); }
EXPORT int nvmlDeviceGetArchitecture(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "architecture", out)); }
EXPORT int nvmlDeviceGetNumGpuCores(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "cores", out)); }
EXPORT int nvmlDeviceGetMemoryBusWidth(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "bus_width", out)); }

struct pci_info { char legacy[16]; u32 domain, bus, device, device_id, subsystem_id; char bus_id[32]; };
_Static_assert(sizeof(struct pci_info) == 68, "nvmlPciInfo_t");

EXPORT int nvmlDeviceGetPciInfo_v3(struct device *d, struct pci_info *out) {
    DEVICE_FUNCTION(d, {
        memset(out, 0, sizeof *out);
        GIVE_TEXT(d, "pci_bus_id", out->bus_id, sizeof out->bus_id);
        out->device_id = number(d->scope, "pci_device_id", 0);
    });
}

EXPORT int nvmlDeviceGetCudaComputeCapability(struct device *d, int *major, int *minor) {
    DEVICE_FUNCTION(d, {
        const char *value = find(d->scope, "compute_capability");
        if (!value || sscanf(value, "%d.%d", major, minor) != 2) result = NOT_SUPPORTED;
    });
}

/* ---- memory, clocks, power ------------------------------------------------------------------------------------- */

struct memory_v1 { u64 total, free, used; };
struct memory_v2 { u32 version; u64 total, reserved, free, used; };
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t");

EXPORT int nvmlDeviceGetMemoryInfo(struct device *d, struct memory_v1 *out) {
    DEVICE_FUNCTION(d, {
        u64 reserved = number(d->scope, "memory_reserved", 0);
        GIVE(d, "memory_total", &out->total);
        out->used = number(d->scope, "memory_used", 0) + reserved; /* version 1 does not tell them apart */
        out->free = out->total - out->used;
    });
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_v2 *out) {
    DEVICE_FUNCTION(d, {
        if (out->version != 0x02000028) result = ARGUMENT_VERSION_MISMATCH;
        else {
            GIVE(d, "memory_total", &out->total);
            out->reserved = number(d->scope, "memory_reserved", 0);
            out->used = number(d->scope, "memory_used", 0);
            out->free = out->total - out->reserved - out->used;
        }
    });
}

struct utilization { u32 gpu, memory; };

EXPORT int nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *out) {
    DEVICE_FUNCTION(d, {
        GIVE(d, "utilization_gpu", &out->gpu);
        out->memory = number(d->scope, "utilization_memory", 0);
    });
}

static const char *clock_names[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
static const char *clock_max_names[] = {"max_clock_graphics", "max_clock_sm", "max_clock_memory", "max_clock_video"};

EXPORT int nvmlDeviceGetClockInfo(struct device *d, u32 type, u32 *out) {
    if (type > 3) return INVALID_ARGUMENT;
    DEVICE_FUNCTION(d, GIVE(d, clock_names[type], out));
}

EXPORT int nvmlDeviceGetMaxClockInfo(struct device *d, u32 type, u32 *out) {
    if (type > 3) return INVALID_ARGUMENT;
    DEVICE_FUNCTION(d, GIVE(d, clock_max_names[type], out));
}

struct utilization_sample { u64 timestamp; union { double d; u32 u; u64 bits; } value; };
_Static_assert(sizeof(struct utilization_sample) == 16, "nvmlSample_t");

/* "samples": "microseconds:percent,…"; of them those that are newer, NOT_FOUND where none is. Without a buffer the count alone. */
EXPORT int nvmlDeviceGetSamples(struct device *d, int type, u64 since, int *value_type, u32 *count, struct utilization_sample *out) {
    DEVICE_FUNCTION(d, {
        const char *at = find(d->scope, "samples");
        u64 stamp;
        u32 percent, found = 0;
        int length;
        if (!at || type != 1) result = NOT_SUPPORTED;
        else {
            for (; sscanf(at, "%llu:%u%n", &stamp, &percent, &length) == 2; at += length, at += *at == ',') {
                if (stamp <= since) continue;
                if (out && found < *count) { out[found].timestamp = stamp; out[found].value.bits = percent; }
                found++;
            }
            *value_type = 1;
            *count = found;
            if (!found) result = NOT_FOUND;
        }
    });
}

EXPORT int nvmlDeviceGetPowerUsage(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "power_mw", out)); }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(struct device *d, u32 *out) {
    DEVICE_FUNCTION(d, GIVE(d, "power_limit_mw", out));
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(struct device *d, u64 *out) {
    DEVICE_FUNCTION(d, GIVE(d, "energy_mj", out));
}
EXPORT int nvmlDeviceGetTemperature(struct device *d, u32 sensor, u32 *out) {
    if (sensor != 0) return INVALID_ARGUMENT;
    DEVICE_FUNCTION(d, GIVE(d, "temperature", out));
}

struct temperature { u32 version, sensor; int celsius; };

EXPORT int nvmlDeviceGetTemperatureV(struct device *d, struct temperature *out) {
    DEVICE_FUNCTION(d, {
        if (out->version != 0x0100000C) result = ARGUMENT_VERSION_MISMATCH;
        else GIVE(d, "temperature", &out->celsius);
    });
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, u64 *out) {
    DEVICE_FUNCTION(d, GIVE(d, "event_reasons", out));
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, u64 *out) {
    DEVICE_FUNCTION(d, GIVE(d, "event_reasons", out));
}

/* ---- errors, fields, processes --------------------------------------------------------------------------------- */

EXPORT int nvmlDeviceGetTotalEccErrors(struct device *d, u32 type, u32 counter, u64 *out) {
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    DEVICE_FUNCTION(d, {
        char key[32];
        snprintf(key, sizeof key, "ecc_%s_%s", counter ? "aggregate" : "volatile", type ? "uncorrected" : "corrected");
        GIVE(d, key, out);
    });
}

EXPORT int nvmlDeviceGetRemappedRows(struct device *d, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failure) {
    DEVICE_FUNCTION(d, {
        const char *value = find(d->scope, "remapped_rows");
        if (!value || sscanf(value, "%u %u %u %u", correctable, uncorrectable, pending, failure) != 4)
            result = NOT_SUPPORTED;
    });
}

struct field_value {
    u32 field, scope;
    long long timestamp, latency;
    u32 type;
    int result;
    union { double d; u32 u; unsigned long ul; u64 ull; long long sll; int s; unsigned short us; } value;
};
_Static_assert(sizeof(struct field_value) == 40, "nvmlFieldValue_t");

static int fill_field(const struct device *d, struct field_value *field) {
    const char *scripted = field->scope ? find(d->scope, "field:%u:%u", field->field, field->scope)
                                        : find(d->scope, "field:%u", field->field);
    if (!scripted && !field->scope) scripted = find(d->scope, "field:%u:0", field->field);
    char type[16];
    char value[64];
    if (!scripted || sscanf(scripted, "%15s %63s", type, value) != 2) return NOT_SUPPORTED;
    memset(&field->value, 0, sizeof field->value);
    if (!strcmp(type, "fail")) return atoi(value);
    if (!strcmp(type, "double")) { field->type = 0; field->value.d = strtod(value, NULL); }
    else if (!strcmp(type, "uint")) { field->type = 1; field->value.u = strtoul(value, NULL, 0); }
    else if (!strcmp(type, "ulong")) { field->type = 2; field->value.ul = strtoul(value, NULL, 0); }
    else if (!strcmp(type, "ull")) { field->type = 3; field->value.ull = strtoull(value, NULL, 0); }
    else if (!strcmp(type, "sll")) { field->type = 4; field->value.sll = strtoll(value, NULL, 0); }
    else if (!strcmp(type, "int")) { field->type = 5; field->value.s = atoi(value); }
    else if (!strcmp(type, "ushort")) { field->type = 6; field->value.us = atoi(value); }
    else { field->type = atoi(type); }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetFieldValues(struct device *d, int count, struct field_value *values) {
    DEVICE_FUNCTION(d, {
        for (int i = 0; i < count; i++) values[i].result = fill_field(d, &values[i]);
    });
}

struct process { u32 pid; u64 bytes; u32 gpu_instance, compute_instance; };
_Static_assert(sizeof(struct process) == 24, "nvmlProcessInfo_t");

static int give_processes(const struct device *d, u32 *count, struct process *out) {
    u32 have = 0;
    while (find(d->scope, "process:%u", have)) have++;
    u32 room = *count;
    *count = have;
    if (have == 0) return SUCCESS;
    if (!out || room < have) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < have; i++) {
        char bytes[32] = "-";
        out[i] = (struct process){0, ~0ull, ~0u, ~0u};
        sscanf(find(d->scope, "process:%u", i), "%u %31s %u %u", &out[i].pid, bytes, &out[i].gpu_instance,
               &out[i].compute_instance);
        if (strcmp(bytes, "-")) out[i].bytes = strtoull(bytes, NULL, 0);
    }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, u32 *count, struct process *out) {
    DEVICE_FUNCTION(d, { result = give_processes(d, count, out); });
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, u32 *count, struct process *out) {
    DEVICE_FUNCTION(d, { result = give_processes(d, count, out); });
}

/* ---- MIG ------------------------------------------------------------------------------------------------------- */

EXPORT int nvmlDeviceGetMigMode(struct device *d, u32 *current, u32 *pending) {
    DEVICE_FUNCTION(d, {
        GIVE(d, "mig_mode", current);
        if (result == SUCCESS) *pending = *current;
    });
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "mig_max", out)); }

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, u32 index, struct device **out) {
    DEVICE_FUNCTION(d, {
        struct device *mig = index < SLOTS ? &migs[d->gpu][index] : NULL;
        if (mig) {
            snprintf(mig->scope, sizeof mig->scope, "gpu%d/mig%u", d->gpu, index);
            mig->gpu = d->gpu;
            mig->slot = (int)index;
        }
        if (!mig || !find(mig->scope, "uuid")) result = NOT_FOUND;
        else *out = mig;
    });
}
EXPORT int nvmlDeviceGetGpuInstanceId(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "gi", out)); }
EXPORT int nvmlDeviceGetComputeInstanceId(struct device *d, u32 *out) { DEVICE_FUNCTION(d, GIVE(d, "ci", out)); }

struct attributes { u32 multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices; u64 memory_mib; };
_Static_assert(sizeof(struct attributes) == 40, "nvmlDeviceAttributes_t");

EXPORT int nvmlDeviceGetAttributes_v2(struct device *d, struct attributes *out) {
    DEVICE_FUNCTION(d, {
        memset(out, 0, sizeof *out);
        GIVE(d, "attribute_memory_mib", &out->memory_mib);
        out->gpu_slices = number(d->scope, "gpu_slices", 1);
        out->compute_slices = number(d->scope, "compute_slices", out->gpu_slices);
    });
}
