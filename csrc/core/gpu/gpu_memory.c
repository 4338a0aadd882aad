/* Reads the memory of a whole GPU.  See gpu_memory.h. */
#include "gpu/gpu_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/system/library.h"
#include "base/system/this_process.h"
#include "gpu/driver.h"
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

/* With more processes on one device, their memory is unknown. */
#define PROCESS_MAX 512

typedef struct cuda_uuid {
    unsigned char bytes[16];
} cuda_uuid;

typedef int (*process_list)(void *device, unsigned *count, nvml_process *out);

/* Of this process; written once, by load(), except the handles. */
static struct {
    pthread_once_t once;
    const char *reason; /* NULL: it can be used */
    int (*memory)(void *device, nvml_memory *out);
    int (*memory_2)(void *device, nvml_memory_2 *out); /* NULL: an old driver */
    int (*by_uuid)(const char *uuid, void **device);
    int (*version)(char *text, unsigned size);
    process_list compute;  /* NULL: an old driver */
    process_list graphics; /* likewise */
    /* Its devices by CUDA's index, as they are found; they live as long as NVML. */
    _Atomic(void *) handles[ML_DEVICE_MAX];
} nvml = {.once = PTHREAD_ONCE_INIT};

static void
load(void)
{
    void *library = ml_library_load("libnvidia-ml.so.1");
    int (*init)(void) = NULL;
    if (library == NULL) {
        nvml.reason = "libnvidia-ml.so.1, a part of NVIDIA's driver, is not here";
        return;
    }
    if (!ml_library_function(library, "nvmlInit_v2", &init) ||
        !ml_library_function(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) ||
        !ml_library_function(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid)) {
        nvml.reason = "libnvidia-ml.so.1 lacks functions that are needed";
        return;
    }
    if (init() != 0) {
        nvml.reason = "libnvidia-ml.so.1 could not be initialised";
        return;
    }
    ml_library_function(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_2);
    ml_library_function(library, "nvmlSystemGetDriverVersion", &nvml.version);
    if (!ml_library_function(library, "nvmlDeviceGetComputeRunningProcesses_v3",
                             &nvml.compute)) {
        ml_library_function(library, "nvmlDeviceGetComputeRunningProcesses_v2",
                            &nvml.compute);
    }
    if (!ml_library_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v3",
                             &nvml.graphics)) {
        ml_library_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v2",
                            &nvml.graphics);
    }
}

/* ---- Which device ---- */

/* The identity of a CUDA device in NVML's form.  In MIG mode it is the instance's,
 * which is the part that the process can use. */
static bool
uuid_of(int device, cuda_uuid *out)
{
    int (*get_device)(int *device, int ordinal) = NULL;
    int (*get_uuid)(cuda_uuid * out, int device) = NULL;
    void *driver = ml_driver_loaded();
    int number;
    bool found = driver != NULL &&
                 ml_library_function(driver, "cuDeviceGet", &get_device) &&
                 (ml_library_function(driver, "cuDeviceGetUuid_v2", &get_uuid) ||
                  ml_library_function(driver, "cuDeviceGetUuid", &get_uuid)) &&
                 get_device(&number, device) == 0 && get_uuid(out, number) == 0;
    ml_library_close(driver);
    return found;
}

static void
write_uuid(const cuda_uuid *uuid, const char *prefix, char text[ML_GPU_NAME])
{
    int end = snprintf(text, ML_GPU_NAME, "%s", prefix);
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        end += snprintf(text + end, (size_t)(ML_GPU_NAME - end),
                        dash ? "-%02x" : "%02x", uuid->bytes[i]);
    }
}

/* NVML's device for a CUDA device, and its NAME; NULL: unknown to NVML. */
static void *
find_handle(int device, char name[ML_GPU_NAME])
{
    static const char *const prefixes[] = {"GPU-", "MIG-"};
    cuda_uuid uuid;
    void *handle;
    if (!uuid_of(device, &uuid)) {
        return NULL;
    }
    for (unsigned i = 0; i < 2; i++) {
        write_uuid(&uuid, prefixes[i], name);
        if (nvml.by_uuid(name, &handle) == 0) {
            return handle;
        }
    }
    return NULL;
}

static void *
handle_of(int device)
{
    if (device < 0 || device >= ML_DEVICE_MAX) {
        return NULL;
    }
    void *handle = atomic_load_explicit(&nvml.handles[device], memory_order_acquire);
    char name[ML_GPU_NAME];
    if (handle == NULL && (handle = find_handle(device, name)) != NULL) {
        atomic_store_explicit(&nvml.handles[device], handle, memory_order_release);
    }
    return handle;
}

static bool
has_context(int device)
{
    int (*get_device)(int *device, int ordinal) = NULL;
    int (*get_state)(int device, unsigned *flags, int *active) = NULL;
    void *driver = ml_driver_loaded();
    unsigned flags;
    int number, active = 0;
    bool told =
        driver != NULL && ml_library_function(driver, "cuDeviceGet", &get_device) &&
        ml_library_function(driver, "cuDevicePrimaryCtxGetState", &get_state) &&
        get_device(&number, device) == 0 && get_state(number, &flags, &active) == 0;
    ml_library_close(driver);
    return told && active;
}

bool
ml_gpu_memory_has_context(int device)
{
    if (!ml_driver_enter()) {
        return false;
    }
    bool has = has_context(device);
    ml_driver_leave();
    return has;
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
    /* In this version, used includes the reserve. */
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

/* All processes on the device, in the order of the two lists; false: the driver does
 * not tell. */
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

/* Reads the process PID.  If it is not listed, but THERE, it has an id of another
 * namespace. */
static void
read_processes(void *handle, unsigned pid, bool there, ml_gpu_memory *out)
{
    nvml_process processes[PROCESS_MAX];
    unsigned count;
    out->own = out->others = ML_GPU_UNKNOWN;
    if (!list_processes(handle, processes, &count) ||
        (there && !is_listed(processes, count, pid))) {
        return;
    }
    out->own = out->others = 0;
    for (unsigned i = 0; i < count; i++) {
        add_known(processes[i].pid == pid ? &out->own : &out->others,
                  processes[i].used);
    }
}

static int
read_handle(void *handle, ml_gpu_memory *out, const char **reason)
{
    if (handle == NULL) {
        *reason = "the driver's management library does not know the device";
        return ML_EUNSUPPORTED;
    }
    if (read_whole(handle, out) < 0) {
        *reason = "the driver's management library does not tell the device's memory";
        return ML_ESOURCE;
    }
    return 0;
}

/* Whether NVML can be asked; if so, call ml_driver_leave afterwards. */
static int
enter(const char **reason)
{
    if (!ml_driver_enter()) {
        *reason = ML_DRIVER_CLOSED;
        return ML_ESTATE;
    }
    pthread_once(&nvml.once, load);
    if (nvml.reason != NULL) {
        *reason = nvml.reason;
        ml_driver_leave();
        return ML_EUNSUPPORTED;
    }
    return 0;
}

int
ml_gpu_memory_read(int device, ml_gpu_memory *out, const char **reason)
{
    int result = enter(reason);
    if (result < 0) {
        return result;
    }
    void *handle = handle_of(device);
    ml_gpu_memory found;
    result = read_handle(handle, &found, reason);
    if (result == 0) {
        read_processes(handle, (unsigned)ml_this_process_id(), has_context(device),
                       &found);
        *out = found;
    }
    ml_driver_leave();
    return result;
}

int
ml_gpu_memory_read_named(const char *name, int pid, ml_gpu_memory *out,
                         const char **reason)
{
    int result = enter(reason);
    if (result < 0) {
        return result;
    }
    void *handle = NULL;
    ml_gpu_memory found;
    if (nvml.by_uuid(name, &handle) != 0) {
        handle = NULL;
    }
    result = read_handle(handle, &found, reason);
    if (result == 0) {
        read_processes(handle, (unsigned)pid, false, &found);
        *out = found;
    }
    ml_driver_leave();
    return result;
}

bool
ml_gpu_memory_name(int device, char name[ML_GPU_NAME])
{
    const char *reason;
    if (enter(&reason) < 0) {
        return false;
    }
    bool found = find_handle(device, name) != NULL;
    ml_driver_leave();
    return found;
}

bool
ml_gpu_memory_driver(char text[ML_DRIVER_VERSION])
{
    const char *reason;
    if (enter(&reason) < 0) {
        return false;
    }
    bool told = nvml.version != NULL && nvml.version(text, ML_DRIVER_VERSION) == 0;
    ml_driver_leave();
    return told;
}
