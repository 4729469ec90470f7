/* The state file, read again whenever it changes, and the bookkeeping that tests ask for. Format: see nvml_stub.c. */
#define _GNU_SOURCE
#include "stub_state.h"

#include <stdarg.h>
#include <sys/stat.h>

struct line { char *scope, *key, *value; };

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct device gpus[GPUS], migs[GPUS][SLOTS];
int init_balance, live_samples, live_event_sets, misuse;
u64 init_generation, last_event;

static char *text;
static struct line lines[LINES];
static int line_count;
static struct timespec read_at;
static ino_t read_inode;

static struct { char name[64]; int count; } calls[FUNCTIONS];

static void load(void) {
    const char *path = getenv("NVML_STUB_STATE");
    struct stat now;
    if (!path || stat(path, &now) != 0) return;
    if (now.st_ino == read_inode && now.st_mtim.tv_sec == read_at.tv_sec && now.st_mtim.tv_nsec == read_at.tv_nsec)
        return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char *fresh = calloc(1, (size_t)now.st_size + 1);
    size_t length = fread(fresh, 1, (size_t)now.st_size, file);
    fclose(file);
    fresh[length] = 0;
    free(text);
    text = fresh;
    read_at = now.st_mtim;
    read_inode = now.st_ino;
    line_count = 0;
    char *rest = text, *one;
    while ((one = strsep(&rest, "\n")) && line_count < LINES) {
        char *scope = strsep(&one, " "), *key = one ? strsep(&one, " ") : NULL;
        if (key && one) lines[line_count++] = (struct line){scope, key, one};
    }
}

const char *find(const char *scope, const char *format, ...) {
    char key[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].key, key) && !strcmp(lines[i].scope, scope)) return lines[i].value;
    return NULL;
}

u64 number(const char *scope, const char *key, u64 otherwise) {
    const char *value = find(scope, "%s", key);
    return value ? strtoull(value, NULL, 0) : otherwise;
}

int enter(const char *function, const char *scope) {
    load();
    for (int i = 0; i < FUNCTIONS; i++) {
        if (!calls[i].name[0]) snprintf(calls[i].name, sizeof calls[i].name, "%s", function);
        if (!strcmp(calls[i].name, function)) { calls[i].count++; break; }
    }
    int init = !strcmp(function, "nvmlInitWithFlags");
    if (!init && init_balance <= 0) { misuse++; return UNINITIALIZED; }
    const char *scopes[] = {scope, "sys"};
    for (int i = 0; i < 2; i++) {
        const char *code = find(scopes[i], "fail:%s", function);
        if (!code) code = find(scopes[i], "fail:*");
        if (code) return atoi(code);
    }
    if (!init && number("sys", "generation", 0) != init_generation) return UNINITIALIZED;
    return SUCCESS;
}

/* ---- what tests ask -------------------------------------------------------------------------------------------- */

EXPORT int stub_live_samples(void) { return live_samples; }
EXPORT int stub_live_event_sets(void) { return live_event_sets; }
EXPORT int stub_init_balance(void) { return init_balance; }
EXPORT int stub_misuse(void) { return misuse; }

EXPORT int stub_calls(const char *function) {
    int count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FUNCTIONS && calls[i].name[0]; i++)
        if (!strcmp(calls[i].name, function)) count = calls[i].count;
    pthread_mutex_unlock(&lock);
    return count;
}

EXPORT void stub_reset(void) {
    pthread_mutex_lock(&lock);
    init_balance = live_samples = live_event_sets = misuse = 0;
    last_event = 0;
    memset(calls, 0, sizeof calls);
    memset(&read_at, 0, sizeof read_at);
    read_inode = 0;
    line_count = 0;
    pthread_mutex_unlock(&lock);
}
