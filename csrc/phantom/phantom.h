/* The phantom device: a stand-in for the CUDA runtime and libraries.  Preloaded, it
 * lets a CUDA build of torch run its real caching allocator on a machine without a GPU.
 * Kernels do nothing; memory is address space.
 *
 * This header has the declarations that files of csrc/phantom share.  Of memlab's core,
 * they use only the rule by which the driver places memory (core/gpu/placement.h),
 * which replays use too.
 *
 * An exported function declares its parameters up to the last one that it reads: on the
 * supported ABIs, the caller cleans up. */
#ifndef ML_PHANTOM_H
#define ML_PHANTOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

#define ML_MIB ((size_t)1 << 20)
#define ML_PHANTOM_MAX_DEVICES 16

/* The unit of cudaMalloc's and cuMemCreate's memory. */
#define ML_PHANTOM_GRANULE (2 * ML_MIB)

/* Declares, and begins the definition of, a function that programs may call. */
#define ML_EXPORT(type, name, arguments) \
    __attribute__((visibility("default"))) type name arguments; \
    type name arguments

/* A call that does nothing on the phantom and reports success. */
#define ML_SUCCEED(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        return 0; \
    }

/* The same for a call that waits while the process is locked. */
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
    size_t total_bytes; /* by cudaMemGetInfo */
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
    int devices;   /* those that CUDA_VISIBLE_DEVICES leaves visible */
    int ordinals[ML_PHANTOM_MAX_DEVICES]; /* those devices' numbers among all */
    size_t total_bytes;                   /* of each device */
    bool backed;                          /* device memory has pages */
    const char *driver; /* its version; NULL: the oldest for the runtime */
    long draw;          /* of the estimated workspaces (workspace.c) */
    bool quiet;
} ml_phantom_config;

/* The configuration, read from the environment at the first call.  An invalid value
 * ends the process with one line on stderr. */
const ml_phantom_config *ml_phantom_configure(void);

/* Says on stderr, once, which devices there are and that nothing computes.  For the first
 * use of a device: a launcher that only counts them leaves it to its processes. */
void ml_phantom_tell(void);

/* The configuration's GPU.  Reads nothing else from the environment, which the program
 * may still set. */
const ml_phantom_gpu *ml_phantom_chosen_gpu(void);

/* Ends the process with one line on stderr that gives the reason. */
__attribute__((format(printf, 1, 2))) _Noreturn void
ml_phantom_refuse(const char *format, ...);

/* Ends the process with one line on stderr: the call `name` is not implemented here. */
_Noreturn void ml_phantom_unanswered(const char *name);

/* Reports on stderr, once, that the program's call `name` fails because of `why`.  Both
 * are constants. */
void ml_phantom_lacks(atomic_bool *said, const char *name, const char *why);

/* The last call that failed so, or NULL. */
const char *memlab_phantom_lacked(void);

/* Whether a convolution had a shape whose workspace was not measured (workspace.h). */
int memlab_phantom_estimated_convolutions(void);

/* A call that fails on the phantom with `error` and reports the reason. */
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

/* CUDA's version as 1000 * major + 10 * minor, of the loaded runtime library. */
int ml_phantom_cuda_version(void);

/* The driver's newest CUDA; the runtime library's version if the configuration names no
 * driver. */
int ml_phantom_driver_cuda(void);

/* cuDNN's version from that library's header. */
size_t ml_phantom_cudnn_version(void);

/* NCCL's likewise. */
int ml_phantom_nccl_version(void);

/* --- gate.c ------------------------------------------------------------ */

/* States of the process, as in cuCheckpointProcessGetState. */
enum ml_gate_state {
    ML_GATE_RUNNING,
    ML_GATE_LOCKED,
    ML_GATE_CHECKPOINTED /* its contexts are given back */
};
enum ml_gate_state ml_gate_now(void);

/* Waits while the process is locked, as every call that works on a device does. */
void ml_phantom_wait(void);

/* Runs the program's function on behalf of CUDA: Lock waits for its end. */
void ml_phantom_run_callback(void (*call)(void *data), void *data);

/* Moves between states; false if the state is another. */
bool ml_gate_move(enum ml_gate_state from, enum ml_gate_state to);

/* Locks the process once no host function of the program runs within CUDA.  Success,
 * or ML_CU_* if the process is not running, or after that many milliseconds; 0: no
 * limit. */
int ml_gate_lock(unsigned int milliseconds);

/* --- usage.c ----------------------------------------------------------- */

/* Whether the program has selected a device or allocated on it, and so has a context
 * there. */
bool ml_phantom_is_active(int device);
void ml_phantom_activate(int device);

/* Device memory in use, in bytes, with the context's share. */
size_t ml_phantom_used(int device);

/* Charges or returns physical memory.  A charge fails if it exceeds the device's
 * size. */
bool ml_phantom_charge(size_t bytes, int device);
void ml_phantom_discharge(size_t bytes, int device);

/* Posts this process's memory for the other processes that share the devices. */
void ml_phantom_post(int device);

/* --- device.c ---------------------------------------------------------- */

/* The calling thread's current device. */
int ml_phantom_device(void);

/* Writes the UUID of the `installed`-th device of all. */
void ml_phantom_uuid(unsigned char uuid[16], int installed);

/* Makes `error` the thread's last error unless it is success, and returns it. */
ml_cuda_error ml_phantom_error(ml_cuda_error error);

/* An error's text, of the runtime and of the driver, which share numbers. */
const char *ml_phantom_error_text(int error);

/* Writes attribute `attribute` (cudaDeviceAttr's numbers). */
ml_cuda_error ml_phantom_attribute(int *value, int attribute, int device);

/* --- code.c ------------------------------------------------------------ */

/* Code versions, as in cudaFuncGetAttributes: 86 for 8.6. */
typedef struct {
    int ptx;          /* of the source PTX */
    int binary;       /* of the running code */
    const char *name; /* the kernel's, mangled; "" if unknown */
} ml_code;

/* The code of a function that the GPU would run; false: there is none for it. */
bool ml_code_find(const void *function, ml_code *code);

/* The reason why the GPU cannot run the program's loaded code, or NULL. */
const char *memlab_phantom_refusal(void);

/* --- memory.c ---------------------------------------------------------- */

/* cudaMalloc and cudaFree on a given device. */
ml_cuda_error ml_phantom_malloc(void **pointer, size_t bytes, int device);
ml_cuda_error ml_phantom_free(void *pointer);

/* A handle of one of NVIDIA's libraries, which takes that much of the calling thread's
 * device while it exists; NULL: not enough memory. */
void *ml_library_new(size_t bytes);
void ml_library_free(void *handle); /* takes NULL */

/* Gives pages to device memory, or takes them away.  Does nothing if device memory is
 * not backed.  False: no pages left. */
bool ml_phantom_back(uintptr_t start, size_t bytes);
void ml_phantom_unback(uintptr_t start, size_t bytes);

/* Copies and fills, by the kind of each address. */
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

/* Posts this process's memory of the `installed`-th device of all. */
void ml_shared_post(int installed, size_t bytes);

/* Writes up to `room` other processes with memory of it; returns their number. */
unsigned int ml_shared_others(int installed, ml_phantom_user *users, unsigned int room);

/* Their bytes together. */
size_t ml_shared_used(int installed);

/* --- clock.c ----------------------------------------------------------- */

/* The time of the device's work, reported only by events. */
void ml_clock_spend(unsigned long long nanoseconds);
unsigned long long ml_clock_now(void);

/* --- values.c ---------------------------------------------------------- */

/* The most bytes of a value that is kept. */
#define ML_VALUES_MOST ((size_t)1 << 16)

/* From now on, keeps small copies from the host to a device for NCCL to deliver. */
void ml_values_use(void);
bool ml_values_in_use(void);

/* A kernel was launched. */
void ml_values_launched(void);

/* Memory changed: by a write of the host, by a fill or something unknown, by a copy or
 * (`deliver`) by a collective. */
void ml_values_write(uintptr_t start, const void *content, size_t bytes);
void ml_values_forget(uintptr_t start, size_t bytes);
void ml_values_move(uintptr_t to, uintptr_t from, size_t bytes, bool deliver);

/* A collective brought `content` from another rank. */
void ml_values_arrive(uintptr_t start, const void *content, size_t bytes);

/* Whether all of the `bytes` from `start` on are kept; if so, copies them. */
bool ml_values_find(uintptr_t start, unsigned char *content, size_t bytes);

/* Writes to `to` the largest of `count` 64-bit integers from `from` on, if all were
 * delivered. */
void ml_values_largest(uintptr_t to, uintptr_t from, size_t count);

/* Copies the delivered values in the device's `bytes` from `start` on to `content`. */
void ml_values_read(uintptr_t start, unsigned char *content, size_t bytes);

/* --- contents.c -------------------------------------------------------- */

/* Of a byte of a device. */
enum {
    ML_CONTENTS_UNKNOWN,
    ML_CONTENTS_MADE_UP, /* it follows from a value that is not known */
    ML_CONTENTS_KNOWN    /* as on a GPU */
};

/* Whether contents are kept.  All that follows does nothing before. */
bool ml_contents_in_use(void);

/* Memory changed: by a write of the host, by a fill, by something unknown, or by a copy
 * from other memory of a device (as it is, or `as_is` false: made up). */
void ml_contents_write(uintptr_t start, const void *content, size_t bytes);
void ml_contents_fill(uintptr_t start, int byte, size_t bytes);
void ml_contents_forget(uintptr_t start, size_t bytes);
void ml_contents_move(uintptr_t to, uintptr_t from, size_t bytes, bool as_is);

/* Another rank's `content` arrived: made up, as only that rank knows how it came. */
void ml_contents_arrive(uintptr_t start, const void *content, size_t bytes);

/* Whether something is known of all of the `bytes` from `start` on; if so, copies them. */
bool ml_contents_find(uintptr_t start, unsigned char *content, size_t bytes);

/* Copies what is known of the device's `bytes` from `start` on to `content`, and fills
 * the rest up where the bridge said how. */
void ml_contents_read(uintptr_t start, unsigned char *content, size_t bytes);

/* A kernel was launched that may have written anywhere, if no operator launched it. */
void ml_contents_doubt(void);

/* The capture of a graph begins, or ends. */
void ml_contents_capture(bool begins);

/* --- reduce.c ---------------------------------------------------------- */

/* The kernel `name` was launched with `arguments`. */
void ml_reduce_launched(const char *name, void *const *arguments);

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

/* False: no memory. */
bool ml_spans_insert(ml_spans *spans, uintptr_t start, size_t bytes);

/* Removes the range that starts at `start`; returns its size, or 0 if there is none. */
size_t ml_spans_remove(ml_spans *spans, uintptr_t start);

/* The index of the first range that ends after `address`. */
size_t ml_spans_after(const ml_spans *spans, uintptr_t address);

/* The range that contains `address`, or NULL. */
const ml_span *ml_spans_find(const ml_spans *spans, uintptr_t address);

/* --- space.c ----------------------------------------------------------- */

/* Reserves address space on a device; 0: none left.  Thread-safe. */
uintptr_t ml_space_reserve(size_t bytes, size_t alignment, int device);

/* Releases a reservation; returns its size in bytes, or 0 if there is none. */
size_t ml_space_release(uintptr_t start);

/* The device whose reservation contains `address`, or -1.  Writes the reservation
 * unless NULL. */
int ml_space_find(uintptr_t address, ml_span *reservation);

#endif
