/* NVML, the driver's management library, which programs load by name (loader.c).
 *
 * torch asks NVML for a process's memory, the links between devices and, without the
 * runtime, their number; pynvml asks more.  Facts of the phantom are answered.
 * Sensors, links and fabrics are not available, and a missing function is missing as in
 * an older driver; callers handle both.
 *
 * NVML counts devices before CUDA_VISIBLE_DEVICES, from outside the process.  A device
 * takes memory from its first use by this process.  As with driver 580, the locked
 * process itself waits (gate.c). */
#include "phantom.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    VERSION_MISMATCH = 25,
};

/* A versioned structure begins with its version, whose low three bytes are its size. */
#define VERSION_SIZE(version) ((version)&0xffffffU)

typedef struct {
    unsigned long long total, free, used; /* bytes */
} memory_info;

#define MEMORY_INFO_2 0x02000028U

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used; /* bytes */
} memory_info_2;

_Static_assert(sizeof(memory_info_2) == VERSION_SIZE(MEMORY_INFO_2), "nvmlMemory_v2_t");

typedef struct {
    unsigned int gpu, memory; /* percent */
} utilization;

typedef struct {
    unsigned int pid;
    unsigned long long used; /* bytes */
} process_info;

typedef struct {
    unsigned int pid;
    unsigned long long used; /* bytes */
    unsigned int gpu_instance, compute_instance;
} process_info_2;

typedef struct {
    char legacy_bus_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

#define FABRIC_INFO_2 0x02000024U
#define FABRIC_INFO_3 0x03000028U

/* A handle is 1 + the installed device's number. */
static void *
handle_of(int device)
{
    return (void *)(uintptr_t)(device + 1);
}

/* The installed device's number, or -1. */
static int
device_of(const void *handle)
{
    uintptr_t number = (uintptr_t)handle;

    ml_phantom_wait();
    return number >= 1 && number <= (uintptr_t)ml_phantom_configure()->installed
               ? (int)number - 1
               : -1;
}

/* This process's bytes of an installed device. */
static size_t
used_bytes(int installed)
{
    const ml_phantom_config *config = ml_phantom_configure();

    for (int i = 0; i < config->devices; i++) {
        if (config->ordinals[i] == installed && ml_phantom_is_active(i) &&
            ml_gate_now() != ML_GATE_CHECKPOINTED) {
            return ml_phantom_used(i);
        }
    }
    return 0;
}

/* --- The library --------------------------------------------------------- */

ML_SUCCEED_UNLOCKED(nvmlInit)
ML_SUCCEED_UNLOCKED(nvmlInit_v2)
ML_SUCCEED_UNLOCKED(nvmlInitWithFlags)
ML_SUCCEED_UNLOCKED(nvmlShutdown)

ML_EXPORT(const char *, nvmlErrorString, (int error))
{
    switch (error) {
    case SUCCESS:
        return "Success";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case NOT_FOUND:
        return "Not Found";
    case INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case VERSION_MISMATCH:
        return "Argument Version Mismatch";
    default:
        return "Unknown Error";
    }
}

ML_EXPORT(int, nvmlSystemGetCudaDriverVersion, (int *version))
{
    *version = ml_phantom_driver_cuda();
    return SUCCESS;
}

ML_EXPORT(int, nvmlSystemGetCudaDriverVersion_v2, (int *version))
{
    return nvmlSystemGetCudaDriverVersion(version);
}

static int
write_text(char *to, unsigned int size, const char *text)
{
    if (strlen(text) >= size) {
        return INSUFFICIENT_SIZE;
    }
    strcpy(to, text);
    return SUCCESS;
}

/* The oldest driver for the loaded runtime, from CUDA's release notes. */
#define DRIVER_12 "525.60.13"
#define DRIVER_13 "580.65.06"

static const char *
driver_version(void)
{
    ml_phantom_wait();
    const char *named = ml_phantom_configure()->driver;

    return named != NULL                        ? named
           : ml_phantom_cuda_version() >= 13000 ? DRIVER_13
                                                : DRIVER_12;
}

ML_EXPORT(int, nvmlSystemGetDriverVersion, (char *version, unsigned int size))
{
    return write_text(version, size, driver_version());
}

ML_EXPORT(int, nvmlSystemGetNVMLVersion, (char *version, unsigned int size))
{
    char whole[80];

    snprintf(whole, sizeof whole, "%d.%s", ml_phantom_driver_cuda() / 1000,
             driver_version());
    return write_text(version, size, whole);
}

/* --- Which device -------------------------------------------------------- */

ML_EXPORT(int, nvmlDeviceGetCount_v2, (unsigned int *count))
{
    *count = (unsigned int)ml_phantom_configure()->installed;
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetCount, (unsigned int *count))
{
    return nvmlDeviceGetCount_v2(count);
}

ML_EXPORT(int, nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void **handle))
{
    if (index >= (unsigned int)ml_phantom_configure()->installed) {
        return INVALID_ARGUMENT;
    }
    *handle = handle_of((int)index);
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetHandleByIndex, (unsigned int index, void **handle))
{
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

/* The id is domain:bus:device.function in hexadecimal; phantom devices differ only in
 * the bus. */
ML_EXPORT(int, nvmlDeviceGetHandleByPciBusId_v2, (const char *id, void **handle))
{
    unsigned int domain, bus, device;

    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
        return INVALID_ARGUMENT;
    }
    if (domain != 0 || device != 0 || bus < 1 ||
        bus > (unsigned int)ml_phantom_configure()->installed) {
        return NOT_FOUND;
    }
    *handle = handle_of((int)bus - 1);
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetHandleByPciBusId, (const char *id, void **handle))
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, handle);
}

ML_EXPORT(int, nvmlDeviceGetUUID, (const void *handle, char *text, unsigned int size))
{
    unsigned char id[16];
    char whole[48];
    int end = snprintf(whole, sizeof whole, "GPU-");

    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    ml_phantom_uuid(id, device_of(handle));
    for (int i = 0; i < 16; i++) {
        bool starts_group = i == 4 || i == 6 || i == 8 || i == 10;

        end += snprintf(whole + end, sizeof whole - (size_t)end,
                        starts_group ? "-%02x" : "%02x", id[i]);
    }
    return write_text(text, size, whole);
}

ML_EXPORT(int, nvmlDeviceGetHandleByUUID, (const char *id, void **handle))
{
    for (int i = 0; i < ml_phantom_configure()->installed; i++) {
        char own[48];

        if (nvmlDeviceGetUUID(handle_of(i), own, sizeof own) == SUCCESS &&
            strcmp(own, id) == 0) {
            *handle = handle_of(i);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

ML_EXPORT(int, nvmlDeviceGetIndex, (const void *handle, unsigned int *index))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    *index = (unsigned int)device_of(handle);
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetName, (const void *handle, char *name, unsigned int size))
{
    return device_of(handle) < 0
               ? INVALID_ARGUMENT
               : write_text(name, size, ml_phantom_configure()->gpu->full_name);
}

ML_EXPORT(int, nvmlDeviceGetCudaComputeCapability,
          (const void *handle, int *major, int *minor))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    *major = ml_phantom_configure()->gpu->major;
    *minor = ml_phantom_configure()->gpu->minor;
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetPciInfo_v3, (const void *handle, pci_info *info))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    memset(info, 0, sizeof *info);
    info->bus = (unsigned int)device_of(handle) + 1;
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0",
             info->bus & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus & 0xff);
    return SUCCESS;
}

/* --- What it does -------------------------------------------------------- */

ML_EXPORT(int, nvmlDeviceGetMemoryInfo, (const void *handle, memory_info *info))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    info->total = ml_phantom_configure()->total_bytes;
    info->used = used_bytes(device_of(handle)) + ml_shared_used(device_of(handle));
    info->free = info->total > info->used ? info->total - info->used : 0;
    return SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetMemoryInfo_v2, (const void *handle, memory_info_2 *info))
{
    memory_info plain;

    if (info->version != MEMORY_INFO_2) {
        return VERSION_MISMATCH;
    }
    int error = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (error == SUCCESS) {
        info->total = plain.total;
        info->reserved = 0;
        info->free = plain.free;
        info->used = plain.used;
    }
    return error;
}

/* Kernels do nothing, so the device is always idle. */
ML_EXPORT(int, nvmlDeviceGetUtilizationRates, (const void *handle, utilization *rates))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    *rates = (utilization){0, 0};
    return SUCCESS;
}

#define MAX_USERS 65

/* The processes with memory of a device: this one, if it has any, and the others.
 * Writes their number; returns whether there is room for them. */
static int
list_users(const void *handle, unsigned int *count, ml_phantom_user users[MAX_USERS])
{
    unsigned int room = *count;
    int device = device_of(handle);

    if (device < 0) {
        return INVALID_ARGUMENT;
    }
    users[0] = (ml_phantom_user){(unsigned int)getpid(), used_bytes(device)};
    unsigned int self = users[0].bytes > 0;
    *count = self + ml_shared_others(device, users + self, MAX_USERS - self);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

ML_EXPORT(int, nvmlDeviceGetComputeRunningProcesses,
          (const void *handle, unsigned int *count, process_info *processes))
{
    ml_phantom_user users[MAX_USERS];
    int error = list_users(handle, count, users);

    for (unsigned int i = 0; error == SUCCESS && i < *count; i++) {
        processes[i].pid = users[i].pid;
        processes[i].used = users[i].bytes;
    }
    return error;
}

ML_EXPORT(int, nvmlDeviceGetComputeRunningProcesses_v2,
          (const void *handle, unsigned int *count, process_info_2 *processes))
{
    ml_phantom_user users[MAX_USERS];
    int error = list_users(handle, count, users);

    for (unsigned int i = 0; error == SUCCESS && i < *count; i++) {
        /* No instances: the whole GPU. */
        processes[i] =
            (process_info_2){users[i].pid, users[i].bytes, UINT32_MAX, UINT32_MAX};
    }
    return error;
}

ML_EXPORT(int, nvmlDeviceGetComputeRunningProcesses_v3,
          (const void *handle, unsigned int *count, process_info_2 *processes))
{
    return nvmlDeviceGetComputeRunningProcesses_v2(handle, count, processes);
}

/* As cudaDeviceCanAccessPeer. */
ML_EXPORT(int, nvmlDeviceGetP2PStatus,
          (const void *handle, const void *peer, int capability, int *status))
{
    (void)capability;
    if (device_of(handle) < 0 || device_of(peer) < 0) {
        return INVALID_ARGUMENT;
    }
    *status = 0; /* NVML_P2P_STATUS_OK */
    return SUCCESS;
}

/* All zeros: a GPU without a fabric.  torch 2.13 asserts that this call succeeds. */
ML_EXPORT(int, nvmlDeviceGetGpuFabricInfoV, (const void *handle, unsigned int *info))
{
    if (device_of(handle) < 0) {
        return INVALID_ARGUMENT;
    }
    if (*info != FABRIC_INFO_2 && *info != FABRIC_INFO_3) {
        return VERSION_MISMATCH;
    }
    memset(info + 1, 0, VERSION_SIZE(*info) - sizeof *info);
    return SUCCESS;
}

/* --- What the phantom has not -------------------------------------------- */

#define ML_NOT_SUPPORTED(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        return NOT_SUPPORTED; \
    }

ML_NOT_SUPPORTED(nvmlDeviceGetClockInfo)
ML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
ML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ML_NOT_SUPPORTED(nvmlDeviceGetPowerUsage)
ML_NOT_SUPPORTED(nvmlDeviceGetTemperature)
