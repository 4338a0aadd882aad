/* What the files of csrc/torch share with each other, and the small table of native
 * stack functions that memlab._core uses for stacks="all".
 *
 * Everything outside the C++ section compiles as C11 and names no torch type. */
#ifndef ML_BRIDGE_H
#define ML_BRIDGE_H

#include "../core/memlab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The capsule memlab._torch._native holds a `const ml_native *` of this name. */
#define ML_NATIVE_CAPSULE "memlab._torch._native"

/* One symbolised native frame.  Pointers are borrowed for the length of the call. */
typedef struct ml_native_frame {
    const char *file;     /* "??" where unknown */
    const char *function; /* demangled; "??" where unknown */
    uint64_t line;        /* 0 where unknown */
} ml_native_frame;

/* Receives frame INDEX of the list given to symbolize.  A non-zero return stops. */
typedef int (*ml_native_visitor)(void *context, size_t index,
                                 const ml_native_frame *frame);

typedef struct ml_native {
    uint32_t size;    /* of this struct, bytes */
    uint32_t version; /* ML_ABI_VERSION */
    /* Writes up to CAPACITY program counters of the calling thread, innermost first,
     * and returns their number, 0 where the stack could not be walked.  It takes a
     * lock and memory, never the GIL: for the opt-in path of stacks="all" only. */
    size_t (*capture)(uint64_t *pcs, size_t capacity);
    /* Names COUNT program counters in the mode of TORCH_SYMBOLIZE_MODE.  Slow (it may
     * run addr2line): call it once for all distinct counters, without the GIL.  A frame
     * that cannot be named is "??", never an error. */
    int (*symbolize)(const uint64_t *pcs, size_t count, ml_native_visitor visit,
                     void *context);
} ml_native;

/* The capsule memlab._torch._tensors holds a `const ml_tensors *` of this name. */
#define ML_TENSORS_CAPSULE "memlab._torch._tensors"

/* Where the storage of a tensor lies. */
typedef struct ml_tensor {
    uint64_t addr;  /* never 0 */
    uint64_t bytes; /* of the whole storage */
    int device;     /* index; 0 for the CPU */
    int cuda;       /* 0: on the CPU */
} ml_tensor;

/* Of TENSOR, a PyObject * that must be a torch.Tensor, with the GIL held: 1, or 0 where
 * there is none (no gradient; meta, fake and sparse tensors). */
typedef struct ml_tensors {
    uint32_t size;    /* of this struct, bytes */
    uint32_t version; /* ML_ABI_VERSION */
    int (*storage)(const void *tensor, ml_tensor *out);
    int (*gradient)(const void *tensor, ml_tensor *out);
} ml_tensors;

/* Called when the CUDA allocator is out of memory, before torch raises: on the
 * allocating thread, without the allocator's lock, with or without the GIL. */
typedef void (*ml_oom_hook)(int64_t device, uint64_t alloc_bytes, uint64_t total_bytes,
                            uint64_t free_bytes);

/* native.cpp */
const ml_native *ml_native_table(void);

/* tensors.cpp */
const ml_tensors *ml_tensors_table(void);

/* clock.cpp: converts c10's approximate ticks to unix nanoseconds, in place. */
int ml_clock_init(void);
int ml_clock_unix_ns(uint64_t *ticks, size_t stride_bytes, size_t count);

/* cpu.cpp.  The sources are static: valid for the life of the process. */
const ml_source *ml_cpu_source(const ml_api *api);
/* In a forked child: record nothing until the child itself asks. */
void ml_cpu_forked(void);
typedef struct ml_cpu_counters {
    uint64_t live;      /* tracked allocations not yet freed */
    uint64_t untracked; /* allocations seen while recording that could not be tracked */
    int installed;      /* torch's CPU allocator is memlab's wrapper */
} ml_cpu_counters;
void ml_cpu_count(ml_cpu_counters *out);

/* host.cpp: as ml_source.pinned. */
int ml_host_memory(uint64_t *in_use, uint64_t *held);

/* cuda.cpp, only where torch is built for CUDA. */
const ml_source *ml_cuda_source(const ml_api *api);
void ml_cuda_forked(void);
/* What to call when CUDA is out of memory; NULL: nothing. */
void ml_cuda_set_oom_hook(ml_oom_hook hook);
/* Has torch call the hook from now on.  ML_ESTATE: CUDA is not initialised yet. */
int ml_cuda_observe_oom(void);
/* A sentence about this thread's last failure in cuda.cpp. */
const char *ml_cuda_error(void);

/* autograd.cpp: for the callbacks, alone in its object like tracker.cpp.  Fills sequence,
 * autograd_thread, ML_EVENT_BACKWARD and, for an allocation, next and next_thread of
 * EVENT, whose action is set and whose next and next_thread are 0; where a node runs, *TYPE becomes the
 * mangled name of its C++ type (static), else it is left. */
void ml_autograd_fill(ml_event *event, const char **type)
#ifdef __cplusplus
    noexcept
#endif
    ;

/* tracker.cpp: the callback itself, alone in its object so that its symbols prove what
 * it can reach. */
void ml_tracker_bind(const ml_api *api, const ml_source *source);
void ml_tracker_listen(int enabled);
void ml_tracker_set_devices(int count);
/* Between these two, SNAPSHOT events of this thread number the devices from 0. */
void ml_tracker_walk_begin(void);
void ml_tracker_walk_end(void);

/* regions.cpp.  SOURCE is a bit; called by one thread at a time, as the recorder enables
 * sources. */
#define ML_REGIONS_CPU 1u
#define ML_REGIONS_CUDA 2u
void ml_regions_bind(const ml_api *api);
void ml_regions_listen(unsigned source, int enabled);
/* In a forked child: tell nothing, for ever. */
void ml_regions_forked(void);

#ifdef __cplusplus
}
#endif
#endif
