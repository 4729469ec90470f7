/* What the stub's files share: the scripted state, the devices, and the frame of every NVML function. */
#ifndef STUB_STATE_H
#define STUB_STATE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { GPUS = 16, SLOTS = 8, LINES = 4096, FUNCTIONS = 128 };

typedef unsigned int u32;
typedef unsigned long long u64;

/* A device handle. `scope` is its scope in the state file; `slot` is -1 for a whole GPU. */
struct device { char scope[32]; int gpu, slot; };

extern pthread_mutex_t lock; /* held by every function while it looks at what follows */
extern struct device gpus[GPUS], migs[GPUS][SLOTS];
extern int init_balance, live_samples, live_event_sets, misuse;
extern u64 init_generation, last_event;

/* The value of a key, whose name is given as by printf; NULL where the state lacks it. */
const char *find(const char *scope, const char *format, ...);
u64 number(const char *scope, const char *key, u64 otherwise);

/* Counts the call, then says what is scripted for it: SUCCESS means go on. Called with the lock held. */
int enter(const char *function, const char *scope);

/* Body of a function of a device: the lock, the bookkeeping, then the block that sets `result`. */
#define DEVICE_FUNCTION(device, ...)                      \
    do {                                                  \
        if (!(device)) return INVALID_ARGUMENT;           \
        pthread_mutex_lock(&lock);                        \
        int result = enter(__func__, (device)->scope);    \
        if (result == SUCCESS) __VA_ARGS__                \
        pthread_mutex_unlock(&lock);                      \
        return result;                                    \
    } while (0)

#define SYSTEM_FUNCTION(...)                              \
    do {                                                  \
        pthread_mutex_lock(&lock);                        \
        int result = enter(__func__, "sys");              \
        if (result == SUCCESS) __VA_ARGS__                \
        pthread_mutex_unlock(&lock);                      \
        return result;                                    \
    } while (0)

/* A key's number into *target, NOT_SUPPORTED where the key is missing. */
#define GIVE(device, key, target)                                          \
    {                                                                      \
        const char *value = find((device)->scope, "%s", key);              \
        if (value) *(target) = strtoull(value, NULL, 0);                   \
        else result = NOT_SUPPORTED;                                       \
    }

#define GIVE_TEXT(device, key, buffer, length)                             \
    {                                                                      \
        const char *value = find((device)->scope, "%s", key);              \
        if (value) snprintf(buffer, length, "%s", value);                  \
        else result = NOT_SUPPORTED;                                       \
    }

#endif
