/* Events and GPM: what a program takes from NVML and must give back. */
#define _GNU_SOURCE
#include "stub_state.h"

#include <unistd.h>

/* ---- events ---------------------------------------------------------------------------------------------------- */

struct event_set { u32 magic; int registered[GPUS]; };
struct event { struct device *device; u64 type, data; u32 gpu_instance, compute_instance; };
_Static_assert(sizeof(struct event) == 32, "nvmlEventData_t");
enum { SET_MAGIC = 0x5e75e75e, XID_EVENT = 0x8 };

EXPORT int nvmlDeviceGetSupportedEventTypes(struct device *d, u64 *out) { DEVICE_FUNCTION(d, GIVE(d, "event_types", out)); }

EXPORT int nvmlEventSetCreate(struct event_set **out) {
    SYSTEM_FUNCTION({
        *out = calloc(1, sizeof **out);
        (*out)->magic = SET_MAGIC;
        live_event_sets++;
    });
}

EXPORT int nvmlDeviceRegisterEvents(struct device *d, u64 types, struct event_set *set) {
    DEVICE_FUNCTION(d, {
        if (!set || set->magic != SET_MAGIC || d->slot >= 0) result = INVALID_ARGUMENT;
        else if (types & ~number(d->scope, "event_types", 0)) result = NOT_SUPPORTED;
        else set->registered[d->gpu] = 1;
    });
}

/* The next scripted event of a registered GPU, or TIMEOUT. Called with the lock held. */
static int next_event(const struct event_set *set, struct event *out) {
    const char *scripted;
    while ((scripted = find("sys", "event:%llu", last_event + 1))) {
        u32 gpu;
        u64 xid;
        last_event++;
        if (sscanf(scripted, "gpu%u %llu", &gpu, &xid) != 2 || gpu >= GPUS || !set->registered[gpu]) continue;
        *out = (struct event){&gpus[gpu], XID_EVENT, xid, ~0u, ~0u};
        return SUCCESS;
    }
    return TIMEOUT;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event *out, u32 timeout_ms) {
    u32 waited = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        int result = enter(__func__, "sys");
        if (result == SUCCESS) result = set && set->magic == SET_MAGIC ? next_event(set, out) : INVALID_ARGUMENT;
        if (result == INVALID_ARGUMENT) misuse++;
        pthread_mutex_unlock(&lock);
        if (result != TIMEOUT || waited >= timeout_ms) return result;
        usleep(5000);
        waited += 5;
    }
}

EXPORT int nvmlEventSetFree(struct event_set *set) {
    pthread_mutex_lock(&lock);
    int result = enter(__func__, "sys");
    if (!set || set->magic != SET_MAGIC) {
        misuse++;
        result = INVALID_ARGUMENT;
    } else {
        set->magic = 0; /* kept, so that a use after free is seen rather than undefined */
        live_event_sets--;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- GPM ------------------------------------------------------------------------------------------------------- */

struct sample { u32 magic; u64 serial; char scope[32]; };
struct gpm_support { u32 version, supported; };
struct gpm_metric { u32 id; int result; double value; char *short_name, *long_name, *unit; };
struct gpm_request { u32 version, count; struct sample *earlier, *later; struct gpm_metric metrics[]; };
_Static_assert(sizeof(struct gpm_metric) == 40 && sizeof(struct gpm_request) == 24, "nvmlGpmMetricsGet_t");
enum { SAMPLE_MAGIC = 0x9b39b39b };
static u64 sample_serial;

EXPORT int nvmlGpmQueryDeviceSupport(struct device *d, struct gpm_support *out) {
    DEVICE_FUNCTION(d, {
        if (out->version != 1) result = ARGUMENT_VERSION_MISMATCH;
        else if (d->slot >= 0) { misuse++; result = INVALID_ARGUMENT; } /* never ask a MIG handle */
        else out->supported = number(d->scope, "gpm", 0);
    });
}

EXPORT int nvmlGpmSampleAlloc(struct sample **out) {
    SYSTEM_FUNCTION({
        *out = calloc(1, sizeof **out);
        (*out)->magic = SAMPLE_MAGIC;
        live_samples++;
    });
}

EXPORT int nvmlGpmSampleFree(struct sample *sample) {
    pthread_mutex_lock(&lock);
    int result = enter(__func__, "sys");
    if (!sample || sample->magic != SAMPLE_MAGIC) {
        misuse++;
        result = INVALID_ARGUMENT;
    } else {
        sample->magic = 0; /* kept, so that a second free is seen rather than undefined */
        live_samples--;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int take_sample(const char *scope, struct sample *sample) {
    if (!sample || sample->magic != SAMPLE_MAGIC) { misuse++; return INVALID_ARGUMENT; }
    sample->serial = ++sample_serial;
    snprintf(sample->scope, sizeof sample->scope, "%s", scope);
    return SUCCESS;
}

EXPORT int nvmlGpmSampleGet(struct device *d, struct sample *sample) {
    DEVICE_FUNCTION(d, {
        if (d->slot >= 0) { misuse++; result = INVALID_ARGUMENT; }
        else result = take_sample(d->scope, sample);
    });
}

EXPORT int nvmlGpmMigSampleGet(struct device *d, u32 gpu_instance, struct sample *sample) {
    DEVICE_FUNCTION(d, {
        char scope[32];
        snprintf(scope, sizeof scope, "gpu%d/gi%u", d->gpu, gpu_instance);
        result = take_sample(scope, sample);
    });
}

EXPORT int nvmlGpmMetricsGet(struct gpm_request *request) {
    SYSTEM_FUNCTION({
        struct sample *earlier = request->earlier, *later = request->later;
        if (request->version != 1) result = ARGUMENT_VERSION_MISMATCH;
        else if (!earlier || !later || earlier->magic != SAMPLE_MAGIC || later->magic != SAMPLE_MAGIC
                 || earlier->serial >= later->serial || strcmp(earlier->scope, later->scope)) {
            misuse++;
            result = INVALID_ARGUMENT;
        } else for (u32 i = 0; i < request->count; i++) {
            struct gpm_metric *metric = &request->metrics[i];
            const char *value = find(later->scope, "gpm:%u", metric->id);
            metric->result = value ? SUCCESS : NOT_SUPPORTED;
            metric->value = value ? strtod(value, NULL) : 0.0;
        }
    });
}
