/* Declarations that the files of csrc/torch share, and the table of native stack
 * functions that memlab._core uses for stacks="all".
 *
 * Everything outside the C++ section compiles as C11 and names no torch type. */
#ifndef ML_BRIDGE_H
#define ML_BRIDGE_H

#include "memlab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The capsule memlab._torch._native holds a `const ml_native *` of this name. */
#define ML_NATIVE_CAPSULE "memlab._torch._native"

/* One symbolised native frame.  Pointers are borrowed for the length of the call. */
typedef struct ml_native_frame {
    const char *file;     /* "??" if unknown */
    const char *function; /* demangled; "??" if unknown */
    uint64_t line;        /* 0 if unknown */
} ml_native_frame;

/* Receives frame INDEX of the list given to symbolize.  A non-zero return stops. */
typedef int (*ml_native_visitor)(void *context, size_t index,
                                 const ml_native_frame *frame);

typedef struct ml_native {
    uint32_t size;    /* of this struct, bytes */
    uint32_t version; /* ML_ABI_VERSION */
    /* Writes the program counters of the calling thread, innermost first.  Returns
     * their number; 0: the stack could not be walked.  Of more than CAPACITY (even),
     * writes half from each end.  Takes a lock and memory, never the GIL: only for
     * stacks="all". */
    size_t (*capture)(uint64_t *pcs, size_t capacity);
    /* Names COUNT program counters, in the mode of TORCH_SYMBOLIZE_MODE.  Slow (it may
     * run addr2line): call it once for all distinct counters, without the GIL.  A frame
     * without a name is "??", never an error. */
    int (*symbolize)(const uint64_t *pcs, size_t count, ml_native_visitor visit,
                     void *context);
} ml_native;

/* The capsule memlab._torch._tensors holds a `const ml_tensors *` of this name. */
#define ML_TENSORS_CAPSULE "memlab._torch._tensors"

/* The storage of a tensor. */
typedef struct ml_tensor {
    uint64_t addr;    /* of its memory; never 0 */
    uint64_t bytes;   /* of the whole storage */
    uint64_t storage; /* address of torch's StorageImpl, shared by views */
    int device;       /* index; 0 for the CPU */
    int cuda;         /* 0: on the CPU */
} ml_tensor;

/* Bits of ml_tensor_part.flags.  LEAF: requires a gradient, and no operation made it.
 * WRAPPER: a Python subclass whose memory is that of its attributes.  RESULT: requires a
 * gradient, and an operation made it. */
#define ML_TENSOR_LEAF 0x1u
#define ML_TENSOR_WRAPPER 0x2u
#define ML_TENSOR_RESULT 0x4u

/* A tensor on a device of any kind, with or without memory of its own: a Python tensor,
 * its gradient, or a component of a sparse, nested or quantised one.  Everything is
 * borrowed for the call. */
typedef struct ml_tensor_part {
    const char *suffix; /* path from the tensor: "", ".grad", ".grad._values" */
    const void *object; /* PyObject * of a wrapper and of the queried tensor */
    uint64_t impl;      /* address of torch's TensorImpl, which identifies a tensor */
    uint64_t whole;     /* TensorImpl of the tensor whose component it is, or its own */
    uint64_t storage;   /* address of torch's StorageImpl; 0: none */
    uint64_t addr;      /* of the storage's memory; 0: none, as for meta and fake */
    uint64_t bytes;     /* of that memory */
    uint64_t numel;     /* elements */
    const int64_t *sizes; /* DIMS of them; for a nested tensor, of its buffer */
    size_t dims;
    const char *device_type; /* "cuda", "cpu", "meta" */
    int device_number;       /* torch's number of that type: CPU 0, CUDA 1 */
    int device;              /* index; 0 if there is only one */
    uint32_t flags;
} ml_tensor_part;

/* Receives one part of a tensor.  A non-zero return stops. */
typedef int (*ml_tensor_visitor)(void *context, const ml_tensor_part *part);

/* For TENSOR, a PyObject * that must be a torch.Tensor, with the GIL held. */
#define ML_FETCHED 32

typedef struct ml_tensors {
    uint32_t size;    /* of this struct, bytes */
    uint32_t version; /* ML_ABI_VERSION */
    /* 1; or 0 without a storage (no gradient; meta, fake and sparse tensors). */
    int (*storage)(const void *tensor, ml_tensor *out);
    int (*gradient)(const void *tensor, ml_tensor *out);
    /* What the above read of COUNT tensors, ML_FETCHED at most, comes into the cache:
     * they are where a training step has not been since the last one, and one after the
     * other each would be waited for. */
    void (*fetch)(const void *const *tensors, size_t count, int gradients);
    /* Every part of TENSOR, its gradient's last.  The caller queries a wrapper's
     * attributes.  Returns VISIT's non-zero result, else 0; a tensor that raises has no
     * parts. */
    int (*parts)(const void *tensor, ml_tensor_visitor visit, void *context);
    /* A mark of TENSOR, to be released.  It distinguishes TENSOR from a later tensor at
     * its address.  NULL if it can have none (inference tensors, other objects).
     * Unlike a weak reference, a mark allows torch.utils.swap_tensors, by which modules
     * replace parameters.  Views of one tensor share a mark. */
    void *(*mark)(const void *tensor);
    int (*marked)(const void *tensor, const void *mark);
    void (*release)(void *mark); /* takes NULL */
} ml_tensors;

/* The capsule memlab._torch._storages holds a `const ml_storages *` of this name, if
 * torch is built for CUDA. */
#define ML_STORAGES_CAPSULE "memlab._torch._storages"

/* Why memory stays on the GPUs:
 * private_pool  of a pool of CUDA graphs or a MemPool, which hold raw addresses
 * shared        more than one storage has it: with other processes, by DLPack, by a slice
 * external      not of torch's allocator
 * unreached     of torch's allocator, and no tensor or storage of Python leads to it */
#define ML_LEFT(XX) \
    XX(private_pool) \
    XX(shared) \
    XX(external) \
    XX(unreached)

typedef struct ml_left {
#define XX(name) uint64_t name; /* bytes */
    ML_LEFT(XX)
#undef XX
} ml_left;

/* PyObject *s that must be torch.Tensors and torch.UntypedStorages; borrowed. */
typedef struct ml_objects {
    const void *const *tensors;
    size_t tensor_count;
    const void *const *storages;
    size_t storage_count;
} ml_objects;

/* Tensors whose memory is on the host for a while.  It keeps none of them alive. */
typedef struct ml_yielded ml_yielded;

/* All return 0 or ML_E*. */
typedef struct ml_storages {
    uint32_t size;    /* of this struct, bytes */
    uint32_t version; /* ML_ABI_VERSION */
    /* Waits for all work on the devices that have torch's memory, without the GIL. */
    int (*synchronize)(void);
    /* With the GIL: copies the memory of OBJECTS to the host, of which HOST_LEFT bytes can
     * be taken (UINT64_MAX: unknown), and turns them into CPU tensors.  This includes
     * gradients, tensors saved by autograd and the like.  The caller frees *OUT; *BYTES is
     * the memory that torch's allocator got back.  On failure nothing changes. */
    int (*yield)(const ml_objects *objects, uint64_t host_left, ml_yielded **out,
                 uint64_t *bytes, ml_left *left);
    /* Gives the unused memory of torch's allocator back to the driver, without the
     * GIL. */
    int (*empty_cache)(void);
    /* With the GIL: undoes yield() for the tensors still alive, with their current
     * contents.  A second call does nothing.  On failure nothing changes, and the call
     * can be repeated. */
    int (*restore)(ml_yielded *yielded);
    /* With the GIL; accepts NULL.  Memory that was not restored stays on the CPU. */
    void (*free)(ml_yielded *yielded);
    /* A sentence about the calling thread's last failure; NULL: out of memory. */
    const char *(*error)(void);
} ml_storages;

/* The capsule memlab._torch._graph holds a `const ml_graph *` of this name. */
#define ML_GRAPH_CAPSULE "memlab._torch._graph"

/* Kinds of a thing in a walk: a PyObject, an autograd node, a C++ tensor. */
enum {
    ML_GRAPH_OBJECT,
    ML_GRAPH_NODE,
    ML_GRAPH_TENSOR
};

/* Meaning of a Python type's instances for torch. */
enum {
    ML_GRAPH_IS_NOTHING,
    ML_GRAPH_IS_TENSOR,
    ML_GRAPH_IS_FUNCTION, /* the context of a torch.autograd.Function */
    ML_GRAPH_IS_NODE,     /* the Python face of a C++ node */
    ML_GRAPH_IS_STORAGE,
};

/* One reference: its target and its name. */
typedef struct ml_graph_edge {
    int kind;            /* of TO */
    const void *to;      /* borrowed; valid until the walk ends */
    const void *storage; /* of a tensor: its identity; NULL: none */
    int64_t uses;        /* of a tensor: references to it, without the walk's own */
    const char *name;    /* static; NULL: TO is the C++ side of the same thing */
    int64_t index;       /* among several of that name; -1: the only one */
} ml_graph_edge;

/* A non-zero return stops. */
typedef int (*ml_graph_visitor)(void *context, const ml_graph_edge *edge);

typedef struct ml_graph_identity {
    const void *tensor;   /* NULL for a storage */
    int64_t tensor_uses;  /* references to the C++ tensor */
    const void *storage;  /* NULL if the tensor has none */
    int64_t storage_uses; /* references to the storage */
    int64_t kept;         /* references of C++ to the Python object */
} ml_graph_identity;

/* A walk along torch's own references, with the GIL held from begin to end.  It runs no
 * Python code.  Only the references that the walk holds change. */
typedef struct ml_graph {
    uint32_t size;        /* of this struct, bytes */
    uint32_t version;     /* ML_ABI_VERSION */
    void *(*begin)(void); /* NULL: no memory */
    void (*end)(void *walk);
    int (*classify)(const void *walk, const void *type);
    /* Visits THING's references in C++.  THING is a PyObject of a type that is WHAT
     * (else unused), or a node or tensor visited by this walk.  0; 1 if VISIT stopped;
     * or a negative error. */
    int (*references)(void *walk, int kind, int what, const void *thing,
                      ml_graph_visitor visit, void *context);
    void (*name)(const void *walk, const void *node, char *text, size_t capacity);
    /* Of OBJECT, whose type is WHAT: 1; or 0 if it has no identity. */
    int (*identity)(const void *object, int what, ml_graph_identity *out);
} ml_graph;

/* Called when the CUDA allocator is out of memory, before torch raises: on the
 * allocating thread, without the allocator's lock, with or without the GIL. */
typedef void (*ml_oom_hook)(int64_t device, uint64_t alloc_bytes, uint64_t total_bytes,
                            uint64_t free_bytes);

/* native.cpp */
const ml_native *ml_native_table(void);

/* torchscript.cpp.  With the GIL, once: API learns of the first program in TorchScript. */
void ml_torchscript_bind(const ml_api *api);
/* Whether the calling thread runs TorchScript. */
int ml_torchscript_runs(void)
#ifdef __cplusplus
    noexcept
#endif
    ;
/* An ml_torchscript_frames. */
void ml_torchscript_running(ml_torchscript_visitor visit, void *context)
#ifdef __cplusplus
    noexcept
#endif
    ;

/* tensors.cpp */
const ml_tensors *ml_tensors_table(void);

/* storages.cpp, only if torch is built for CUDA. */
const ml_storages *ml_storages_table(void);

/* graph.cpp */
const ml_graph *ml_graph_table(void);

/* clock.cpp: converts c10's approximate ticks to unix nanoseconds, in place. */
int ml_clock_init(void);
int ml_clock_unix_ns(uint64_t *ticks, size_t stride_bytes, size_t count);

/* cpu.cpp.  The sources are static: valid for the life of the process. */
ml_source *ml_cpu_source(const ml_api *api);
/* In a forked child: records nothing until the child itself starts. */
void ml_cpu_forked(void);
typedef struct ml_cpu_counters {
    uint64_t live;      /* tracked allocations not yet freed */
    uint64_t untracked; /* allocations seen while recording that could not be tracked */
    int installed;      /* torch's CPU allocator is memlab's wrapper */
} ml_cpu_counters;
void ml_cpu_count(ml_cpu_counters *out);

/* host.cpp: as ml_source.pinned. */
int ml_host_memory(uint64_t *in_use, uint64_t *held);

/* cuda.cpp, only if torch is built for CUDA. */
ml_source *ml_cuda_source(const ml_api *api);
void ml_cuda_forked(void);
/* The function to call when CUDA is out of memory; NULL: none. */
void ml_cuda_set_oom_hook(ml_oom_hook hook);
/* Makes torch call the hook from now on.  ML_ESTATE: CUDA is not initialised yet. */
int ml_cuda_observe_oom(void);
/* As ml_source.walk. */
int ml_cuda_walk(const ml_walk_visitor *visitor);
/* A sentence about the calling thread's last failure in cuda.cpp. */
const char *ml_cuda_error(void);

/* autograd.cpp: for the callbacks, alone in its object like tracker.cpp.  Fills
 * sequence, autograd_thread and ML_EVENT_BACKWARD of EVENT; for an allocation also next
 * and next_thread.  EVENT's action is set, its next and next_thread are 0.  If a node
 * is running, TEXT's node becomes the mangled name of its C++ type (static), and its
 * anomaly what it has from anomaly mode; else both are unchanged. */
void ml_autograd_fill(ml_event *event, ml_event_text *text)
#ifdef __cplusplus
    noexcept
#endif
    ;

/* autograd.cpp: the mangled name of the C++ type of the calling thread's running node
 * (static); NULL: none. */
const char *ml_autograd_running(void)
#ifdef __cplusplus
    noexcept
#endif
    ;

/* tracker.cpp: the callback, alone in its object, so that its symbols prove what it can
 * reach. */
void ml_tracker_bind(const ml_api *api, const ml_source *source);
void ml_tracker_listen(int enabled);
void ml_tracker_set_devices(int count);
/* The calling thread runs a region of torch.compile of that name from now on, which
 * lives until the next call; NULL: none. */
void ml_tracker_compiled(const char *name, size_t bytes);
/* Between these two calls, SNAPSHOT events of this thread number the devices from 0. */
void ml_tracker_walk_begin(void);
void ml_tracker_walk_end(void);

/* regions.cpp.  SOURCE is a bit.  Called by one thread at a time, when the recorder
 * enables sources. */
#define ML_REGIONS_CPU 1u
#define ML_REGIONS_CUDA 2u
void ml_regions_bind(const ml_api *api);
void ml_regions_listen(unsigned source, int enabled);

/* compiled.cpp, only if torch is built for CUDA: from now on, or no longer, the events of
 * the allocator carry the running region of torch.compile.  With the GIL held.  0 or
 * ML_ENOMEM. */
int ml_compiled_watch(int enabled);

/* pinned.cpp, only if torch is built for CUDA: switches torch's recorder of pinned host
 * memory.  CONTEXT is an enum ml_context, NATIVE asks for C++ frames, MAX_ENTRIES are
 * kept.  0, ML_EUNSUPPORTED before torch 2.13, or ML_ESOURCE. */
int ml_pinned_record(int enabled, int context, int native, size_t max_entries,
                     int clear);
/* 1, 0, or as above. */
int ml_pinned_recording(void);

/* arrival.cpp.  Calls CALLBACK, a Python object, with the GIL, once CUDA has been
 * initialised.  0 or ML_ENOMEM. */
struct _object;
void ml_arrival_bind(const ml_api *api, const ml_source *source);
int ml_arrival_watch(struct _object *callback);
void ml_arrival_forked(void);

/* values.cpp, on the phantom device: from now on small tensors have values.  1, 0 where
 * this is no phantom, or its memory has pages, or ML_ENOMEM. */
int ml_values_watch(void);
/* In a forked child: computes nothing from now on, if the parent did. */
void ml_values_forked(void);
/* value_places.cpp, with the GIL: what the program read that was made up, as a new tuple
 * (number, [(file, line, number), ...]); NULL with an exception. */
struct _object *ml_values_made_up(void);

/* uses.cpp.  One thread at a time calls _listen, when the recorder watches uses. */
void ml_torch_uses_bind(const ml_api *api, const ml_source *source);
void ml_torch_uses_listen(int enabled);
/* In a forked child: reports nothing from now on, if the parent did. */
void ml_torch_uses_forked(void);

#ifdef __cplusplus
}
#endif
#endif
