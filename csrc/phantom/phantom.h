/* The phantom device: a stand-in for the CUDA runtime and libraries, preloaded
 * into a program so that a CUDA build of torch runs its real caching allocator
 * on a machine without a GPU. Kernels do nothing; memory is address space.
 *
 * This header holds what the files of csrc/phantom share. They know CUDA's ABI
 * (cuda_abi.h) and nothing of Python, of torch or of memlab's core, but for the rule
 * by which the driver places memory (core/gpu/placement.h), which replays use too.
 *
 * An exported function declares its parameters only as far as the last one it
 * reads: on the supported ABIs the caller cleans up, so the rest may be left out.
 */
#ifndef ML_PHANTOM_H
#define ML_PHANTOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

#define ML_MIB ((size_t)1 << 20)
#define ML_PHANTOM_MAX_DEVICES 16

/* cudaMalloc and cuMemCreate hand out memory in multiples of this. */
#define ML_PHANTOM_GRANULE (2 * ML_MIB)

/* Declares and begins the definition of a function that programs may call. */
#define ML_EXPORT(type, name, arguments) \
    __attribute__((visibility("default"))) type name arguments; \
    type name arguments

/* A call that does nothing on the phantom and reports success. */
#define ML_SUCCEED(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        return 0; \
    }

/* The same for one that waits while the process is locked. */
#define ML_SUCCEED_UNLOCKED(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        ml_phantom_wait(); \
        return 0; \
    }

typedef struct {
    const char *name;      /* as given to --gpu */
    const char *full_name; /* as the driver reports it */
    int major, minor;      /* compute capability */
    int processors;        /* streaming multiprocessors */
    int bus_bits;
    int clock_khz;
    int memory_clock_khz;
    size_t total_bytes; /* as cudaMemGetInfo reports it */
    size_t l2_bytes;
} ml_phantom_gpu;

typedef struct {
    int major, minor;
    int threads_per_processor;
    int blocks_per_processor;
    size_t shared_per_processor; /* bytes */
    size_t shared_per_block;     /* bytes, the opt-in limit */
    size_t shared_reserved;      /* bytes a block */
} ml_phantom_capability;

typedef struct {
    const ml_phantom_gpu *gpu;
    const ml_phantom_capability *capability;
    int installed; /* devices */
    int devices;   /* of them, those that CUDA_VISIBLE_DEVICES leaves */
    int ordinals[ML_PHANTOM_MAX_DEVICES]; /* those devices' numbers among all */
    size_t total_bytes;                   /* of each device */
    bool backed;                          /* device memory has pages */
    const char *driver; /* its version, NULL for the oldest that serves the runtime */
    bool quiet;
} ml_phantom_config;

/* The configuration, read from the environment at the first call. A value that
 * makes no sense ends the process with one line on stderr. */
const ml_phantom_config *ml_phantom_configure(void);

/* The configuration's GPU. Reads nothing else of the environment, which the program may
 * still be about to set. */
const ml_phantom_gpu *ml_phantom_chosen_gpu(void);

/* Ends the process with one line on stderr that says why. */
__attribute__((format(printf, 1, 2))) _Noreturn void
ml_phantom_refuse(const char *format, ...);

/* Ends the process with one line on stderr: the call `name` has no answer here. */
_Noreturn void ml_phantom_unanswered(const char *name);

/* Says on stderr, once, that the call `name` of the program fails since `why`. */
void ml_phantom_lacks(atomic_bool *said, const char *name, const char *why);

/* A call that fails on the phantom with `error`, and says why. */
#define ML_LACKS(type, name, error, why) \
    ML_EXPORT(type, name, (void)) \
    { \
        static atomic_bool said; \
        ml_phantom_lacks(&said, #name, why); \
        return error; \
    }

/* Memory is shared with no other process. */
#define ML_NOT_SHARED \
    "memory of the device is not shared between processes; send it through the " \
    "host's " \
    "memory (tensor.cpu())"

/* A new non-null opaque value for a handle that has no content. */
void *ml_phantom_handle(void);

/* CUDA's version as 1000 * major + 10 * minor: that of the runtime library that
 * the process has loaded. */
int ml_phantom_cuda_version(void);

/* The newest CUDA that the driver knows: the runtime library's version where the
 * configuration names no driver. */
int ml_phantom_driver_cuda(void);

/* cuDNN's version as that library's header gives it. */
size_t ml_phantom_cudnn_version(void);

/* NCCL's likewise. */
int ml_phantom_nccl_version(void);

/* --- gate.c ------------------------------------------------------------ */

/* Of the process, as cuCheckpointProcessGetState tells them. */
enum ml_gate_state {
    ML_GATE_RUNNING,
    ML_GATE_LOCKED,
    ML_GATE_CHECKPOINTED /* it has given its contexts back */
};
enum ml_gate_state ml_gate_now(void);

/* Waits while the process is locked, as every call does that works on a device. */
void ml_phantom_wait(void);

/* Runs a function that the program gave CUDA to run: Lock waits for its end. */
void ml_phantom_run_callback(void (*call)(void *data), void *data);

/* From one state to the next; false where the state is another. */
bool ml_gate_move(enum ml_gate_state from, enum ml_gate_state to);

/* Locks the process once no function of the program runs within CUDA: success, or ML_CU_*
 * where it does not run, or after that many milliseconds, 0 being no limit. */
int ml_gate_lock(unsigned int milliseconds);

/* --- usage.c ----------------------------------------------------------- */

/* Whether the program has used a device, by selecting it or allocating on it: a
 * device that it used has its context. */
bool ml_phantom_is_active(int device);
void ml_phantom_activate(int device);

/* Bytes of device memory in use, the context's own share included. */
size_t ml_phantom_used(int device);

/* Charges or gives back physical memory. Charging fails when it would exceed the
 * device's size. */
bool ml_phantom_charge(size_t bytes, int device);
void ml_phantom_discharge(size_t bytes, int device);

/* Says to the other processes that share the devices what this one takes. */
void ml_phantom_post(int device);

/* --- device.c ---------------------------------------------------------- */

/* The calling thread's current device. */
int ml_phantom_device(void);

/* Writes the UUID of the `installed`-th device of all. */
void ml_phantom_uuid(unsigned char uuid[16], int installed);

/* Makes `error` the thread's last error unless it is success, and returns it. */
ml_cuda_error ml_phantom_error(ml_cuda_error error);

/* What an error is, for people: of the runtime, and of the driver, which shares numbers. */
const char *ml_phantom_error_text(int error);

/* Writes attribute `attribute` (cudaDeviceAttr's numbers). */
ml_cuda_error ml_phantom_attribute(int *value, int attribute, int device);

/* --- code.c ------------------------------------------------------------ */

/* The versions of code as cudaFuncGetAttributes tells them: 86 for 8.6. */
typedef struct {
    int ptx;    /* of what it was compiled of */
    int binary; /* of what runs */
} ml_code;

/* The code that the GPU would run of a function; false where it has none for it. */
bool ml_code_find(const void *function, ml_code *code);

/* Why the GPU cannot run what the program has loaded, or NULL. */
const char *memlab_phantom_refusal(void);

/* --- memory.c ---------------------------------------------------------- */

/* cudaMalloc and cudaFree on a given device. */
ml_cuda_error ml_phantom_malloc(void **pointer, size_t bytes, int device);
ml_cuda_error ml_phantom_free(void *pointer);

/* A handle of one of NVIDIA's libraries, which takes so much of the calling thread's
 * device while it lives; NULL: there is not so much. */
void *ml_library_new(size_t bytes);
void ml_library_free(void *handle); /* takes NULL */

/* Gives pages to device memory, or takes them away. Does nothing where device
 * memory is not backed. False when there are none to give. */
bool ml_phantom_back(uintptr_t start, size_t bytes);
void ml_phantom_unback(uintptr_t start, size_t bytes);

/* Copies and fills by the addresses' own kinds. */
ml_cuda_error ml_phantom_copy(void *to, const void *from, size_t bytes);
void ml_phantom_fill(void *to, int byte, size_t bytes);

/* Whether a kernel could read `pointer`: device memory, or pinned. */
bool ml_phantom_is_reachable(const void *pointer);

/* Whether there is managed memory (cudaMallocManaged). */
bool ml_phantom_has_managed(void);

/* --- shared.c ---------------------------------------------------------- */

typedef struct {
    unsigned int pid;
    size_t bytes;
} ml_phantom_user;

/* Says what this process takes of the `installed`-th device of all. */
void ml_shared_post(int installed, size_t bytes);

/* Writes up to `room` other processes that take memory of it; returns how many. */
unsigned int ml_shared_others(int installed, ml_phantom_user *users, unsigned int room);

/* The bytes that they take together. */
size_t ml_shared_used(int installed);

/* --- clock.c ----------------------------------------------------------- */

/* The time of the device's work, which only events tell. */
void ml_clock_spend(unsigned long long nanoseconds);
unsigned long long ml_clock_now(void);

/* --- values.c ---------------------------------------------------------- */

/* The most bytes of a value that is kept. */
#define ML_VALUES_MOST ((size_t)1 << 16)

/* From now on small copies from the host to a device are kept, for NCCL to deliver. */
void ml_values_use(void);
bool ml_values_in_use(void);

/* A kernel was launched. */
void ml_values_launched(void);

/* The host wrote to a device, a fill or something unknown did, a copy or (`deliver`) a
 * collective moved what lies there. */
void ml_values_write(uintptr_t start, const void *content, size_t bytes);
void ml_values_forget(uintptr_t start, size_t bytes);
void ml_values_move(uintptr_t to, uintptr_t from, size_t bytes, bool deliver);

/* Writes what was delivered to the device's `bytes` from `start` over `content`. */
void ml_values_read(uintptr_t start, unsigned char *content, size_t bytes);

/* --- spans.c ----------------------------------------------------------- */

/* Ranges of addresses that do not overlap, in ascending order. Not thread-safe. */
typedef struct {
    uintptr_t start;
    size_t bytes;
} ml_span;

typedef struct {
    ml_span *items; /* owned */
    size_t count;
    size_t capacity;
} ml_spans;

/* False when memory runs out. */
bool ml_spans_insert(ml_spans *spans, uintptr_t start, size_t bytes);

/* Removes the range that starts at `start`; its size, or 0 when there is none. */
size_t ml_spans_remove(ml_spans *spans, uintptr_t start);

/* The index of the first range that ends after `address`. */
size_t ml_spans_after(const ml_spans *spans, uintptr_t address);

/* The range that `address` lies in, or NULL. */
const ml_span *ml_spans_find(const ml_spans *spans, uintptr_t address);

/* --- space.c ----------------------------------------------------------- */

/* Reserves address space on a device; 0 when it is used up. Thread-safe. */
uintptr_t ml_space_reserve(size_t bytes, size_t alignment, int device);

/* Gives a reservation back; returns its size in bytes, 0 when there is none. */
size_t ml_space_release(uintptr_t start);

/* The device on which `address` lies in a reservation, which is written unless it is
 * NULL; -1 where it lies in none. */
int ml_space_find(uintptr_t address, ml_span *reservation);

#endif
