/* What a whole GPU holds.  See gpu_memory.h. */
#define _GNU_SOURCE /* for RTLD_NOLOAD */
#include "gpu_memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "memlab.h"

/* ---- NVML's and the driver's own types, as far as they are used ---- */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_2;

#define NVML_MEMORY_2 ((unsigned)sizeof(nvml_memory_2) | 2u << 24)

typedef struct nvml_process {
    unsigned pid;
    unsigned long long used; /* UINT64_MAX: not available */
    unsigned gpu_instance, compute_instance;
} nvml_process;

/* More processes than this on one device, and their memory counts as not known. */
#define PROCESS_MAX 512

typedef struct cuda_uuid {
    unsigned char bytes[16];
} cuda_uuid;

#define UUID_TEXT 48

typedef int (*process_list)(void *device, unsigned *count, nvml_process *out);

/* Written once, by load(). */
static struct {
    pthread_once_t once;
    const char *reason; /* NULL: it can be used */
    int (*memory)(void *device, nvml_memory *out);
    int (*memory_2)(void *device, nvml_memory_2 *out); /* NULL: an old driver */
    int (*by_uuid)(const char *uuid, void **device);
    process_list compute;  /* NULL: an old driver */
    process_list graphics; /* likewise */
} nvml = {.once = PTHREAD_ONCE_INIT};

/* NVML's devices by index of CUDA's, as they are found; they live as long as NVML. */
static _Atomic(void *) handles[ML_DEVICE_MAX];

/* ISO C has no conversion from an object pointer to a function's. */
static bool
look_up(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static void
load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    int (*init)(void) = NULL;
    if (library == NULL) {
        nvml.reason = "libnvidia-ml.so.1, a part of NVIDIA's driver, is not here";
        return;
    }
    if (!look_up(library, "nvmlInit_v2", &init) ||
        !look_up(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) ||
        !look_up(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid)) {
        nvml.reason = "libnvidia-ml.so.1 lacks functions that are needed";
        return;
    }
    if (init() != 0) {
        nvml.reason = "libnvidia-ml.so.1 could not be initialised";
        return;
    }
    look_up(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_2);
    if (!look_up(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.compute)) {
        look_up(library, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml.compute);
    }
    if (!look_up(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", &nvml.graphics)) {
        look_up(library, "nvmlDeviceGetGraphicsRunningProcesses_v2", &nvml.graphics);
    }
}

/* ---- Which device ---- */

/* The driver that the process has loaded, if it has; never loads one. */
static void *
loaded_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

/* The identity of a CUDA device as NVML writes it.  In MIG mode it is the instance's,
 * which is what the process can use. */
static bool
uuid_of(int device, cuda_uuid *out)
{
    int (*get_device)(int *device, int ordinal) = NULL;
    int (*get_uuid)(cuda_uuid * out, int device) = NULL;
    void *driver = loaded_driver();
    int number;
    bool found = driver != NULL && look_up(driver, "cuDeviceGet", &get_device) &&
                 (look_up(driver, "cuDeviceGetUuid_v2", &get_uuid) ||
                  look_up(driver, "cuDeviceGetUuid", &get_uuid)) &&
                 get_device(&number, device) == 0 && get_uuid(out, number) == 0;
    if (driver != NULL) {
        dlclose(driver);
    }
    return found;
}

static void
write_uuid(const cuda_uuid *uuid, const char *prefix, char text[UUID_TEXT])
{
    int end = snprintf(text, UUID_TEXT, "%s", prefix);
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        end += snprintf(text + end, (size_t)(UUID_TEXT - end), dash ? "-%02x" : "%02x",
                        uuid->bytes[i]);
    }
}

static void *
handle_of(int device)
{
    if (device < 0 || device >= ML_DEVICE_MAX) {
        return NULL;
    }
    void *handle = atomic_load_explicit(&handles[device], memory_order_acquire);
    cuda_uuid uuid;
    if (handle != NULL || !uuid_of(device, &uuid)) {
        return handle;
    }
    static const char *const prefixes[] = {"GPU-", "MIG-"};
    for (unsigned i = 0; i < 2; i++) {
        char text[UUID_TEXT];
        write_uuid(&uuid, prefixes[i], text);
        if (nvml.by_uuid(text, &handle) == 0) {
            atomic_store_explicit(&handles[device], handle, memory_order_release);
            return handle;
        }
    }
    return NULL;
}

bool
ml_gpu_memory_has_context(int device)
{
    int (*get_device)(int *device, int ordinal) = NULL;
    int (*get_state)(int device, unsigned *flags, int *active) = NULL;
    void *driver = loaded_driver();
    unsigned flags;
    int number, active = 0;
    bool told = driver != NULL && look_up(driver, "cuDeviceGet", &get_device) &&
                look_up(driver, "cuDevicePrimaryCtxGetState", &get_state) &&
                get_device(&number, device) == 0 &&
                get_state(number, &flags, &active) == 0;
    if (driver != NULL) {
        dlclose(driver);
    }
    return told && active;
}

/* ---- What it holds ---- */

static int
read_whole(void *handle, ml_gpu_memory *out)
{
    nvml_memory_2 newer = {.version = NVML_MEMORY_2};
    if (nvml.memory_2 != NULL && nvml.memory_2(handle, &newer) == 0) {
        out->used = newer.used;
        out->total = newer.total;
        out->reserve = newer.reserved;
        return 0;
    }
    /* Here what is used includes the reserve. */
    nvml_memory older;
    if (nvml.memory(handle, &older) != 0) {
        return ML_ESOURCE;
    }
    out->used = older.used;
    out->total = older.total;
    out->reserve = ML_GPU_UNKNOWN;
    return 0;
}

static bool
is_listed(const nvml_process *processes, unsigned count, unsigned pid)
{
    for (unsigned i = 0; i < count; i++) {
        if (processes[i].pid == pid) {
            return true;
        }
    }
    return false;
}

static void
add_known(uint64_t *sum, uint64_t bytes)
{
    *sum =
        *sum == ML_GPU_UNKNOWN || bytes == UINT64_MAX ? ML_GPU_UNKNOWN : *sum + bytes;
}

/* All processes on the device, each in one of the two lists' order; false where the
 * driver does not tell. */
static bool
list_processes(void *handle, nvml_process processes[PROCESS_MAX], unsigned *count)
{
    unsigned computing = PROCESS_MAX;
    if (nvml.compute == NULL || nvml.compute(handle, &computing, processes) != 0) {
        return false;
    }
    /* A process that computes and draws is in both lists, with the same figure. */
    unsigned drawing = PROCESS_MAX - computing;
    nvml_process *more = processes + computing;
    if (nvml.graphics == NULL || nvml.graphics(handle, &drawing, more) != 0) {
        drawing = 0;
    }
    *count = computing;
    for (unsigned i = 0; i < drawing; i++) {
        if (!is_listed(processes, computing, more[i].pid)) {
            processes[(*count)++] = more[i];
        }
    }
    return true;
}

static void
read_processes(void *handle, int device, ml_gpu_memory *out)
{
    nvml_process processes[PROCESS_MAX];
    unsigned count, self = (unsigned)getpid();
    out->own = out->others = ML_GPU_UNKNOWN;
    if (!list_processes(handle, processes, &count)) {
        return;
    }
    bool listed = is_listed(processes, count, self);
    if (!listed && ml_gpu_memory_has_context(device)) {
        /* It is there under an id of another namespace. */
        return;
    }
    out->own = out->others = 0;
    for (unsigned i = 0; i < count; i++) {
        add_known(processes[i].pid == self ? &out->own : &out->others,
                  processes[i].used);
    }
}

int
ml_gpu_memory_read(int device, ml_gpu_memory *out, const char **reason)
{
    pthread_once(&nvml.once, load);
    *reason = nvml.reason;
    if (nvml.reason != NULL) {
        return ML_EUNSUPPORTED;
    }
    void *handle = handle_of(device);
    if (handle == NULL) {
        *reason = "the driver's management library does not know the device";
        return ML_EUNSUPPORTED;
    }
    ml_gpu_memory found;
    if (read_whole(handle, &found) < 0) {
        *reason = "the driver's management library does not tell the device's memory";
        return ML_ESOURCE;
    }
    read_processes(handle, device, &found);
    *out = found;
    return 0;
}
