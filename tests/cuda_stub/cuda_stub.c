/* A libcuda and a libcublas in one, for tests of what calls them: memory is the host's, work is done at once.
 *
 * Two GPUs, in another order than NVML's: ordinal 0 at 0000:1B:00.0, ordinal 1 at 0000:1A:00.0. It checks its caller: calls without a
 * context in this thread, addresses that are not allocated, arguments of the product. stub_* functions report what is left.
 *
 * Compiled with -DWITH_CUDA_HEADERS the prototypes are checked against the toolkit's cuda.h and cublas_api.h.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef WITH_CUDA_HEADERS
#include <cuda.h>
#include <cublas_api.h>
#else
typedef int CUresult, CUdevice, CUdevice_attribute, cublasStatus_t, cublasOperation_t, cudaDataType, cublasComputeType_t, cublasGemmAlgo_t;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct handle *cublasHandle_t;
#endif
#define EXPORT __attribute__((visibility("default")))

/* cuda.h */
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, SM_COUNT = 16 };
/* cublas_api.h, library_types.h */
enum { BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, R_16BF = 14, COMPUTE_32F = 68, GEMM_DEFAULT = -1, OP_N = 0 };
enum { GPUS = 2, BLOCKS = 16, SMS = 132 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block { char *memory; size_t size; } blocks[BLOCKS];
static struct context { int retained; } contexts[GPUS];
struct handle { int live; };
static struct handle handle;
static __thread CUcontext current;
static int initialised, products, wrong_products;
static size_t memory_limit = 1ull << 30;

EXPORT int stub_left(void) {
    int left = contexts[0].retained + contexts[1].retained + handle.live;
    for (int i = 0; i < BLOCKS; i++) left += blocks[i].memory != NULL;
    return left;
}
EXPORT int stub_products(void) { return products; }
/* The last element of this many products comes out as 0. */
EXPORT void stub_break_products(int count) { wrong_products = count; }

static char *at(CUdeviceptr address, size_t size) {
    for (int i = 0; i < BLOCKS; i++) {
        CUdeviceptr start = (CUdeviceptr)(size_t)blocks[i].memory;
        if (start && address >= start && address + size <= start + blocks[i].size) return (char *)(size_t)address;
    }
    return NULL;
}

/* ---- cuda.h ---------------------------------------------------------------------------------------------------- */

EXPORT CUresult cuInit(unsigned int flags) { initialised = flags == 0; return flags ? INVALID_VALUE : 0; }
EXPORT CUresult cuDriverGetVersion(int *version) { *version = 13010; return 0; }
EXPORT CUresult cuDeviceGetCount(int *count) { *count = GPUS; return initialised ? 0 : NOT_INITIALIZED; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return ordinal < GPUS ? 0 : INVALID_DEVICE; }

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x1B - device);
    return 0;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    *value = SMS;
    return attribute == SM_COUNT && device < GPUS ? 0 : INVALID_VALUE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    contexts[device].retained++;
    *context = (CUcontext)&contexts[device];
    return 0;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (!contexts[device].retained) return INVALID_CONTEXT;
    contexts[device].retained--;
    return 0;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) { current = context; return 0; }
EXPORT CUresult cuCtxSynchronize(void) { return current ? 0 : INVALID_CONTEXT; }

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    CUresult result = current ? OUT_OF_MEMORY : INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    for (int i = 0; current && size <= memory_limit && i < BLOCKS; i++) {
        if (blocks[i].memory) continue;
        // not of the heap, whose addresses may be short: a caller that cuts them to an int must be found out
        void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) break;
        blocks[i] = (struct block){memory, size};
        *address = (CUdeviceptr)(size_t)blocks[i].memory;
        result = 0;
        break;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    CUresult result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BLOCKS; i++) {
        if (!blocks[i].memory || (CUdeviceptr)(size_t)blocks[i].memory != address) continue;
        munmap(blocks[i].memory, blocks[i].size ? blocks[i].size : 1);
        blocks[i] = (struct block){0};
        result = 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size) {
    if (!current) return INVALID_CONTEXT;
    if (!at(target, size) || !at(source, size)) return INVALID_VALUE;
    memcpy(at(target, size), at(source, size), size);
    return 0;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
    if (!current) return INVALID_CONTEXT;
    if (!at(source, size)) return INVALID_VALUE;
    memcpy(target, at(source, size), size);
    return 0;
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count) {
    unsigned short *words = (unsigned short *)at(target, 2 * count);
    if (!current) return INVALID_CONTEXT;
    if (!words) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) words[i] = value;
    return 0;
}

/* ---- cublas_api.h ---------------------------------------------------------------------------------------------- */

static float wide(unsigned short bits) {
    unsigned int all = (unsigned int)bits << 16;
    float value;
    memcpy(&value, &all, sizeof value);
    return value;
}

/* Cut, not rounded: exact for what the tests multiply. */
static unsigned short narrow(float value) {
    unsigned int all;
    memcpy(&all, &value, sizeof all);
    return (unsigned short)(all >> 16);
}

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *out) {
    if (!current) return BLAS_NOT_INITIALIZED;
    handle.live++;
    *out = (cublasHandle_t)(void *)&handle;
    return 0;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t given) {
    if ((void *)given != (void *)&handle || !handle.live) return BLAS_NOT_INITIALIZED;
    handle.live--;
    return 0;
}

EXPORT cublasStatus_t cublasGemmEx(
    cublasHandle_t given, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb, const void *beta,
    void *c, cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    if ((void *)given != (void *)&handle || !current) return BLAS_NOT_INITIALIZED;
    if (transa != OP_N || transb != OP_N || lda < m || ldb < k || ldc < m) return BLAS_INVALID_VALUE;
    if (a_type != R_16BF || b_type != R_16BF || c_type != R_16BF) return BLAS_INVALID_VALUE;
    if (compute != COMPUTE_32F || algorithm != GEMM_DEFAULT) return BLAS_INVALID_VALUE;
    const unsigned short *left = (unsigned short *)at((CUdeviceptr)(size_t)a, 2ul * (size_t)lda * (size_t)k);
    const unsigned short *right = (unsigned short *)at((CUdeviceptr)(size_t)b, 2ul * (size_t)ldb * (size_t)n);
    unsigned short *result = (unsigned short *)at((CUdeviceptr)(size_t)c, 2ul * (size_t)ldc * (size_t)n);
    if (!left || !right || !result) return BLAS_INVALID_VALUE;
    float scale, keep;
    memcpy(&scale, alpha, sizeof scale);
    memcpy(&keep, beta, sizeof keep);
    for (int column = 0; column < n; column++) {
        for (int row = 0; row < m; row++) {
            float sum = 0;
            for (int i = 0; i < k; i++) sum += wide(left[i * lda + row]) * wide(right[column * ldb + i]);
            unsigned short *place = &result[column * ldc + row];
            /* as documented: with beta 0 what was there is not read */
            *place = narrow(keep == 0 ? scale * sum : scale * sum + keep * wide(*place));
        }
    }
    products++;
    if (wrong_products > 0) {
        wrong_products--;
        result[(size_t)ldc * (size_t)n - 1] = 0;
    }
    return 0;
}
